#!/usr/bin/env python3
"""
gpu_choices.py [--runs N] [--seed N] [--jobs N] [--only N] [--plugins DIR] [BUILD] - gpt_train on emulated GPUs, whatever the
flags: runs of a tiny model in which every two values of two choices meet, of families, types, optimizers, adapters,
documents, steps that are skipped, grow or are followed by evaluations, layouts, graphs, transports and kinds of GPUs.

Each has to have the loss bits, norm, evaluations and digest of one rank of an emulated GPU of capability 8.0 that runs op by op,
whose losses are near those of the CPU; one that is not layout-exact, as it says, has losses near those of the one rank. Its plan
has to say what the run reports, to the byte; what a run refuses, its plan refuses in the same words; a checkpoint of it continues
on one rank, or one of one rank on it, to the same digest. Nothing may hang.

A line for each run that fails, with the command; last come the refusals, each with a number of a run, and counts. Status 1 where
something failed. --only N repeats run N of this seed; --runs N takes the first N of them.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import threading

from context_choices import write_documents
from gpu_draws import draw, environment_of, layout_flags, number_flags
from training_runs import ROOT, write_text

STEPS = 4  # op by op, captured, replayed, replayed again
LIMIT = 400  # seconds for a run of a second or so: it hangs
MODEL = "--lr 3e-3 --threads-per-rank 1 --stall-timeout 120".split()
COMPARED = ("loss_bits", "grad_norm", "val_loss", "skipped", "losses")


class Failed(Exception):
    """What is wrong with a run, with the command."""


class Refused(Exception):
    """What a run says that it does not do."""


def refusal(text):
    """What an error says, without the rank and the moment that a run adds."""
    line = (text.strip().splitlines() or [""])[-1]
    return re.sub(r"; it was on .*|; recorder_diff .*", "", re.sub(r"^gpt_train: (rank \d+(: |, ))?", "", line))


def near(steps, others, bound, whose, shown):
    """Raises Failed where losses are not near others."""
    for number, row in steps.items():
        loss, other = row[-1], others[number][-1]
        if None not in (loss, other) and abs(loss - other) > bound * abs(other):
            raise Failed(f"step {number}: loss {loss}, {whose} {other}: {shown}")


def skipped(steps, number):
    """Whether a step made no update: the second one, which is reported, has then no moves of one."""
    return steps[number][0][COMPARED.index("skipped")]


class Hunt:
    """Runs, in a folder."""
    def __init__(self, options, folder):
        self.program, self.plugins, self.folder = options.build / "apps/gpt_train", options.plugins, pathlib.Path(folder)
        write_text(self.folder / "text")
        self.data = {"documents": write_documents(self.folder / "text", self.folder / "documents.idx"),
                     "masked": write_documents(self.folder / "text", self.folder / "masked.idx")}
        tokens = (self.folder / "text").read_bytes()
        source = random.Random(7)
        (self.folder / "mask").write_bytes(bytes(source.random() < .6 for _ in tokens))
        write_documents(self.folder / "mask", self.folder / "masked.loss.idx")
        self.known, self.lock = {}, threading.Lock()
        self.counts = collections.Counter()

    def call(self, where, flags, device="cuda", **environment):
        """Its standard error; raises Refused or Failed."""
        where.mkdir(parents=True, exist_ok=True)
        command = [str(self.program), "--device", device, *flags]
        shown = shlex.join([*(f"{k}={v}" for k, v in environment.items()), *command])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=where, errors="replace",
                                  env=dict(os.environ, WEFT_PLUGINS=str(self.plugins), **environment))
        except subprocess.TimeoutExpired as error:
            raise Failed(f"no end after {LIMIT} s: {shown}") from error
        if done.returncode in (1, 2) and done.stderr.count("\ngpt_train: ") + done.stderr.startswith("gpt_train: ") >= 1 and refusal(done.stderr):
            raise Refused(refusal(done.stderr))
        if done.returncode:
            raise Failed(f"status {done.returncode}, '{done.stderr.strip()[-300:]}': {shown}")
        return done.stderr, shown

    def train(self, run, where, flags, environment, device="cuda"):
        """(its numbers, digest, loss) of each step, by number, and what was said."""
        log = where / "log"
        log.unlink(missing_ok=True)
        said, shown = self.call(where, ["--data", str(self.data[run["data"]]), *MODEL, *flags, "--steps", str(STEPS), "--log-jsonl", "log"], device, **environment)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        return {row["step"]: ([row.get(key) for key in COMPARED], row.get("digest"), row["loss"]) for row in rows if "step" in row}, said, shown

    def reference(self, run):
        """The steps of one rank of capability 8.0, op by op, with a checkpoint after the second."""
        kind = (tuple(number_flags(run)), run["data"], run["cudnn"])
        with self.lock:
            future = self.known.get(kind)
            mine = future is None
            if mine:
                future = self.known[kind] = concurrent.futures.Future()
                number = len(self.known)
        if mine:
            try:
                where = self.folder / f"one{number}"
                environment = {"WEFT_EMULATOR_CAPABILITY": "80"} | ({"WEFT_EMULATOR_CUDNN": str(run["cudnn"])} if run["cudnn"] else {})
                flags = number_flags(run)
                steps, _, shown = self.train(run, where, [*flags, "--cuda-graph", "off", "--digest", "--save", "saved", "--save-interval", "2"], environment)
                cpu, _, _ = self.train(run, where / "cpu", flags, {}, "cpu")
                near(steps, cpu, 2e-2 if "bf16" in run["dtype"] or "skip" in run["steps"] else 2e-3, "of the CPU", shown)
                future.set_result((steps, where, environment))
            except BaseException as error:  # pylint: disable=broad-except
                future.set_exception(error)
        return future.result()

    def compare(self, steps, wanted, shown, digests):
        """Raises Failed where steps are not those that are wanted."""
        for number, row in steps.items():
            mine, other = row[:2], wanted[number][:2]
            if mine[0] != other[0] or (digests and mine[1] != other[1]):
                raise Failed(f"step {number}: {', '.join(COMPARED)}, digest: {mine} instead of {other}: {shown}")

    def try_run(self, number, run):
        """What is wrong with a run, or None; refusals are words."""
        where = self.folder / str(number)
        environment, flags = environment_of(run), [*number_flags(run), *layout_flags(run)]
        ranks = run["tp"] * run["dp"] * int(run["pp"][0]) * int(run["cp"][0])
        digest, plan = ["--digest"] if run["digest"] else [], None
        transport = ["--transport", run["transport"].split()[0]] if ranks > 1 else []
        seen = ["--rank", str(number % ranks)]
        data = ["--data", str(self.data[run["data"]])]
        try:
            try:
                _, shown = self.call(where / "plan", [*data, *MODEL, *flags, *digest, "--steps", str(STEPS), "--plan", "--json", "plan.json", *seen], **environment)
                plan = json.loads((where / "plan/plan.json").read_text())
            except Refused as refused:
                plan = str(refused)
            more = ["--report-json", "ran.json", *seen]
            if run["checkpoint"].startswith("saved"):
                more += ["--save", "saved", "--save-interval", "2", *run["checkpoint"].split()[1:]]
            steps, said, shown = self.train(run, where, [*flags, *transport, *digest, *more], environment)
        except Refused as refused:
            self.counts["refused"] += 1
            if plan != str(refused):
                return f"the run is refused: '{refused}'; the plan: {plan if isinstance(plan, str) else 'ok'}: {shlex.join(flags)} {environment}", None
            return None, str(refused)
        if isinstance(plan, str):
            return f"runs, but its plan is refused: '{plan}': {shown}", None
        wanted, one, single = self.reference(run)
        exact = "not layout-exact" not in said
        self.counts["compared" if exact else "not layout-exact"] += 1
        if len(steps) != STEPS:
            return f"{len(steps)} rows of steps: {shown}", None
        if exact:
            self.compare(steps, wanted, shown, run["digest"])
        else:
            near(steps, wanted, 2e-2, "of one rank", shown)
        ran = json.loads((where / "ran.json").read_text())
        del plan["plan"]
        others = [key for key in sorted(plan.keys() | ran.keys()) if plan.get(key) != ran.get(key) and not skipped(steps, 2)]
        if others:
            return f"the plan has other {', '.join(f'{key}: {difference(plan.get(key), ran.get(key))}' for key in others)}: {shown}", None
        if exact and run["checkpoint"]:
            if run["checkpoint"] == "resumed":
                steps, _, shown = self.train(run, where / "on", [*flags, *transport, *digest, "--resume", str(one / "saved/step-00000002")], environment)
            else:
                steps, _, shown = self.train(run, where / "on", [*number_flags(run), "--digest", "--resume", str(where / "saved/step-00000002")], single)
            self.counts["continued"] += 1
            if sorted(steps) != [3, 4]:
                return f"continued with steps {sorted(steps)}: {shown}", None
            self.compare(steps, wanted, shown, run["digest"] or run["checkpoint"] != "resumed")
        return None, None

    def tried(self, number, run):
        """(problem, refusal) of a run, whatever happens in it."""
        try:
            return self.try_run(number, run)
        except Failed as failed:
            return str(failed), None
        except Refused as refused:
            return f"refused where it was not before: {refused}: {shlex.join([*number_flags(run), *layout_flags(run)])} {environment_of(run)}", None


def difference(one, other):
    """What differs between two values of JSON, shortly."""
    if isinstance(one, list) and isinstance(other, list):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]
        return "{" + ", ".join(f"{key}: {difference(one.get(key), other.get(key))}" for key in keys) + "}"
    return f"{json.dumps(one)[:200]} and {json.dumps(other)[:200]}"


def main():
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int)
    parser.add_argument("--plugins", type=pathlib.Path, help="default: BUILD/tests/cuda")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what runs write, which stays")
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.plugins = (options.plugins or options.build / "tests/cuda").resolve()
    runs = dict(enumerate(draw(options.seed, options.runs)))
    if options.only is not None:
        runs = {options.only: runs[options.only]}
    wrong, refused = 0, {}
    with tempfile.TemporaryDirectory(prefix="weft-gpu-choices-") as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            folder = options.keep.resolve()
        hunt = Hunt(options, folder)
        for (number, run), (problem, words) in zip(runs.items(), pool.map(hunt.tried, runs, runs.values())):
            if problem:
                wrong += 1
                print(f"run {number}: {problem}", flush=True)
            if words:
                refused.setdefault(re.sub(r"\d+", "N", words), []).append(number)
    for words, numbers in sorted(refused.items(), key=lambda item: -len(item[1])):
        print(f"{len(numbers)} refused, as run {numbers[0]}: {words}")
    print(f"{len(runs)} runs, {wrong} wrong: {', '.join(f'{count} {what}' for what, count in sorted(hunt.counts.items()))}; "
          f"{len(hunt.known)} kinds of one rank")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
