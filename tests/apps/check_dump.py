#!/usr/bin/env python3
"""
check_dump.py IN OUT CODE - a safetensors file, changed: CODE sees its tensors as t, a dict of Tensor, and puts faults into them.
"""
import array
import json
import struct
import sys

TYPES = {"F32": "f", "I32": "i", "I64": "q"}


class Tensor:
    """Numbers of a shape, row by row."""

    def __init__(self, dtype, shape, numbers):
        self.dtype, self.shape, self.numbers = dtype, list(shape), numbers

    @property
    def columns(self):
        return self.shape[-1] if len(self.shape) > 1 else 1

    def rows(self):
        return [self.numbers[i:i + self.columns] for i in range(0, len(self.numbers), self.columns)]

    def set_rows(self, rows):
        self.numbers = array.array(self.numbers.typecode, (x for row in rows for x in row))

    def scale(self, factor, rows=None, columns=None):
        """Multiplies elements, of some rows and columns alone where these are given as ranges."""
        for i, x in enumerate(self.numbers):
            if (rows is None or i // self.columns in rows) and (columns is None or i % self.columns in columns):
                self.numbers[i] = x * factor

    def transpose(self):
        self.set_rows(zip(*self.rows()))


def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: Tensor(e["dtype"], e["shape"], array.array(TYPES[e["dtype"]], data[8 + size:][slice(*e["data_offsets"])]))
            for name, e in header.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        size = len(t.numbers) * t.numbers.itemsize
        header[name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            out.write(t.numbers.tobytes())


def some(tensors, *words):
    """Tensors whose names have one of these words; losses are none of them."""
    return [t for name, t in tensors.items() if any(w in name for w in words) and not name.endswith(("loss", "losses"))]


if __name__ == "__main__":
    t = read(sys.argv[1])
    exec(sys.argv[3], {"t": t, "some": lambda *w: some(t, *w), "read": read, "Tensor": Tensor, "array": array})
    write(sys.argv[2], t)
