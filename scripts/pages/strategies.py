#!/usr/bin/env python3
"""
strategies.py GPT_TRAIN [--check] - the tables of docs/strategies.md, from gpt_train --plan.

Writes them into the page, between the two lines that name this script; --check only looks whether
they are there, and exits with 1 where the page says something else than the plans.
"""
import json
import pathlib
import subprocess
import tempfile

import planned_page

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/strategies.md"
BEGIN, END = "<!-- begin: scripts/pages/strategies.py -->\n", "<!-- end: scripts/pages/strategies.py -->\n"
MODEL = """--arch llama --n-layer 32 --n-embd 4096 --n-head 32 --n-kv-head 32 --ffn 11008
--vocab-size 32000 --seq-len 4096 --dp 16 --micro-batch-size 1""".split()
GROUP = "--shard-group-size 4".split()
STRATEGIES = {"no_shard": [], "zero1": [], "shard_grad_op": [], "full_shard": [],
              "hybrid_shard": GROUP, "hybrid_shard_zero2": GROUP}
GIB = 2.0 ** 30


def plan(gpt_train, strategy, micro_steps):
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([gpt_train, "--plan", *MODEL, "--strategy", strategy, *STRATEGIES[strategy],
                        "--global-batch-size", str(16 * micro_steps), "--json", file.name],
                       stdout=subprocess.DEVNULL, check=True)
        return json.load(open(file.name, encoding="utf-8"))


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def held(plans):
    rows = []
    for strategy, p in plans.items():
        most, per = p["memory"]["most"], p["bytes_per_parameter"]
        kinds = ("parameters", "gathered_parameters", "gradients", "optimizer_state")
        rows.append([f"`{strategy}`", *(f"{most[kind] / GIB:.2f}" for kind in kinds),
                     f"{per['sum']:.2f}", f"{p['memory']['peak'] / GIB:.1f}"])
    return table(["GiB of a rank, at most", "parameters", "gathered", "gradients",
                  "optimizer state", "bytes per parameter", "peak with activations"], rows)


def moved(plans):
    kinds = ("all_gather", "reduce_scatter", "all_reduce")
    rows = []
    for strategy, p in plans.items():
        received = {kind: sum(c["bytes"] for c in p["collectives"] if c["kind"] == kind)
                    for kind in kinds}
        across = sum(c["bytes"] for c in p["collectives"] if c["axis"] == "replicate")
        rows.append([f"`{strategy}`", *(f"{received[kind] / GIB:.1f}" for kind in kinds),
                     f"{sum(received.values()) / GIB:.1f}",
                     f"{across / GIB:.1f}" if STRATEGIES[strategy] else ""])
    return table(["GiB that a rank receives", *kinds, "together", "of it across groups"], rows)


def tables(gpt_train):
    one = {strategy: plan(gpt_train, strategy, 1) for strategy in STRATEGIES}
    four = {strategy: plan(gpt_train, strategy, 4) for strategy in STRATEGIES}
    return (f"{BEGIN}\nWhat a rank holds:\n\n{held(one)}\n"
            f"What it receives in a step of one micro-step:\n\n{moved(one)}\n"
            f"And in a step of four:\n\n{moved(four)}\n{END}")


if __name__ == "__main__":
    planned_page.main(__doc__, PAGE, BEGIN, END, tables)
