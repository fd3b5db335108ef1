#!/usr/bin/env python3
"""
moe_runs.py GPT_TRAIN [--check] - the table of docs/moe.md: published runs of mixtures beside what gpt_train --plan --machine says of the
same layouts, and, of two of them, beside the
fastest layout that --search finds for as many GPUs of 80 GB.

Writes it into the page, between the two lines that name this script; --check only looks whether it is there, and exits with 1
where the page says something else than the plans.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import planned_page

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/moe.md"
BEGIN, END = "<!-- begin: scripts/pages/moe_runs.py -->\n", "<!-- end: scripts/pages/moe_runs.py -->\n"
TOKENS, GIB = 4096, 2.0 ** 30
AUTOMODEL = "NeMo Automodel, docs/performance-summary.md: DGX-H100, BF16"
BRIDGE = "Megatron Bridge, docs/performance-summary.md: 25.09, DGX-H100, in fp8; runs that drop tokens are reported as such"
FOLDING = "MoE Parallel Folding (arXiv 2504.14960), abstract: MFU on H100; it names neither batch nor layout"
SOURCES = [AUTOMODEL, BRIDGE, FOLDING]
DEEPSEEK = ("--arch llama --n-layer 61 --n-embd 7168 --n-head 128 --n-kv-head 128 --head-dim 128 --ffn 18432 --vocab-size 129280 --n-expert 256 "
            "--moe-top-k 8 --moe-ffn 2048 --moe-shared 2048 --moe-dense 0-2 --moe-router sigmoid --moe-normalise on")

# tokens: published tokens/s of a GPU; mfu: published, in percent; layout: none where the source names none
ROWS = [
    {"name": "Qwen3-30B-A3B", "gpus": 8, "batch": 512, "tokens": 12040, "source": AUTOMODEL, "model": "--model qwen3-30b-a3b",
     "layout": "--dp 8 --ep 8 --micro-batch-size 4"},
    {"name": "Qwen3-30B-A3B, drops tokens", "gpus": 16, "batch": 512, "tokens": 10494, "source": BRIDGE, "model": "--model qwen3-30b-a3b",
     "layout": "--pp 2 --dp 8 --ep 8 --micro-batch-size 2 --pp-schedule interleaved --pp-virtual 24",
     "search": False},
    {"name": "Qwen3-235B-A22B, drops tokens", "gpus": 256, "batch": 2048, "tokens": 1204, "source": BRIDGE, "model": "--model qwen3-235b-a22b",
     "layout": "--tp 2 --pp 8 --dp 16 --ep 32 --micro-batch-size 1 --sequence-parallel --pp-schedule interleaved --pp-virtual 4", "search": False},
    {"name": "DeepSeek-V3's shape", "gpus": 1024, "batch": 8192, "tokens": 1297, "source": BRIDGE, "model": DEEPSEEK,
     "layout": "--tp 2 --pp 8 --dp 64 --ep 64 --micro-batch-size 1 --sequence-parallel --pp-schedule interleaved --pp-virtual 4",
     "search": False},
    {"name": "Mixtral 8x22B", "gpus": 128, "batch": 256, "mfu": 49.3, "source": FOLDING, "model": "--model mixtral-8x22b"},
    {"name": "Mixtral 8x7B", "gpus": 64, "batch": 256, "model": "--model mixtral-8x7b",
     "layout": "--pp 4 --dp 16 --ep 8 --micro-batch-size 1", "search": False},
]


def plan(gpt_train, row, flags):
    with tempfile.NamedTemporaryFile() as file:
        command = [gpt_train, "--plan", "--dtype", "bf16", "--steps", "2", "--eval-interval", "0", "--machine", ROOT / "docs/machines/h100.json",
                   *row["model"].split(), "--seq-len", TOKENS, "--global-batch-size", row["batch"], *flags.split(), "--json", file.name]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{row['name']}, {flags}: {done.stderr}")
        return json.load(open(file.name, encoding="utf-8"))


def rate(row, seconds):
    return row["batch"] * TOKENS / seconds / row["gpus"]


def planned(gpt_train, row):
    """Tokens/s of a GPU, the part of them on the ways of tokens to experts, and the peak, at the published layout, blocks again."""
    if "layout" not in row:
        return ["", "", "", ""]
    p = plan(gpt_train, row, f"{row['layout']} --recompute block")
    time = p["plan"]["time"]
    ours = rate(row, time["seconds"])
    off = f"{100 * (ours / row['tokens'] - 1):+.0f} %" if "tokens" in row else ""
    return [f"{ours:,.0f}", off, f"{100 * time['path']['ways of tokens to experts and back'] / time['seconds']:.0f} %",
            f"{p['memory']['peak'] / GIB:.0f}"]


def found(gpt_train, row):
    """The search's first: its tokens/s of a GPU or MFU, and its flags."""
    if not row.get("search", True):
        return ["", ""]
    top = plan(gpt_train, row, f"--search --ranks {row['gpus']} --device-memory 80GB")["top"]
    if not top:
        return ["none fits", ""]
    reported = f"{rate(row, top[0]['seconds']):,.0f}" + (f", MFU {100 * top[0]['utilisation']:.1f} %" if "mfu" in row else "")
    return [reported, f"`{top[0]['flags']}`"]


def published(row):
    number = f" ({1 + SOURCES.index(row['source'])})" if "source" in row else ""
    return (f"{row['tokens']:,}" if "tokens" in row else f"MFU {row['mfu']} %" if "mfu" in row else "none known to us") + number


def tables(gpt_train):
    header = ["run", "H100", "sequences", "layout", "tokens/s a GPU, published", "Weft", "off by", "of it ways of tokens", "GiB", "the search's first", "its flags"]
    lines = ["| " + " | ".join(header) + " |", "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|---|"]
    for row in ROWS:
        cells = [row["name"], f"{row['gpus']:,}", f"{row['batch']:,}", f"`{row['layout']}`" if "layout" in row else "", published(row)]
        lines.append("| " + " | ".join(cells + planned(gpt_train, row) + found(gpt_train, row)) + " |")
    text = "\n".join(lines) + "\n" + "".join(f"\n{i}. {source}" for i, source in enumerate(SOURCES, 1))
    return f"{BEGIN}\n{text}\n\n{END}"


if __name__ == "__main__":
    planned_page.main(__doc__, PAGE, BEGIN, END, tables)
