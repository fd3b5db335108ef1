#!/usr/bin/env python3
"""
finetuning_memory.py GPT_TRAIN [--check] - which methods of fine-tuning fit in four devices of 48 GiB, with the largest batch of each,
by --plan, in a table of docs/finetuning.md. With --check the page is compared, and status 1 says that it is another one.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import planned_page

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/finetuning.md"
BEGIN, END = "<!-- by scripts/pages/finetuning_memory.py -->\n", "<!-- end -->"
GIB = 2 ** 30
MODELS = {"TinyLlama 1.1B": "tinyllama-1.1b", "CodeLlama 34B": "codellama-34b"}
COMMON = "--dtype bf16 --seq-len 2048 --recompute block --device-memory 48GiB --find-batch"
LORA = "--lora-rank 16 --lora-targets all-linear"
WAYS = {
    "all of it, MP": "--tp 4 --sequence-parallel",
    "all of it, DDP": "--dp 4 --strategy no_shard",
    "all of it, FSDP": "--dp 4",
    "all of it, FSDP, moments in 8 bits": "--dp 4 --optimizer adamw8bit",
    "LoRA, DDP": f"--dp 4 --strategy no_shard {LORA}",
    "LoRA, FSDP": f"--dp 4 {LORA}",
    "QLoRA, DDP": f"--dp 4 --strategy no_shard {LORA} --base-dtype nf4",
    "QLoRA, FSDP": f"--dp 4 {LORA} --base-dtype nf4",
}


def plan(gpt_train, flags):
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run([gpt_train, "--plan", *flags.split(), "--json", file.name], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{flags}: {done.stderr}")
        return json.load(open(file.name, encoding="utf-8"))


def cell(gpt_train, flags):
    p = plan(gpt_train, flags)
    peak = f"{p['memory']['peak'] / GIB:.1f}"
    return f"{p['batch']['global']} ({peak})" if p["plan"]["fits"] else f"none: {peak}"


def table(gpt_train):
    rows = [f"| sequences of 2,048 tokens a step (GiB of a rank) | {' | '.join(MODELS)} | flags |", "|---|--:|--:|---|"]
    for way, flags in WAYS.items():
        cells = [cell(gpt_train, f"--model {model} {COMMON} {flags}") for model in MODELS.values()]
        rows.append(f"| {way} | {' | '.join(cells)} | `{flags}` |")
    return "\n".join(rows) + "\n"


def tables(gpt_train):
    return f"{BEGIN}\n{table(gpt_train)}\n{END}"


if __name__ == "__main__":
    planned_page.main(__doc__, PAGE, BEGIN, END, tables)
