"""Batches of any iterator of dicts, as a dataset of Hugging Face is."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ._arrays import Ids, as_ids
from ._library import Error
from ._run import Run


def pack(rows: Iterable[Mapping[str, Any]], run: Run, column: str | None = None, end: int | None = None) -> Iterator[Ids]:
    """
    Packs rows into batches of a run, [global_batch_size, seq_len + 1]: their ids one after the other.

    rows    any iterator of dicts: a dataset of Hugging Face, streamed or not, rows of JSONL
    column  of ids, or of texts, which the model's tokenizer encodes; None: input_ids, or text
    end     an id after each row; None: nothing
    The last ids that make no batch are left out. Tokens at the border of two sequences are in both: as a target, and a token.
    """
    length, count = run.seq_len, run.global_batch_size
    left = np.empty(0, np.int32)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise Error(f"row {number} is {type(row).__name__}, and rows are dicts")
        name = column or ("input_ids" if "input_ids" in row else "text")
        if name not in row:
            raise Error(f"row {number} has no {name}, but {', '.join(row) or 'nothing'}: give column=")
        ids = run.encode(row[name]) if isinstance(row[name], str) else as_ids(row[name], name).reshape(-1)
        left = np.concatenate([left, ids] + ([] if end is None else [np.array([end], np.int32)]))
        while len(left) > count * length:
            yield np.stack([left[i * length:(i + 1) * length + 1] for i in range(count)])
            left = left[count * length:]
