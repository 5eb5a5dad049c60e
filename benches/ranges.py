"""An HTTP server on the loopback that understands Range and counts what it is asked."""

import http.server
import re
import threading
from pathlib import Path


class RangeServer:
    """Serves a directory: `with RangeServer(path) as server: server.url, server.take()`."""

    def __init__(self, directory):
        self._directory = Path(directory)
        self._lock = threading.Lock()
        self._requests = 0

    def __enter__(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                outer._answer(self, body=False)

            def do_GET(self):
                outer._answer(self, body=True)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def take(self):
        """The requests counted since the last call."""
        with self._lock:
            requests, self._requests = self._requests, 0
        return requests

    def _answer(self, handler, body):
        with self._lock:
            self._requests += 1
        path = self._directory / Path(handler.path).name
        if not path.is_file():
            handler.send_response(404)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        size = path.stat().st_size
        first, last = 0, size - 1
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", ""))
        if asked:
            first = int(asked[1])
            last = min(last, int(asked[2] or last))
        handler.send_response(206 if asked else 200)
        if asked:
            handler.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        handler.send_header("Accept-Ranges", "bytes")
        handler.send_header("Content-Length", str(last - first + 1))
        handler.end_headers()
        if body:
            with path.open("rb") as file:
                file.seek(first)
                try:
                    handler.wfile.write(file.read(last - first + 1))
                except ConnectionError:
                    pass
