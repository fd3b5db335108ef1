#!/usr/bin/env python3
"""
giants.py [--gpt-train FILE] [--device cpu|cuda] [--jobs N] - plans of a model that is too large to run here, and of
a small one of the same shape, which is run.

    a Llama of 405 billion parameters in bf16, tp 8, sequence parallel, blocks recomputed in backward:
        dp 8, 16, 32, 64, 128 x micro-batches of 1, 2, 3, 4, 5, 6, 8      35 plans, all to succeed
        --find-batch for each dp in 80 GiB and in 320 GiB                 what it finds has to fit,
                                                                          one sequence more not
    the same flags for a model of the same shape and some 400,000 parameters:
        dp 1, 2, 4 x those micro-batches x accumulation x evaluation between the steps or not x
        full_shard, zero1 and hybrid_shard                 the plan of each rank asked for is what
                                                           the run reports of it, to the byte

A plan for cuda asks the plugin ($WEFT_PLUGINS) and no GPU; runs are on the CPU. The first that is
wrong ends it with status 1.
"""
import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from training_runs import Failure, Progress, ROOT, TIMEOUT, all_of, write_text

COMMON = ["--arch", "llama", "--tp", "8", "--dtype", "bf16", "--sequence-parallel", "--recompute",
          "block"]
GIANT = COMMON + ["--n-layer", "126", "--n-head", "128", "--n-kv-head", "8", "--n-embd", "16384",
                  "--ffn", "53248", "--vocab-size", "128256", "--seq-len", "8192"]
SMALL = COMMON + ["--n-layer", "3", "--n-head", "16", "--n-kv-head", "4", "--n-embd", "64", "--ffn",
                  "208", "--vocab-size", "501", "--seq-len", "32", "--steps", "2", "--eval-iters",
                  "2", "--device", "cpu", "--threads-per-rank", "1"]
MICRO_BATCHES = (1, 2, 3, 4, 5, 6, 8)
GIANT_DP, SMALL_DP = (8, 16, 32, 64, 128), (1, 2, 4)
ROOMS = ("80GiB", "320GiB")
STRATEGIES = {"full_shard": [], "zero1": [], "hybrid_shard": ["--shard-group-size", "2"]}


class Plans:
    """Calls of gpt_train in a folder of their own."""

    def __init__(self, program, device, folder):
        self.program, self.device, self.folder = program, device, pathlib.Path(folder)
        self.number = itertools.count()
        write_text(self.folder / "text")

    def call(self, *flags):
        """What it prints; raises Failure with the command that failed."""
        command = [str(self.program), *flags]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{' '.join(command)}\nhas no end after {TIMEOUT} s") from error
        if done.returncode:
            raise Failure(f"{' '.join(command)}\nends with {done.returncode}: {done.stderr}")
        return done.stdout

    def json(self, key, *flags):
        """What it writes with --json or --report-json."""
        file = self.folder / f"{next(self.number)}.json"
        self.call(key, str(file), *flags)
        report = json.loads(file.read_text())
        file.unlink()
        return report

    def giant(self, dp, micro, *flags):
        """The plan of one rank of many."""
        return self.json("--json", "--plan", "--device", self.device, *GIANT, "--dp", str(dp),
                         "--micro-batch-size", str(micro), "--global-batch-size",
                         str(dp * micro), *flags)

    def batch_that_fits(self, dp, room):
        """--find-batch, and plans of what it says and of one sequence more."""
        found = self.giant(dp, 1, "--find-batch", "--device-memory", room)
        micro = found["batch"]["micro"]
        if found["plan"]["fits"] != self.giant(dp, micro, "--device-memory", room)["plan"]["fits"]:
            raise Failure(f"dp {dp}: --find-batch says {micro} in {room}, and its plan does not")
        if self.giant(dp, micro + found["plan"]["fits"], "--device-memory", room)["plan"]["fits"]:
            raise Failure(f"dp {dp}: {micro} is not the largest micro-batch in {room}")

    def compare(self, dp, micro, micros, evaluation, strategy):
        """The plan of a run's last rank, or its first, and what the run reports of it."""
        flags = SMALL + ["--dp", str(dp), "--micro-batch-size", str(micro), "--global-batch-size",
                         str(dp * micro * micros), "--eval-interval", str(evaluation),
                         "--strategy", strategy, *STRATEGIES[strategy]]
        if micro % 2:
            flags += ["--rank", "0"]
        plan = self.json("--json", "--plan", *flags)
        ran = self.json("--report-json", "--data", str(self.folder / "text"), *flags)
        del plan["plan"]
        if plan != ran:
            keys = [key for key in ran if plan.get(key) != ran[key]]
            raise Failure(f"gpt_train {' '.join(flags)}\nthe plan has other {', '.join(keys)}: "
                          f"{[plan.get(key) for key in keys]} and {[ran[key] for key in keys]}")


def tasks_of(plans):
    """(what it is, what is to be done)"""
    for dp, micro in itertools.product(GIANT_DP, MICRO_BATCHES):
        yield f"405B, dp {dp}, {micro} sequences", lambda d=dp, m=micro: plans.giant(d, m)
    for dp, room in itertools.product(GIANT_DP, ROOMS):
        yield (f"405B, dp {dp}, what fits in {room}",
               lambda d=dp, r=room: plans.batch_that_fits(d, r))
    for run in itertools.product(SMALL_DP, MICRO_BATCHES, (1, 2), (0, 1), STRATEGIES):
        if run[0] > 1 or run[-1] == "full_shard":
            yield f"small, dp {run[0]}, {run[-1]}", lambda r=run: plans.compare(*r)


def main():
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt-train", type=pathlib.Path, default=ROOT / "build/apps/gpt_train",
                        help="default: build/apps/gpt_train")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="of the plans of the giant (default: cpu)")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="runs at a time")
    arguments = parser.parse_args()
    if not os.access(arguments.gpt_train, os.X_OK):
        sys.exit(f"there is no {arguments.gpt_train}: scripts/build.sh build makes it, or name "
                 f"another with --gpt-train")
    with tempfile.TemporaryDirectory(prefix="weft-giants-") as folder:
        plans = Plans(arguments.gpt_train.resolve(), arguments.device, folder)
        tasks = list(tasks_of(plans))
        progress = Progress(len(tasks))
        try:
            all_of(arguments.jobs, tasks, lambda what, _: progress.step(what))
        except Failure as failure:
            sys.exit(f"\nFAILED: {failure}")
    print(f"{len(GIANT_DP) * len(MICRO_BATCHES)} plans of 405 billion parameters, "
          f"{len(GIANT_DP) * len(ROOMS)} batches found, {len(tasks)} cases in all; "
          f"{progress.seconds():.0f} s")


if __name__ == "__main__":
    main()
