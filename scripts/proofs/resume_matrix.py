#!/usr/bin/env python3
"""
resume_matrix.py [--quick] [--pipeline] [--only VARIANT] [--gpt-train FILE] [--jobs N] - proves that a run may stop at
any step and resume on any mesh: saves on each of 12 layouts, resumes on each of the 12, and compares the digest of
every further step with that of a run that was never stopped.

    1; tp 2, 4, 8; dp 2, 4; tp 2 x dp 2; tp 8 x dp 4; full_shard; hybrid_shard; tp 3; dp 3
    --pipeline: 1; dp 4; and pp 2 and 4 with 1 and 2 stages a rank, schedules and strategies
    each pair with AdamW saved at once, SGD saved asynchronously, AdamW with bf16 weights, AdamW with all in bf16, Muon,
    adamw8bit saved asynchronously

All with dropout, accumulation and warmup; runs resume from each of 20 random steps, which alternate. Where a
layout of the pair is outside of the contract (tp 3, dp 3), its losses stay within 1e-4 (bf16 and adamw8bit: 2e-3) of those of
one rank; the digest is compared there too where both ends are the same layout, with a run of that
layout. --quick takes a pair for each layout that is gone on with, and 8 of 14 steps. The first difference ends it with
status 1.
"""
import argparse
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from training_runs import Failure, Progress, ROOT, TIMEOUT, all_of, first_difference, write_text

STEPS, RANDOM_STEPS = 30, 20
QUICK_STEPS, QUICK_RANDOM_STEPS = 14, 8  # beyond the warmup
CLOSE, CLOSE_BF16 = 1e-4, 2e-3  # of losses outside of the contract, where results have 24 bits, and 8 (or moments)
MODEL = ["--n-layer", "2", "--n-embd", "48", "--n-head", "12", "--vocab-size", "257", "--seq-len",
         "16", "--global-batch-size", "24", "--lr", "3e-3", "--warmup-steps", "10", "--dropout",
         "0.1", "--eval-interval", "0", "--threads-per-rank", "1", "--digest"]
# Micro-steps of every layout are a power of two, and more than one.
LAYOUTS = {
    "1": "--micro-batch-size 3",
    "tp 2": "--tp 2 --micro-batch-size 6",
    "tp 4": "--tp 4 --micro-batch-size 12",
    "tp 8": "--tp 8 --micro-batch-size 12",
    "dp 2": "--dp 2 --strategy no_shard --micro-batch-size 3",
    "dp 4": "--dp 4 --strategy zero1 --micro-batch-size 3",
    "tp 2 dp 2": "--tp 2 --dp 2 --micro-batch-size 6 --sequence-parallel",
    "tp 8 dp 4": "--tp 8 --dp 4 --micro-batch-size 3",
    "full_shard": "--dp 4 --strategy full_shard --micro-batch-size 3",
    "hybrid_shard": "--dp 4 --strategy hybrid_shard --shard-group-size 2 --micro-batch-size 3",
    "tp 3": "--tp 3 --micro-batch-size 6",
    "dp 3": "--dp 3 --micro-batch-size 4",
}
# The same for models of 8 steps, so that 4 ranks have two stages each.
PIPELINES = {
    "1": "--micro-batch-size 3",
    "dp 4": "--dp 4 --strategy full_shard --micro-batch-size 3",
    "pp 2": "--pp 2 --pp-schedule gpipe --micro-batch-size 3",
    "pp 4": "--pp 4 --pp-schedule zb-h1 --micro-batch-size 3",
    "pp 2 v 2": "--pp 2 --pp-schedule interleaved --pp-virtual 2 --micro-batch-size 3",
    "pp 4 v 2": "--pp 4 --pp-schedule zb-v --micro-batch-size 3",
    "pp 2 tp 2": "--pp 2 --tp 2 --pp-split 2,6 --sequence-parallel --micro-batch-size 6",
    "pp 2 no_shard": "--pp 2 --dp 2 --strategy no_shard --micro-batch-size 3",
    "pp 2 v 2 zero1": "--pp 2 --dp 2 --strategy zero1 --pp-schedule v-half --micro-batch-size 3",
    "pp 4 shard_grad_op": "--pp 4 --dp 2 --strategy shard_grad_op --micro-batch-size 3",
    "pp 2 tp 2 full_shard": "--pp 2 --tp 2 --dp 2 --strategy full_shard --micro-batch-size 6",
    "pp 4 v 2 full_shard": "--pp 4 --dp 2 --strategy full_shard --pp-schedule interleaved "
                           "--pp-virtual 2 --micro-batch-size 3",
    "pp 2 hybrid_shard": "--pp 2 --dp 4 --strategy hybrid_shard --shard-group-size 2 "
                         "--pp-schedule zb-h1 --micro-batch-size 3",
    "pp 2 v 2 hybrid_shard_zero2": "--pp 2 --dp 4 --strategy hybrid_shard_zero2 "
                                   "--shard-group-size 2 --pp-schedule zb-v --micro-batch-size 3",
}
PIPELINE_LAYERS = ["--n-layer", "6"]
INEXACT = ("tp 3", "dp 3")
VARIANTS = {
    "adamw": ["--optimizer", "adamw"],
    "sgd, async": ["--optimizer", "sgd"],
    "adamw, bf16 weights, async": ["--optimizer", "adamw", "--param-dtype", "bf16"],
    "adamw, bf16": ["--optimizer", "adamw", "--dtype", "bf16"],
    "muon": ["--optimizer", "muon"],
    "adamw8bit, async": ["--optimizer", "adamw8bit"],
}


