"""What calls of a run return."""
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Ids


@dataclasses.dataclass(frozen=True)
class Step:
    """A step that was made: loss and gradient norm before its update, the digest of parameters and optimizer after it."""

    step: int
    loss: float
    grad_norm: float
    lr: float
    digest: str | None
    val_loss: float | None
    skipped: bool
    ms: float
    tokens_per_s: float
    memory_peak: int

    def asdict(self) -> dict[str, Any]:
        """The same as a dict, as a row of JSONL has it."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Text:
    """A text that was generated: ids of prompt and continuation, their text, and log probabilities where asked for."""

    ids: Ids
    prompt: int
    text: str | None
    logprobs: npt.NDArray[np.float32] | None

    @property
    def new_ids(self) -> Ids:
        """The ids that were generated."""
        return self.ids[self.prompt:]
