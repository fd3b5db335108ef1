#!/usr/bin/env python3
"""
moe_overlap.py GPT_TRAIN [--turns N] [--seconds X] [--allow PERCENT] - a step of a mixture on a machine of slow links, with its tokens
exchanged beside the shared expert's products and without (--moe-shared-expert-overlap), in turns: runs that take the time of that
machine (--paced), and what gpt_train --plan --machine says of them. Prints both and their ratio for links of several speeds, and
fails where losses or digests differ, where overlap does not make a step shorter, or where a plan is off by more than PERCENT.

Links are so slow that an exchange takes as long as the shared expert's products, half as long, or twice.
"""
import argparse
import pathlib
import random
import re
import string
import subprocess
import sys
import tempfile

import paced

RANKS, WIDTH, SHARED, TOKENS, BLOCKS, MICRO = 4, 64, 256, 128, 4, 4
WORDS = "".join(random.Random(1).choices(string.ascii_letters, k=60000))  # experts are loaded alike
MODEL = ["--n-layer", str(BLOCKS), "--n-embd", str(WIDTH), "--seq-len", str(TOKENS), "--n-expert", "16", "--moe-top-k", "2", "--moe-ffn", "32",
         "--moe-shared", str(SHARED), "--dp", str(RANKS), "--ep", str(RANKS), "--global-batch-size", str(MICRO * RANKS),
         "--micro-batch-size", str(MICRO), "--strategy", "no_shard", "--moe-dispatch", "exchange"]
RATE = 1e12


def flags(on):
    return MODEL + ["--moe-shared-expert-overlap", "on" if on else "off"]


def with_links(slow, bandwidth, rate, devices):
    """A machine whose links have this bandwidth, and the rest of which takes the time of products alone."""
    link = {"bandwidth": bandwidth, "latency": 1e-9}
    return {"weft_machine": 1, "name": f"links {slow} times as slow as products",
            "device": {"memory": 1e12, "bf16": rate, "fp32": rate, "products": 1, "attention": 1, "bandwidth": 1e15, "launch": 0},
            "host": {"devices": devices, "background": True}, "inside": link, "network": link}


def machine(slow):
    """An exchange of every second token of the others takes `slow` times what the shared expert's products take forward."""
    products = 3 * 2 * MICRO * TOKENS * WIDTH * SHARED / RATE
    rows = MICRO * TOKENS * (RANKS - 1) / 2 * WIDTH * 4 * 2
    return with_links(slow, rows / (slow * products), RATE, RANKS)


def numbers(program, on):
    """Losses and digests of a run at this machine's own pace."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text")
        text.write_text(WORDS, encoding="utf-8")
        said = subprocess.run([program, "--arch", "llama", "--n-head", "4", "--eval-interval", "0", *flags(on), "--data", text, "--steps",
                               "3", "--digest"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"loss ([0-9.]+).*digest ([0-9a-f]+)", said)


def arguments(doc, seconds, *more):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("gpt_train", *more):
        parser.add_argument(name)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--allow", type=float, default=100)
    return parser.parse_args()


def compare(a, machine_of, flags, alike, on_is, off_is):
    """Times with overlap and without, of flags[on], on links of three speeds, in turns, beside plans; returns whether one fails."""
    failed = not alike
    print(f"losses and digests of three steps are {'alike' if alike else 'NOT alike'}")
    for slow in (.5, 1, 2):
        figures, took, said = machine_of(slow), {True: [], False: []}, {}
        for _ in range(a.turns):
            for on in (True, False):
                said[on], measured = paced.measure(a.gpt_train, flags[on], figures, a.seconds, WORDS)
                took[on].append(measured)
        best = {on: min(took[on]) for on in took}
        off = max(abs(said[on] / best[on] - 1) for on in best)
        print(f"links {slow:3} times as slow: {1e6 * best[True]:8.2f} us {on_is}, {1e6 * best[False]:8.2f} {off_is}, ratio "
              f"{best[True] / best[False]:.3f}; planned {1e6 * said[True]:8.2f} and {1e6 * said[False]:8.2f}, ratio "
              f"{said[True] / said[False]:.3f}; plans are off by {100 * off:.1f} %", flush=True)
        failed |= best[True] >= best[False] or 100 * off > a.allow
    return failed


def main():
    a = arguments(__doc__, .5)
    alike = numbers(a.gpt_train, True) == numbers(a.gpt_train, False)
    sys.exit(compare(a, machine, {on: flags(on) for on in (True, False)}, alike, "with overlap", "without"))


if __name__ == "__main__":
    main()
