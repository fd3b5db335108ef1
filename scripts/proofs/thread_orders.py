#!/usr/bin/env python3
"""
thread_orders.py [--seeds N] [--first SEED] [--only SEED ..] [--tests N] [--once-failed] [--jobs N] [BUILD] - runs whose
ranks are threads, each in another order of these threads. The order is a function of the seed
(tests/scheduler/scheduler_internal.h), and so is what is run: a layout, a schedule, saves, ranks that are lost, once,
twice or two at a time, while the run continues without them, or one that fails otherwise. So a failure is reproduced
by its seed, as often as one likes, under a debugger too.

A run passes when it ends in virtual time, with the digests of one rank or with one line that says what failed. A deadlock is
found by the scheduler: no thread can run, and none waits for a moment. Status 1 with the seeds that failed.

--tests N runs each of the tests that are linked for it with N seeds as well; --once-failed the orders that have found a failure
(tests/scheduler/once_failed.txt), which has been mended.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from failure_cases import EXPECT
from training_runs import Failure, ROOT, write_text

STOPPED = 75  # the status of a run that was asked to end, and has saved
ONCE_FAILED = ROOT / "tests/scheduler/once_failed.txt"
NOTHING_LEFT = re.compile(r"no rank that is left has the .*there is no checkpoint to continue from")
LIMIT = 120  # seconds of this machine's time, for a run of half a second
STEPS = 4
MODEL = ["--n-layer", "2", "--n-head", "4", "--n-embd", "16", "--seq-len", "16", "--global-batch-size", "8",
         "--micro-batch-size", "1", "--vocab-size", "256", "--eval-interval", "2", "--eval-iters", "1", "--device", "cpu",
         "--steps", str(STEPS), "--digest", "--lr", "3e-3"]
MODELS = ([], ["--dropout", "0.1"], ["--arch", "llama"], ["--dtype", "bf16"])
STRATEGIES = ("no_shard", "zero1", "shard_grad_op", "full_shard", "hybrid_shard --dp-replicate 2")
COPIES = ("no_shard", "hybrid_shard --dp-replicate 2", "full_shard --redundancy buddy", "shard_grad_op --redundancy buddy")
PHASES = {"leave": ("forward", "all_gather", "optimizer"), "nonfinite": ("forward",), "read": ("forward",),
          "mismatch": ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"), "full": ("save",),
          "stall": ("init", "forward", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "optimizer")}


class Case:
    """What is run with a seed, or what a line of once_failed.txt says."""

    def __init__(self, seed, line=None):
        if line:
            seed, self.kind, *words = (part.strip() for part in line.split("|"))
            self.seed = int(seed)
            self.fault, self.model, self.flags = (part.split() for part in words)
            return
        choose = random.Random(seed)
        self.seed = seed
        self.model = choose.choice(MODELS)
        self.kind = choose.choice(("train", "train", "lose", "lose", "fail", "stop"))
        tp, dp = choose.choice(((1, 2), (2, 2), (1, 4), (4, 2), (2, 4), (1, 8)))
        self.ranks, self.fault, flags = tp * dp, [], ["--tp", tp, "--dp", dp]
        strategy = choose.choice(COPIES if self.kind == "lose" else STRATEGIES)
        flags += ["--strategy", *(strategy if dp > 2 or "hybrid" not in strategy else "no_shard").split()]
        if tp > 1 and choose.random() < 0.5:
            flags.append("--sequence-parallel")
        if choose.random() < 0.3 and self.kind != "fail" and "zero1" not in strategy:
            flags += ["--pp", 2, "--pp-schedule", choose.choice(("1f1b", "gpipe"))]
            self.ranks *= 2
        if choose.random() < 0.3:
            flags += ["--save", "run", "--save-interval", 1, "--async-save", choose.choice(("on", "off")),
                      "--checkpoint", choose.choice(("full", "sharded"))]
        flags += ["--threads-per-rank", choose.choice((1, 1, 2))]
        getattr(self, self.kind)(choose, flags)
        self.flags = [str(flag) for flag in flags]

    def train(self, choose, flags):
        pass

    def lose(self, choose, flags):
        self.fault = ["vanish", "step", choose.randrange(self.ranks), choose.randint(1, 3)]
        how = choose.random()
        if how < 0.3:
            self.fault.append("EVERY=1")
        elif how < 0.6 and "--save" in flags:
            self.fault.append(f"WITH={choose.randrange(self.ranks)}")
        flags += ["--elastic", "on"]
        if choose.random() < 0.5:
            flags += ["--rejoin-after", 1]
        if choose.random() < 0.3:
            flags += ["--sample", 4]

    def stop(self, choose, flags):
        self.fault = ["term", "forward", choose.randrange(self.ranks), choose.randint(1, 3)]
        if "--save" not in flags:
            flags += ["--save", "run", "--save-interval", 2]

    def fail(self, choose, flags):
        action = choose.choice(sorted(PHASES))
        phase = choose.choice(PHASES[action])
        self.fault = [action, phase, choose.randrange(self.ranks), 0 if phase == "init" else choose.randint(1, 3)]
        flags += ["--stall-timeout", 2]
        if action == "full":
            flags += ["--save", "run", "--save-interval", STEPS, "--async-save", "off", "--checkpoint", "sharded"]

    def environment(self):
        fault = " ".join(map(str, self.fault[:4]))
        more = {f"WEFT_FAULT_{name}": value for name, value in (word.split("=") for word in self.fault[4:])}
        return {"WEFT_SCHEDULER": str(self.seed), **({"WEFT_FAULT": fault, "WEFT_FAULT_MS": "3", **more} if fault else {})}

    def command(self, program, where):
        return [str(program), "--data", str(where / "text"), *MODEL, *self.model, *self.flags, "--log-jsonl", "log"]

    def reported(self):
        settings = " ".join(f"{name}='{value}'" for name, value in self.environment().items())
        return f"seed {self.seed}: {settings} gpt_train_scheduled {' '.join(MODEL + self.model + self.flags)}"


def rows_of(folder):
    return [row for row in map(json.loads, (folder / "log").read_text().splitlines()) if "step" in row]


def judge_failure(case, done):
    """A run that fails says so in one line, with the status of what happened."""
    expected, status = EXPECT[case.fault[0]]
    lines = [line for line in done.stderr.splitlines() if line.startswith("gpt_train: ")]
    if done.returncode == 0 and "all_to_all" in case.fault:
        return None  # a collective of which this layout makes none
    if done.returncode != status:
        return f"status {done.returncode}, not {status}"
    if len(lines) != 1:
        return f"{len(lines)} lines say what happened"
    if not re.search(expected.replace("RANK", str(case.fault[2])), lines[0]):
        return f"'{expected}' is not said"
    return None


def judge_end(case, done, folder, expected):
    if case.fault[4:] and done.returncode == 3 and NOTHING_LEFT.search(done.stderr):
        return None  # what a rank held was nowhere else, and no checkpoint was there yet
    if done.returncode != 0:
        return f"status {done.returncode}"
    rows = rows_of(folder)
    if [row["step"] for row in rows] != list(range(1, STEPS + 1)):
        return f"steps {[row['step'] for row in rows]} were logged"
    if [row["digest"] for row in rows] != expected:
        return "other digests than one rank's"
    return None


def run(command, folder, environment):
    return subprocess.run(command, cwd=folder, text=True, errors="replace", capture_output=True, timeout=LIMIT,
                          env=dict(os.environ, TMPDIR=str(folder), **environment))


def trial(options, where, expected, case):
    """None, or what went wrong."""
    program = options.build / "tests/scheduler/gpt_train_scheduled"
    with tempfile.TemporaryDirectory(dir=where) as folder:
        folder = pathlib.Path(folder)
        try:
            done = run(case.command(program, where), folder, case.environment())
            if case.kind == "stop" and done.returncode == STOPPED:  # and gone on with, in another order
                done = run(case.command(program, where), folder, {"WEFT_SCHEDULER": str(case.seed + 1)})
        except subprocess.TimeoutExpired:
            return f"{case.reported()}\n    it has not ended after {LIMIT} s"
        if case.kind == "fail":
            wrong = judge_failure(case, done)
        else:
            wrong = judge_end(case, done, folder, expected[tuple(case.model)])
    return wrong and f"{case.reported()}\n    {wrong}\n{done.stderr}"


def trial_of_test(where, program, seed):
    with tempfile.TemporaryDirectory(dir=where) as folder:
        try:
            done = run([str(program)], folder, {"WEFT_SCHEDULER": str(seed)})
        except subprocess.TimeoutExpired:
            return f"WEFT_SCHEDULER={seed} {program.name}: it has not ended after {LIMIT} s"
    return f"WEFT_SCHEDULER={seed} {program.name}: status {done.returncode}\n{done.stdout}{done.stderr}" if done.returncode else None


def digests_of(options, where, model):
    """The digests of one rank, of the program as it is."""
    done = subprocess.run([options.build / "apps/gpt_train", "--data", where / "text", *MODEL, *model, "--log-jsonl", "log"],
                          cwd=where, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        raise Failure(done.stderr)
    digests = [row["digest"] for row in rows_of(where)]
    (where / "log").unlink()
    return digests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", default=None, help="these seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--tests", type=int, default=0, help="orders of each test")
    parser.add_argument("--once-failed", action="store_true")
    options = parser.parse_args()
    options.build = options.build.resolve()
    seeds = options.only or range(options.first, options.first + options.seeds)
    cases = [Case(seed) for seed in seeds]
    if options.once_failed:
        cases += [Case(0, line) for line in ONCE_FAILED.read_text().splitlines() if line.strip() and line[0] != "#"]
    tests = [(program, seed) for program in sorted((options.build / "tests/scheduler").glob("scheduled_test_*"))
             for seed in range(options.first, options.first + options.tests)]
    wrong = 0
    with tempfile.TemporaryDirectory() as where, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        where = pathlib.Path(where)
        write_text(where / "text")
        expected = {tuple(model): digests_of(options, where, model) for model in MODELS}
        said = itertools.chain(pool.map(lambda case: trial(options, where, expected, case), cases),
                               pool.map(lambda test: trial_of_test(where, *test), tests))
        for text in filter(None, said):
            wrong += 1
            print(f"thread_orders.py: {text}", file=sys.stderr, flush=True)
    count = len(cases) + len(tests)
    print(f"{count} orders of threads: {count - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
