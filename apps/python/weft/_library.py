"""The shared library that the module calls, and its calls as functions that raise."""
from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

import numpy as np

ERROR_TEXT = 1536


class Error(Exception):
    """A call that failed, with the library's text; `.status` is its wf_status."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def _fields(*kinds: tuple[str, Any]) -> Any:
    """The fields of a struct: names of each type, in their order."""
    return [(name, kind) for names, kind in kinds for name in names.split()]


class ErrorStruct(ctypes.Structure):
    """wf_error."""

    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * ERROR_TEXT)]


class Sizes(ctypes.Structure):
    """weft_python_sizes."""

    _fields_ = _fields(("batch tokens vocabulary positions ranks steps", ctypes.c_int64))


class StepStruct(ctypes.Structure):
    """weft_python_step."""

    _fields_ = _fields(("step", ctypes.c_int64), ("loss grad_norm lr ms tokens_per_s val_loss", ctypes.c_double),
                       ("digest memory_peak", ctypes.c_uint64), ("has_digest has_val_loss skipped", ctypes.c_int32))


class Sampling(ctypes.Structure):
    """weft_python_sampling."""

    _fields_ = _fields(("temperature top_p min_p repetition_penalty", ctypes.c_double), ("top_k most", ctypes.c_int64),
                       ("seed", ctypes.c_uint64), ("ends", ctypes.c_void_p), ("n_ends", ctypes.c_int64))


RUN, IDS, COUNT, OUT = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
ERROR = ctypes.POINTER(ErrorStruct)
ARGUMENTS: dict[str, list[Any]] = {
    "open": [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, OUT, ERROR],
    "close": [RUN, ERROR],
    "train": [RUN, IDS, IDS, IDS, OUT, ERROR],
    "batch": [RUN, ctypes.c_int, COUNT, IDS, IDS, ERROR],
    "evaluate": [RUN, COUNT, IDS, IDS, OUT, ERROR],
    "generate": [RUN, OUT, COUNT, IDS, IDS, COUNT, IDS, IDS, IDS, ERROR],
    "logprobs": [RUN, COUNT, COUNT, IDS, OUT, ERROR],
    "digest": [RUN, OUT, ERROR],
    "save": [RUN, ctypes.c_char_p, ERROR],
    "export": [RUN, ctypes.c_char_p, ctypes.c_char_p, ERROR],
    "load": [RUN, ctypes.c_char_p, ERROR],
    "encode": [RUN, ctypes.c_char_p, COUNT, OUT, OUT, ERROR],
    "decode": [RUN, IDS, COUNT, OUT, OUT, ERROR],
    "plan": [ctypes.c_int, ctypes.c_void_p, OUT, ERROR],
}


def _load() -> ctypes.CDLL:
    named = os.environ.get("WEFT_LIBRARY")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).parent / "lib" / "libweft_python.so"
    if not path.exists():
        raise ImportError(f"{path} is missing: install the wheel (scripts/wheel.sh), or let WEFT_LIBRARY name "
                          "libweft_python.so of a build")
    library = ctypes.CDLL(str(path))
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, f"weft_python_{name}")
        function.argtypes, function.restype = arguments, ctypes.c_int
    library.weft_python_sizes_of.argtypes, library.weft_python_sizes_of.restype = [RUN, OUT], None
    library.weft_python_steps.argtypes, library.weft_python_steps.restype = [RUN], ctypes.c_int64
    library.weft_python_options.argtypes, library.weft_python_options.restype = [RUN], ctypes.c_void_p
    library.weft_python_free.argtypes, library.weft_python_free.restype = [ctypes.c_void_p], None
    library.weft_python_version.argtypes, library.weft_python_version.restype = [], ctypes.c_char_p
    return library


library = _load()


def call(name: str, *arguments: Any) -> None:
    """Calls weft_python_NAME; raises Error with the library's text."""
    error = ErrorStruct()
    status = getattr(library, f"weft_python_{name}")(*arguments, ctypes.byref(error))
    if status:
        raise Error(bytes(error.text).decode("utf-8", "replace"), int(status))


def take_text(pointer: ctypes.c_void_p | int | None, size: int | None = None) -> bytes:
    """Copies a text that the library has given, and frees it."""
    if not pointer:
        return b""
    text = ctypes.string_at(pointer) if size is None else ctypes.string_at(pointer, size)
    library.weft_python_free(pointer)
    return text


def path_bytes(path: str | bytes | os.PathLike[str] | os.PathLike[bytes], what: str = "a path") -> bytes:
    """A path, or another word, as C takes it."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise Error(f"{what} is {path!r}, and a path is text or a pathlib.Path")
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise Error(f"{what} {path!r} has a byte 0, which ends a text")
    return raw


def folder_bytes(path: str | os.PathLike[str]) -> bytes:
    """The path of a folder for files."""
    raw = path_bytes(path, "the folder")
    if not 1 <= len(raw) <= 3968:
        raise Error(f"the folder has a name of {len(raw)} bytes: give one of 1 to 3968")
    return raw


def model_flags(model: str | os.PathLike[str] | None) -> dict[str, Any]:
    """The flag of a model: a folder or a file that is there, or the name of a published one."""
    if model is None:
        return {}
    path_bytes(model, "model")
    return {("init_from" if os.path.exists(model) else "model"): model}


def command_line(flags: dict[str, Any]) -> "ctypes.Array[ctypes.c_char_p]":
    """The flags of gpt_train that keywords name: lr=1e-4 is --lr=1e-4, a list gives several values, True and False are
    on and off, and what is None is left out."""
    words = [b"weft"]
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, (list, tuple)):
            words += [path_bytes(flag), *(path_bytes(v if isinstance(v, (str, os.PathLike)) else str(v), name) for v in value)]
        elif isinstance(value, (bool, np.bool_)):
            words.append(f"{flag}={'on' if value else 'off'}".encode())
        elif isinstance(value, os.PathLike):
            words.append(path_bytes(flag) + b"=" + path_bytes(value, name))
        else:
            words.append(path_bytes(f"{flag}={float(value)!r}" if isinstance(value, float) else f"{flag}={value}", name))
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)
