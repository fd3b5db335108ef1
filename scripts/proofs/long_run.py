#!/usr/bin/env python3
"""
long_run.py [BUILD] [--tokens N] [--steps N] - one long sequence on ranks that split its tokens, beside one rank.

A Llama of one layer with 8 heads of 8 features trains 3 steps of 131,072 tokens of bytes, attention over all of them: on one rank, and on
8 that split tokens, once with heads for tokens and once with keys that are gathered. Losses, digests and memory of each are printed. The
bits of every step have to be those of one rank, and the memory of the last rank, its peak and each kind of it, and its collectives those
that --plan says. Status 1 where they are not, or where with heads for tokens a rank of 8 has more than 1.05 eighths of the activations of
one; gathered keys are whole on each rank. Time goes with the square of --tokens: at 131,072 a quarter of an hour of one core, at 16,384 14 s.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from training_runs import ROOT, write_text

RANKS = 8
MODEL = ["--arch", "llama", "--n-layer", "1", "--n-head", "8", "--n-embd", "64", "--vocab-size", "256", "--global-batch-size", "1",
         "--eval-interval", "0", "--val-fraction", "0", "--digest"]
LAYOUTS = {"one rank": ["--threads-per-rank", "2"],
           "heads for tokens": ["--cp", str(RANKS), "--cp-form", "heads", "--threads-per-rank", "1"],
           "gathered keys": ["--cp", str(RANKS), "--cp-form", "gather", "--threads-per-rank", "1"]}


def call(command):
    """Runs a command; ends the script where it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"long_run.py: {' '.join(map(str, command))}: {done.stderr.strip()[-400:]}")


def train(command, folder):
    """Plans a layout and trains on it: (loss bits, digest) of each step, what was planned of a rank, and what it took."""
    plan, ran, log = (folder / name for name in ("plan.json", "ran.json", "log.jsonl"))
    log.unlink(missing_ok=True)
    call([*command, "--plan", "--json", plan])
    call([*command, "--log-jsonl", log, "--report-json", ran])
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return [(row["loss_bits"], row["digest"]) for row in rows if "step" in row], *(json.loads(f.read_text()) for f in (plan, ran))


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--steps", type=int, default=3)
    asked = parser.parse_args()
    wrong, of_one = [], None
    with tempfile.TemporaryDirectory(prefix="weft-long-") as folder:
        text = pathlib.Path(folder) / "text"
        write_text(text)
        for name, layout in LAYOUTS.items():
            begin = time.monotonic()
            last = ["--rank", RANKS - 1] if "--cp" in layout else []
            steps, plan, ran = train([asked.build / "apps/gpt_train", "--data", text, *MODEL, "--seq-len", asked.tokens, "--steps",
                                      asked.steps, *layout, *last], pathlib.Path(folder))
            of_one = of_one or (steps, ran["memory"]["most"]["activations"])
            share = ran["memory"]["most"]["activations"] / of_one[1]
            print(f"{name:16}  {time.monotonic() - begin:5.0f} s  digest {steps[-1][1]}  planned {plan['memory']['peak']}  "
                  f"took {ran['memory']['peak']} bytes, of activations {share:.4f} of one rank's", flush=True)
            wrong += [f"{name}: other bits than one rank"] if steps != of_one[0] else []
            wrong += [f"{name}: {key} is not as planned" for key in ("memory", "collectives") if plan[key] != ran[key]]
            wrong += [f"{name}: activations do not fall as ranks rise"] if "heads" in layout and share > 1.05 / RANKS else []
    print("\n".join(wrong) or f"{asked.steps} steps of {asked.tokens} tokens: one digest, and memory and traffic as planned")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
