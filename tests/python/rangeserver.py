"""A loopback HTTP server that answers byte ranges and counts what it was asked."""

import contextlib
import http.server
import os
import threading


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # many ranges at once: what does not fit is tried again a second later

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.secret, self.broken, self.refused = folder, None, False, 0
        self.lock = threading.Lock()
        self.url = "http://127.0.0.1:%d" % self.server_address[1]
        self.forget()

    def forget(self):
        self.requests, self.sent = 0, 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _refuse(self, code):
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, body):
        server = self.server
        with server.lock:
            server.requests += 1
        if server.broken:
            return self._refuse(503)
        if server.secret and self.headers.get("X-Secret") != server.secret:
            with server.lock:
                server.refused += 1
            return self._refuse(403)
        path = os.path.join(server.folder, self.path.lstrip("/"))
        if not os.path.isfile(path):
            return self._refuse(404)
        size = os.path.getsize(path)
        first, last = self._range(size)
        if first >= size:
            return self._refuse(416)
        self.send_response(206 if self.headers.get("Range") else 200)
        self.send_header("Accept-Ranges", "bytes")
        if self.headers.get("Range"):
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, size))
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        if body:
            with open(path, "rb") as f:
                f.seek(first)
                self._send(f.read(last - first + 1))

    def _send(self, data):
        with self.server.lock:
            self.server.sent += len(data)
        with contextlib.suppress(ConnectionError):
            self.wfile.write(data)

    def _range(self, size):
        text = self.headers.get("Range", "")
        if not text.startswith("bytes="):
            return 0, size - 1
        first, _, last = text[6:].partition("-")
        return int(first), min(size - 1, int(last) if last else size - 1)


@contextlib.contextmanager
def serve(folder):
    server = Server(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
