"""Reads safetensors files of float32: a length, a header of JSON, and the numbers."""
from __future__ import annotations

import json
import pathlib

import numpy as np
import numpy.typing as npt


def read(folder: pathlib.Path) -> dict[str, npt.NDArray[np.float32]]:
    """All tensors of a folder's files, as copies."""
    found: dict[str, npt.NDArray[np.float32]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
            for name, tensor in header.items():
                if name == "__metadata__":
                    continue
                begin, end = tensor["data_offsets"]
                file.seek(8 + size + begin)
                found[name] = np.frombuffer(bytearray(file.read(end - begin)), np.float32).reshape(tensor["shape"])
    return found
