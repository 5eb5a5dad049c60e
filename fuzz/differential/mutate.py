"""Mutations of a TIFF, as plain data: a case is a seed and a list of them, and a list with fewer of
them is a smaller case. A mutation that no longer applies is passed over."""

import os
import struct
import zlib

import paths  # noqa: F401
import tiffpatch  # noqa: I001

# Tags and what is worth trying for them.
VALUES = {
    256: [0, 1, 2, 16, 33, 1000, 65535, 0x7FFFFFFF, 0xFFFFFFFF],
    257: [0, 1, 2, 16, 33, 1000, 65535, 0x7FFFFFFF, 0xFFFFFFFF],
    258: [0, 1, 2, 4, 7, 8, 12, 16, 24, 32, 64, 65, 128],
    259: [1, 2, 3, 4, 5, 6, 7, 8, 32773, 32946, 34887, 34925, 50000, 50001, 50002, 4711],
    262: [0, 1, 2, 3, 4, 5, 6, 8, 32844, 32845, 99],
    266: [0, 1, 2, 3],
    277: [0, 1, 2, 3, 4, 5, 100, 65535],
    278: [0, 1, 2, 5, 8, 53, 1000, 0xFFFFFFFF],
    284: [0, 1, 2, 3],
    317: [0, 1, 2, 3, 4],
    322: [0, 1, 15, 16, 32, 48, 64, 65536, 0x7FFFFFF0],
    323: [0, 1, 15, 16, 32, 48, 64, 65536, 0x7FFFFFF0],
    338: [0, 1, 2, 3],
    339: [0, 1, 2, 3, 4, 5, 6, 7],
    530: [1, 2, 4],
    254: [0, 1, 2, 4, 5],
}
# 34926 was in use before it had a number of its own.
ZSTD = {34926, 50000}
PLACES = (273, 279, 324, 325)
MOST_FILE = 4 << 20


class Bytes(tiffpatch.Tiff):
    """A TIFF in memory; one whose directories cannot be walked has none."""

    def __init__(self, data):
        self.path, self.data = None, bytearray(data)
        self.end = ">" if self.data[:2] == b"MM" else "<"
        try:
            self.big = self._get("H", 2) == 43
            self.word = "Q" if self.big else "I"
            self.first = 8 if self.big else 4
            self.directories = self._walk()
        except (struct.error, IndexError):
            self.big, self.word, self.first, self.directories = False, "I", 4, []


def compressions(data):
    """The Compression of every directory."""
    found = set()
    tiff = Bytes(data)
    for n, _ in enumerate(tiff.directories):
        try:
            found.add(tiff.values(259, n)[0])
        except (KeyError, struct.error, IndexError):
            found.add(1)
    return found


def zstd_frames(data):
    """Hashes of the ZSTD tiles and strips of all directories."""
    frames, tiff = set(), Bytes(data)
    for n, _ in enumerate(tiff.directories):
        try:
            if tiff.values(259, n)[0] in ZSTD:
                frames |= {hash(bytes(tiff.data[at : at + count])) for at, count in tiff.striles(n) if count}
        except (KeyError, struct.error, IndexError, OverflowError):
            frames.add(None)
    return frames


def has_long_last_strip(data):
    """Whether the last strip of a directory's first plane is a zlib stream of more rows than the image has left."""
    tiff = Bytes(data)
    return any(_is_long(tiff, n) for n, _ in enumerate(tiff.directories))


