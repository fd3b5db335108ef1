#!/usr/bin/env python3
"""
moe_beside.py GPT_TRAIN SCHEDULE [--turns N] [--seconds X] [--allow PERCENT] - a step of a mixture in a pipeline on a machine of slow links,
by dualpipe-v, whose forwards run beside backwards, and by the same table of which nothing overlaps, in turns: runs that take the time of that
machine (--paced), and what gpt_train --plan --machine says of them. Prints both and their ratio for links of several speeds, and fails where
losses or digests differ, where overlap does not make a step shorter, or where a plan is off by more than PERCENT.

Links are so slow that the exchanges of a block take half as long forward as its products, as long, or twice as long.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import moe_overlap

RANKS, PIPELINE, WIDTH, EXPERT, TOKENS, BLOCKS, MICROS, SEQUENCES = 2, 2, 32, 128, 128, 6, 8, 4
MODEL = ["--n-layer", str(BLOCKS), "--n-embd", str(WIDTH), "--seq-len", str(TOKENS), "--n-expert", "16", "--moe-top-k", "2", "--moe-ffn",
         str(EXPERT), "--pp", str(PIPELINE), "--dp", str(RANKS), "--ep", str(RANKS), "--global-batch-size",
         str(MICROS * SEQUENCES * RANKS), "--micro-batch-size", str(SEQUENCES), "--strategy", "no_shard", "--moe-dispatch", "exchange"]
RATE = 1e12


def machine(slow):
    """Both exchanges of a block take `slow` times what its products take forward."""
    tokens = SEQUENCES * TOKENS
    products = 2 * tokens * WIDTH * (4 * WIDTH + TOKENS + 2 * 3 * EXPERT) / RATE
    rows = 2 * tokens * .76 * WIDTH * 4  # of the other rank's tokens three in four choose an expert here
    return moe_overlap.with_links(slow, rows / (slow * products), RATE, RANKS * PIPELINE)


def tables(program, folder):
    """Files of the two tables."""
    table = subprocess.run([program, "gen", "dualpipe-v", "--pp", str(PIPELINE), "--micro", str(MICROS)], capture_output=True, text=True,
                           check=True).stdout
    files = {True: pathlib.Path(folder, "beside.sched"), False: pathlib.Path(folder, "alone.sched")}
    files[True].write_text(table, encoding="utf-8")
    files[False].write_text(re.sub(r"\((\S+) \+ (\S+)\)", r"\1 \2", table), encoding="utf-8")
    return {on: MODEL + ["--pp-schedule", str(files[on])] for on in files}


def numbers(program, flags):
    """Losses and digests of a run at this machine's own pace."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text")
        text.write_text(moe_overlap.WORDS, encoding="utf-8")
        said = subprocess.run([program, "--arch", "llama", "--n-head", "4", "--eval-interval", "0", *flags, "--data", text, "--steps",
                               "3", "--digest"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"loss ([0-9.]+).*digest ([0-9a-f]+)", said)


def main():
    a = moe_overlap.arguments(__doc__, 1, "schedule")
    with tempfile.TemporaryDirectory() as folder:
        flags = tables(a.schedule, folder)
        alike = numbers(a.gpt_train, flags[True]) == numbers(a.gpt_train, flags[False])
        sys.exit(moe_overlap.compare(a, machine, flags, alike, "beside", "one after the other"))


if __name__ == "__main__":
    main()