class Runs:
    """Runs of gpt_train on one text."""

    def __init__(self, program, folder, steps):
        self.program = program
        self.steps = steps
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "text"
        self.number = itertools.count()
        write_text(self.data)

    def run(self, flags, first=1):
        """(loss bits, digest, loss) of each step from `first` on."""
        log = self.folder / f"{next(self.number)}.jsonl"
        command = [str(self.program), "--data", str(self.data), *MODEL, "--steps", str(self.steps), *flags,
                   "--log-jsonl", str(log)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, timeout=TIMEOUT, check=False)
        if done.returncode:
            raise Failure(f"status {done.returncode}: {' '.join(command)}\n{done.stderr}")
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        log.unlink()
        rows = [row for row in rows if "step" in row]
        if [row["step"] for row in rows] != list(range(first, self.steps + 1)):
            raise Failure(f"not steps {first} to {self.steps}: {' '.join(command)}")
        return [(row["loss_bits"], row["digest"], row["loss"]) for row in rows]


def compare(pair, got, whole, own, close):
    """Text about what is wrong with a run that was resumed; whole is of one rank, own of its layout."""
    if not set(pair) & set(INEXACT):
        return first_difference(got, whole)
    if pair[0] == pair[1]:
        return first_difference(got, own)
    for i, (mine, other) in enumerate(zip(got, whole)):
        if not abs(mine[2] - other[2]) <= close:
            return f"step {i + 1} after it: loss {mine[2]}, and {other[2]} on one rank"
    return None


def run_variant(runs, jobs, name, layouts, pairs, steps, count):
    """All pairs of one variant; count(pair) is called as each is found right."""
    flags = [*VARIANTS[name], *(PIPELINE_LAYERS if layouts is PIPELINES else [])]
    saves = runs.folder / "saves"
    saves.mkdir()
    saving = ["--save-interval", "1", "--keep", "0", "--async-save",
              "on" if "async" in name else "off"]
    sources = list(dict.fromkeys(source for source, _ in pairs))
    whole = runs.run([*flags, *layouts["1"].split()])
    own = {}

    def saved(source, got):
        own[source] = got
        if source not in INEXACT and first_difference(got, whole):
            raise Failure(f"{source}, saving: differs from one rank at "
                          f"{first_difference(got, whole)}")

    all_of(jobs, [(source, lambda s=source: runs.run(
        [*flags, *layouts[s].split(), "--save", str(saves / s.replace(" ", "_")), *saving]))
                  for source in sources], saved)
    tasks = {}
    for number, (source, target) in enumerate(pairs):
        step = steps[(number + number // len(steps)) % len(steps)]
        path = saves / source.replace(" ", "_") / f"step-{step:08d}"
        tasks[source, target] = (step, lambda p=path, t=target, s=step: runs.run(
            [*flags, *layouts[t].split(), "--resume", str(p)], s + 1))

    def done(pair, got):
        step = tasks[pair][0]
        wrong = compare(pair, got, whole[step:], own[pair[0]][step:],
                        CLOSE_BF16 if {"--dtype", "adamw8bit"} & set(flags) else CLOSE)
        if wrong:
            raise Failure(f"{pair[0]} -> {pair[1]}, saved after step {step}, {' '.join(flags)}: "
                          f"differs at {wrong}")
        count(pair)

    all_of(jobs, [(pair, task) for pair, (_, task) in tasks.items()], done)
    shutil.rmtree(saves)


def quick_pairs(layouts):
    """Each layout once, four of them as sources."""
    sources = (("pp 2 tp 2 full_shard", "pp 4 v 2", "1", "pp 2 v 2 zero1")
               if layouts is PIPELINES else ("tp 2 dp 2", "full_shard", "1", "tp 3"))
    return [(sources[i % len(sources)], target) for i, target in enumerate(layouts)]


def main():
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a pair each, AdamW alone")
    parser.add_argument("--pipeline", action="store_true", help="layouts with pipeline stages")
    parser.add_argument("--only", choices=VARIANTS, help="one variant")
    parser.add_argument("--gpt-train", type=pathlib.Path, default=ROOT / "build/apps/gpt_train",
                        help="default: build/apps/gpt_train")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="runs at a time")
    arguments = parser.parse_args()
    if not os.access(arguments.gpt_train, os.X_OK):
        sys.exit(f"there is no {arguments.gpt_train}: scripts/build.sh build makes it, or name "
                 f"another with --gpt-train")
    layouts = PIPELINES if arguments.pipeline else LAYOUTS
    pairs = (quick_pairs(layouts) if arguments.quick
             else list(itertools.product(layouts, layouts)))
    variants = ([arguments.only] if arguments.only
                else list(VARIANTS)[:1] if arguments.quick else list(VARIANTS))
    most, several = (QUICK_STEPS, QUICK_RANDOM_STEPS) if arguments.quick else (STEPS, RANDOM_STEPS)
    steps = sorted(random.Random(1).sample(range(1, most), several))
    progress = Progress(len(pairs) * len(variants))
    with tempfile.TemporaryDirectory(prefix="weft-resume-") as folder:
        runs = Runs(arguments.gpt_train.resolve(), folder, most)
        try:
            for name in variants:
                exact = sum(not set(pair) & set(INEXACT) for pair in pairs)
                run_variant(runs, arguments.jobs, name, layouts, pairs, steps,
                            lambda pair, n=name: progress.step(f"{n}: {pair[0]} -> {pair[1]}"))
                print(f"\n{name}: {len(pairs)} of {len(pairs)} pairs: {exact} with equal digests "
                      f"at every step, {len(pairs) - exact} outside of the contract", flush=True)
        except Failure as failure:
            sys.exit(f"\nFAILED: {failure}")
    print(f"gone on from {several} random steps of {most}; {progress.seconds():.0f} s")


if __name__ == "__main__":
    main()