def _is_long(tiff, n):
    try:
        if tiff.values(259, n)[0] not in (8, 32946) or 322 in tiff.directories[n]["entries"]:
            return False
        # A length that only libtiff understands may be any.
        if not tiff.values(257, n):
            return True
        width, height, rows = (tiff.values(tag, n)[0] for tag in (256, 257, 278))
        entries = tiff.directories[n]["entries"]
        bits = tiff.values(258, n) if 258 in entries else [1]
        bits = bits[0] if 284 in entries and tiff.values(284, n)[0] == 2 else sum(bits)
        room = -(-width * bits // 8) * (height % rows)
        offset, count = tiff.striles(n)[height // rows]
        return len(zlib.decompressobj().decompress(bytes(tiff.data[offset : offset + count]), room + 1)) > room > 0
    except (KeyError, IndexError, struct.error, ZeroDivisionError, zlib.error, OverflowError):
        return False


def random_mutation(rng, data):
    """One mutation that fits the file."""
    tiff = Bytes(data)
    if not tiff.directories or rng.random() < 0.1:
        return rng.choice([["byte", rng.randrange(len(data)), rng.randrange(256)],
                           ["cut", rng.randrange(len(data))]])  # fmt: skip
    n = rng.randrange(len(tiff.directories))
    entries = tiff.directories[n]["entries"]
    tag = rng.choice(sorted(entries))
    kind = rng.random()
    if kind < 0.4:
        return _tag(rng, n, entries)
    if kind < 0.55:
        return _place(rng, tiff, n)
    if kind < 0.75:
        return _data(rng, tiff, n)
    if kind < 0.8:
        return ["count", n, tag, rng.choice([0, 1, 2, 3, 100, 0xFFFFFFFF])]
    if kind < 0.85:
        return ["type", n, tag, rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 18, 99])]
    if kind < 0.9:
        return ["drop", n, tag]
    if kind < 0.94:
        other = rng.choice(sorted(VALUES))
        return ["add", n, other, rng.choice([3, 4]), [rng.choice(VALUES[other]) & 0xFFFF]]
    if kind < 0.96:
        return ["name", n, tag, rng.choice(sorted(VALUES) + list(PLACES) + [330, 347, 42113, 32997])]
    at = entries[tag].at + rng.randrange(20 if tiff.big else 12)
    return ["byte", at, rng.choice([0, 1, 255, rng.randrange(256)])]


def _tag(rng, n, entries):
    known = [tag for tag in sorted(entries) if tag in VALUES]
    tag = rng.choice(known or [256])
    value = rng.choice(VALUES[tag]) if rng.random() < 0.85 else rng.randrange(1 << 17)
    return ["set", n, tag, rng.randrange(3), value]


def _place(rng, tiff, n):
    tag = rng.choice([t for t in PLACES if t in tiff.directories[n]["entries"]] or [273])
    size = len(tiff.data)
    values = [0, 1, 2, 8, size, size - 1, size - 10, size + 1000, 0x7FFFFFFF, 0xFFFFFFFF, rng.randrange(size),
              rng.randrange(300), 1 << 63]  # fmt: skip
    return ["set", n, tag, rng.randrange(12), rng.choice(values)]


def _data(rng, tiff, n):
    try:
        offset, count = rng.choice(tiff.striles(n))
    except (KeyError, IndexError, struct.error):
        offset, count = rng.randrange(len(tiff.data)), 10
    at = offset + rng.choice([0, 1, 2, 3, rng.randrange(max(1, min(count, 1 << 20))), max(0, count - 1)])
    if rng.random() < 0.15:
        return ["copy", offset, at + rng.randrange(20), rng.randrange(1, 60)]
    return ["byte", at, rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])]


def apply(data, mutations):
    """The file after the mutations."""
    data = bytes(data)
    for m in mutations:
        try:
            data = _one(data, m)
        except (KeyError, IndexError, struct.error, ValueError):
            continue
    return data[:MOST_FILE]


def _one(data, m):
    if m[0] == "byte":
        changed = bytearray(data)
        changed[m[1]] = m[2]
        return bytes(changed)
    if m[0] == "cut":
        return data[: m[1]]
    if m[0] == "copy":
        changed = bytearray(data)
        piece = changed[m[1] : m[1] + m[3]]
        if m[2] > len(data):
            return data
        changed[m[2] : m[2] + len(piece)] = piece
        return bytes(changed)
    tiff = Bytes(data)
    e = tiff.entry(m[2], m[1]) if m[0] != "add" else None
    if m[0] == "set":
        if m[4] >= 1 << 16 and tiffpatch.SIZES[e.kind] < 4 and e.count <= 64:
            tiff.widen(m[2], m[1])
            e = tiff.entry(m[2], m[1])
        tiff.set(m[2], m[4], m[3] % max(1, e.count), m[1])
    elif m[0] == "count":
        tiff.put(tiff.word, e.at + 4, m[3])
    elif m[0] == "type":
        tiff.put("H", e.at + 2, m[3])
    elif m[0] == "name":
        tiff.put("H", e.at, m[3])
    elif m[0] == "drop":
        tiff.drop_tag(m[2], m[1])
    elif m[0] == "add":
        tiff.add_tag(m[2], m[3], m[4], m[1])
    return bytes(tiff.data)


def save(path, data):
    with open(path, "wb") as f:
        f.write(data)
    for sidecar in (path + ".aux.xml", path + ".ovr", path + ".msk"):
        if os.path.exists(sidecar):
            os.remove(sidecar)
