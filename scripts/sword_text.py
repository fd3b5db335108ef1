#!/usr/bin/env python3
"""
sword_text.py ROOT OUT - plain text of the compressed SWORD modules below ROOT, one paragraph a line.

A module keeps its text in <x>.?zz, many zlib streams end to end; <x>.?zs beside it is their
index: for each stream its offset, its size and its size inflated, as little-endian 32-bit numbers.
The text is OSIS or ThML: tags are dropped, and those that open a paragraph begin a line.
"""
import html
import pathlib
import re
import struct
import sys
import zlib

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

RECORD = struct.Struct("<III")
PARAGRAPH = re.compile(rb"<(?:div|p|br|lb|l|item|title|chapter|h[1-6])\b[^>]*>", re.I)


def inflate(data, index):
    """The streams of one module file, joined."""
    streams = []
    for offset, size, inflated in RECORD.iter_unpack(index):
        if not size:
            continue
        stream = zlib.decompress(data[offset:offset + size])
        if len(stream) != inflated:
            raise ValueError(f"a stream of {len(stream)} bytes where the index says {inflated}")
        streams.append(stream)
    return b"".join(streams)


def plain(marked):
    """Marked-up bytes to plain UTF-8 text."""
    marked = re.sub(rb"<[^>]*>", b"", PARAGRAPH.sub(b"\n", marked))
    try:
        text = marked.decode("utf-8")
    except UnicodeDecodeError:                  # older modules
        text = marked.decode("cp1252", "replace")
    lines = (" ".join(line.split()) for line in html.unescape(text).split("\n"))
    return "".join(line + "\n" for line in lines if line)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    root, out = map(pathlib.Path, sys.argv[1:])
    texts = []
    for data in sorted(root.rglob("*.?zz")):
        index = data.with_suffix(data.suffix[:-1] + "s")
        if data.stat().st_size:
            texts.append(plain(inflate(data.read_bytes(), index.read_bytes())))
    if not any(texts):
        sys.exit(f"sword_text: no text below {root}")
    out.write_text("".join(texts), encoding="utf-8")


if __name__ == "__main__":
    main()
