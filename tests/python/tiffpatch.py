"""Just enough TIFF to damage a file on purpose: directories and tags of classic and BigTIFF, values
changed in place, tags added, data appended. Knows nothing of pixels."""

import struct

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
CODES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 13: "I", 16: "Q", 17: "q", 18: "Q"}
OFFSETS, COUNTS = (273, 324), (279, 325)


class Entry:
    """A tag of a directory: where its entry is and where its values are."""

    def __init__(self, tag, kind, count, at, values_at):
        self.tag, self.kind, self.count, self.at, self.values_at = tag, kind, count, at, values_at


class Tiff:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.data = bytearray(f.read())
        self.end = "<" if self.data[:2] == b"II" else ">"
        self.big = self._get("H", 2) == 43
        self.word = "Q" if self.big else "I"
        self.first = 8 if self.big else 4
        self.directories = self._walk()

    def _get(self, code, at):
        return struct.unpack_from(self.end + code, self.data, at)[0]

    def put(self, code, at, value):
        struct.pack_into(self.end + code, self.data, at, value)

    def save(self):
        with open(self.path, "wb") as f:
            f.write(self.data)

    def _walk(self):
        out, at = [], self._get(self.word, self.first)
        while at and len(out) < 100:
            out.append(self._directory(at))
            at = self._get(self.word, out[-1]["next_at"])
        return out

    def _directory(self, at):
        n = self._get("Q" if self.big else "H", at)
        entries, p = {}, at + (8 if self.big else 2)
        step, inline = (20, 8) if self.big else (12, 4)
        for _ in range(n):
            tag, kind, count = self._get("H", p), self._get("H", p + 2), self._get(self.word, p + 4)
            value_field = p + (12 if self.big else 8)
            size = SIZES.get(kind, 1) * count
            where = value_field if size <= inline else self._get(self.word, value_field)
            entries[tag] = Entry(tag, kind, count, p, where)
            p += step
        return {"at": at, "count": n, "entries": entries, "next_at": p}

    def entry(self, tag, directory=0):
        """An entry by tag; of several tags the one that is there."""
        entries = self.directories[directory]["entries"]
        for t in (tag,) if isinstance(tag, int) else tag:
            if t in entries:
                return entries[t]
        raise KeyError(tag)

    def values(self, tag, directory=0):
        e = self.entry(tag, directory)
        return [self._get(CODES[e.kind], e.values_at + i * SIZES[e.kind]) for i in range(e.count)]

    def set(self, tag, value, index=0, directory=0):
        """Overwrites one value in place, cut to the width it has there."""
        e = self.entry(tag, directory)
        bits = 8 * SIZES[e.kind]
        self.put(CODES[e.kind], e.values_at + index * SIZES[e.kind], value & ((1 << bits) - 1))

    def widen(self, tag, directory=0):
        """Turns a tag of SHORTs into LONGs at the end of the file, so that any value fits."""
        e = self.entry(tag, directory)
        values = self.values(tag, directory)
        wide = 16 if self.big else 4
        if e.kind == wide:
            return
        self._write_entry(e.at, e.tag, wide, values)
        self.directories = self._walk()

    def _write_entry(self, at, tag, kind, values):
        blob = b"".join(struct.pack(self.end + CODES[kind], v) for v in values)
        room = 8 if self.big else 4
        self.put("H", at, tag)
        self.put("H", at + 2, kind)
        self.put(self.word, at + 4, len(values))
        field = at + (12 if self.big else 8)
        if len(blob) <= room:
            self.data[field : field + room] = blob.ljust(room, b"\0")
        else:
            self.data += b"\0" * (len(self.data) % 2)
            self.put(self.word, field, len(self.data))
            self.data += blob

    def add_tag(self, tag, kind, values, directory=0):
        """Writes the directory anew at the end of the file with one tag more."""
        d = self.directories[directory]
        step = 20 if self.big else 12
        head = 8 if self.big else 2
        entries = [bytes(self.data[e.at : e.at + step]) for e in d["entries"].values()]
        fresh = bytearray(step)
        following = self._get(self.word, d["next_at"])
        self.data += b"\0" * (len(self.data) % 2)
        at = len(self.data)
        tags = sorted(entries + [struct.pack(self.end + "H", tag) + bytes(fresh[2:])],
                      key=lambda e: struct.unpack(self.end + "H", e[:2])[0])  # fmt: skip
        self.data += struct.pack(self.end + ("Q" if self.big else "H"), len(tags)) + b"".join(tags)
        self.data += struct.pack(self.end + self.word, following)
        index = [struct.unpack(self.end + "H", e[:2])[0] for e in tags].index(tag)
        self._write_entry(at + head + index * step, tag, kind, values)
        self.put(self.word, self.first if directory == 0 else self.directories[directory - 1]["next_at"], at)
        self.directories = self._walk()

    def drop_tag(self, tag, directory=0):
        """Takes a tag out of a directory, in place, if it is there."""
        d = self.directories[directory]
        if tag not in d["entries"]:
            return
        step = 20 if self.big else 12
        at, end = d["entries"][tag].at, d["next_at"] + (8 if self.big else 4)
        self.data[at : end - step] = self.data[at + step : end]
        self.put("Q" if self.big else "H", d["at"], d["count"] - 1)
        self.directories = self._walk()

    def striles(self, directory=0):
        """(offset, byte count) of every tile or strip."""
        return list(zip(self.values(OFFSETS, directory), self.values(COUNTS, directory)))

    def reverse_bits(self):
        """Mirrors every byte of the image data, as FillOrder 2 has it."""
        mirrored = bytes(int("{:08b}".format(i)[::-1], 2) for i in range(256))
        for offset, count in self.striles():
            self.data[offset : offset + count] = self.data[offset : offset + count].translate(mirrored)

    def append_data(self, blob, strile):
        """Puts new bytes for one strile at the end of the file."""
        for tag in (OFFSETS, COUNTS):
            self.widen(self.entry(tag).tag)
        at = len(self.data)
        self.data += blob
        self.set(OFFSETS, at, strile)
        self.set(COUNTS, len(blob), strile)


def old_style_lzw(size):
    """Old-style LZW (codes filled from the low bit) of `size` bytes without any table use: a clear
    code often enough that codes stay nine bits wide."""
    codes, n = [], 0
    while n < size:
        run = min(200, size - n)
        codes += [256] + [(n + i) % 251 for i in range(run)]
        n += run
    codes.append(257)
    bits = sum(c << (9 * i) for i, c in enumerate(codes))
    return bits.to_bytes((9 * len(codes) + 7) // 8 + 4, "little"), n
