"""
dataset.py - trains on a dataset of Hugging Face, or on any iterator of dicts.

    pip install datasets
    python3 docs/examples/python/dataset.py roneneldan/TinyStories
    python3 docs/examples/python/dataset.py rows.jsonl          # {"text": ..} a line, without datasets
"""
import json
import sys
from collections.abc import Iterator
from typing import Any

import weft


def rows(name: str) -> Iterator[dict[str, Any]]:
    """Rows of a file of JSON lines, or of a dataset's split, as they come."""
    if name.endswith(".jsonl"):
        with open(name, encoding="utf-8") as file:
            yield from map(json.loads, file)
    else:
        from datasets import load_dataset

        yield from load_dataset(name, split="train", streaming=True)


def main(name: str, steps: int) -> None:
    with weft.Run(arch="llama", n_layer=4, n_head=8, n_embd=128, seq_len=128, global_batch_size=8, tp=2, dp=2, lr=1e-3) as run:
        for step, ids in zip(range(steps), weft.pack(rows(name), run, end=0)):
            made = run.step(ids)
            if step % 10 == 0:
                print(made.step, round(made.loss, 4), made.digest)
        print(run.generate("Once", 32)[0].text)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100)
