"""What a caller gives, as arrays and numbers that the library takes; what is none is refused by name."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from ._library import Error

Ids = npt.NDArray[np.int32]
# What has ids: numpy, lists, or what speaks DLPack on the CPU, as tensors of torch and jax do.
ArrayLike = Any
Batch = Union[ArrayLike, "tuple[ArrayLike, ArrayLike]", "Mapping[str, ArrayLike]"]



def as_array(value: ArrayLike, what: str) -> npt.NDArray[Any]:
    """What a caller gives as numpy, without a copy where it is that already."""
    if isinstance(value, np.ma.MaskedArray):
        raise Error(f"{what} are a masked array, whose mask would be lost: give targets of -100 where none counts")
    problem: Exception | None = None
    if hasattr(value, "__dlpack__") and hasattr(np, "from_dlpack") and not isinstance(value, np.ndarray):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            problem = error
    if problem is None or hasattr(value, "__array__"):  # as booleans of torch for a numpy of before 1.25
        try:
            return np.asarray(value)
        except (RuntimeError, TypeError, ValueError) as error:
            problem = problem or error
    raise Error(f"{what} cannot be read as one array: {problem}; give numbers that numpy has, of one shape, on the CPU and without "
                "a gradient")


def as_ids(value: ArrayLike, what: str) -> Ids:
    """Ids as int32 numpy, C order, without a copy where they are that already."""
    array = as_array(value, what)
    if not array.size and array.dtype == np.float64:
        array = array.astype(np.int32)  # an empty list
    if array.dtype.kind not in "iu":
        raise Error(f"{what} are {array.dtype}, and ids are integers")
    if array.dtype != np.int32 and array.size and (int(array.max()) > 2**31 - 1 or int(array.min()) < -2**31):
        raise Error(f"{what} have ids beyond 32 bits: {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int32)


def as_factors(weights: ArrayLike) -> npt.NDArray[np.float32]:
    """Weights of targets as float32 numpy, C order; those beyond it are infinite."""
    given = as_array(weights, "weights")
    if given.dtype.kind not in "fiu":
        raise Error(f"weights are {given.dtype}, and weights are real numbers, one for each target")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(given, dtype=np.float32)


def as_count(value: Any, what: str, least: int, most: int) -> int:
    """A whole number of a range."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise Error(f"{what} is {value!r}: give a whole number of {least} to {most}")
    return int(value)


def as_number(value: Any, what: str, least: float, most: float) -> float:
    """A number of a range, which NaN is not in."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not least <= value <= most:
        raise Error(f"{what} is {value!r}: give a number of {least:g} to {most:g}")
    return float(value)


def pointer(array: npt.NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def shift(ids: Ids, labels: Ids | None) -> tuple[Ids, Ids]:
    """Tokens and the target after each."""
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise Error(f"ids are {list(ids.shape)}: a batch is [sequences, length + 1]")
    wanted = ids if labels is None else labels
    if wanted.shape != ids.shape:
        raise Error(f"input_ids are {list(ids.shape)} and labels {list(wanted.shape)}: they have one shape")
    return np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(wanted[:, 1:])


def of_mapping(batch: Mapping[str, ArrayLike]) -> tuple[Ids, Ids]:
    """Tokens and targets of what transformers' models take; nothing that it has is left out."""
    known = ("input_ids", "labels", "attention_mask")
    if "input_ids" not in batch or any(name not in known for name in batch):
        raise Error(f"a batch has {', '.join(map(str, batch)) or 'nothing'}: input_ids are needed, labels and an attention_mask may "
                    "be there, and nothing else is read")
    ids = as_ids(batch["input_ids"], "input_ids")
    labels = None if batch.get("labels") is None else as_ids(batch["labels"], "labels")
    if batch.get("attention_mask") is not None:
        mask = as_array(batch["attention_mask"], "the attention_mask's elements")
        if mask.shape != ids.shape or (labels if labels is not None else ids).shape != ids.shape:
            raise Error(f"input_ids are {list(ids.shape)} and the attention_mask {list(mask.shape)}: they have one shape")
        if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
            raise Error("the attention_mask has other elements than 0, of what is left out, and 1")
        left_out = mask == 0
        if (left_out[:, :-1] & ~left_out[:, 1:]).any() or (left_out & ((ids if labels is None else labels) >= 0)).any():
            raise Error("the attention_mask leaves out tokens in front of others, or that count: pad after the text, with labels of -100")
    return shift(ids, labels)
