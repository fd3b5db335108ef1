#!/usr/bin/env python3
"""
plan_runs.py [--runs N] [--seed N] [--gpt-train FILE] [--jobs N] - holds --plan against runs: random layouts of a small
model, each planned and trained for two steps.

What runs has to be planned, and what a run refuses a plan has to refuse with the same words. Of what runs, each other
strategy that the plan lists as possible has to run too, and each that it lists as refused has to be refused by a run (every
8th layout). The first lines of the output are what differs, with the command; the status is 1 then.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from training_runs import HYBRID, ROOT, SCHEDULES, UNGROUPED, write_text

MODEL = ["--n-layer", "3", "--n-embd", "48", "--n-head", "6", "--seq-len", "16", "--eval-interval", "0"]
# A flag, how often it is given, and its values.
CHOICES = (
    ("--arch", 1, ("gpt2", "llama", "qwen3", "gemma", "olmo2")),
    ("--n-kv-head", .1, (2, 3)),
    ("--dp", .8, (1, 2, 3, 4, 5, 6)),
    ("--tp", .5, (1, 2, 3, 4, 5, 6, 7)),
    ("--pp", .3, (1, 2, 3, 4)),
    ("--strategy", .7, (*UNGROUPED, *HYBRID)),
    ("--dp-replicate", .1, (2, 3)),
    ("--shard-group-size", .1, (2, 3)),
    ("--global-batch-size", 1, (1, 2, 3, 4, 6, 8, 12, 16)),
    ("--micro-batch-size", .2, (1, 2, 3)),
    ("--accumulate", .3, ("auto", "local", "reduced", "group:1", "group:2")),
    ("--recompute", .4, ("none", "block", "attention", "stage")),
    ("--dtype", .3, ("fp32", "bf16")),
    ("--param-dtype", .1, ("fp32", "bf16")),
    ("--reduce-dtype", .2, ("fp32", "bf16")),
    ("--optimizer", .3, ("adamw", "adamw8bit", "sgd", "muon")),
    ("--redundancy", .1, ("none", "buddy")),
    ("--wrap-type", .2, ("block", "attention", "mlp")),
    ("--wrap-min-params", .05, (1, 5000)),
    ("--prefetch", .2, (0, 1, 3)),
    ("--reshard-after-forward", .2, ("default", "always", "never")),
    ("--exact", .15, ("off",)),
    ("--lora-rank", .15, (1, 2)),
    ("--base-dtype", .03, ("nf4",)),
    ("--freeze", .1, ("embed", "block.*.mlp", "norm")),
    ("--tie-embeddings", .1, ("on", "off")),
    ("--dropout", .1, (.1,)),
    ("--sliding-window", .03, (4,)),
    ("--save", .03, ("saved",)),
)
PIPELINE = (("--pp-schedule", .7, tuple(SCHEDULES)), ("--pp-virtual", .15, (1, 2, 3)), ("--pp-resident", .1, (1, 2)),
            ("--pp-depth", .1, (1, 2)), ("--pp-send", .03, ("whole", "split")))


def draw(source):
    """The flags of a layout."""
    flags = []
    for flag, share, values in CHOICES:
        if source.random() < share:
            flags += [flag, str(source.choice(values))]
    if any(name in flags for name in HYBRID) and not {"--dp-replicate", "--shard-group-size"} & set(flags):
        flags += [source.choice(("--dp-replicate", "--shard-group-size")), str(source.choice((1, 2, 3)))]
    if "--pp" in flags:
        for flag, share, values in PIPELINE:
            if source.random() < share:
                flags += [flag, str(source.choice(values))]
    tp = int(flags[flags.index("--tp") + 1]) if "--tp" in flags else 1
    if source.random() < (.15 if tp > 1 else .02):  # a run of one rank of --tp refuses both
        flags.append("--sequence-parallel")
    if source.random() < (.3 if tp > 1 else .02):
        flags += ["--tp-comm-overlap", "on", "--tp-comm-block", "1"]
    return flags


def refusal(done):
    """What an error says, without the rank and the moment that a run adds."""
    text = (done.stderr.strip().splitlines() or [""])[-1]
    text = re.sub(r"^gpt_train: (rank \d+: )?", "", text)
    return re.sub(r"; it was on .*|; recorder_diff .*", "", text)


class Comparison:
    """Layouts that are planned and run."""

    def __init__(self, program, folder, steps):
        self.program, self.folder, self.steps = program, pathlib.Path(folder), steps
        self.counts = {"run": 0, "refused": 0, "strategies": 0}
        write_text(self.folder / "text")

    def call(self, flags, number):
        """The program with these flags, in a folder of its own."""
        here = self.folder / str(number)
        here.mkdir(exist_ok=True)
        return subprocess.run([self.program, "--data", self.folder / "text", *MODEL, "--steps", str(self.steps), *flags],
                              capture_output=True, text=True, timeout=300, check=False, cwd=here)

    def strategies(self, flags, plan, number):
        """What differs between the strategies that a plan lists and runs of them."""
        for other in plan["plan"]["strategies"]:
            kept = list(flags)
            for flag in ("--strategy", *(() if "groups" in other.get("refused", "") else
                                         ("--dp-replicate", "--shard-group-size"))):
                if flag in kept and (flag == "--strategy" or other["name"] not in HYBRID):
                    del kept[kept.index(flag):kept.index(flag) + 2]
            done = self.call([*kept, "--strategy", other["name"]], number)
            self.counts["strategies"] += 1
            if done.returncode == 0 and "refused" in other:
                return f"--strategy {other['name']} runs, and is refused: {other['refused']}"
            if done.returncode and other.get("refused") != refusal(done):
                return f"--strategy {other['name']} is refused: {refusal(done)}; its row: {other}"
        return None

    def compare(self, number, flags):
        """What differs between plan and run of a layout, or None."""
        planned = self.call([*flags, "--plan", "--json", "plan.json"], f"{number}p")
        ran = self.call(flags, number)
        if (planned.returncode == 0) != (ran.returncode == 0):
            return "; ".join(f"the {name}: {refusal(done) if done.returncode else 'ok'}"
                             for name, done in (("run", ran), ("plan", planned)))
        if ran.returncode:
            self.counts["refused"] += 1
            if "\ngpt_train: " not in "\n" + ran.stderr or refusal(ran) != refusal(planned):
                return f"the run: {refusal(ran)}; the plan: {refusal(planned)}"
            return None
        self.counts["run"] += 1
        plan = json.loads((self.folder / f"{number}p" / "plan.json").read_text())
        return self.strategies(flags, plan, f"{number}s") if number % 8 == 0 else None


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split(" - ")[1].split("\n\n", maxsplit=1)[0])
    parser.add_argument("--gpt-train", default=ROOT / "build/apps/gpt_train", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    source, wrong = random.Random(asked.seed), 0
    layouts = [draw(source) for _ in range(asked.runs)]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        compared = Comparison(asked.gpt_train.resolve(), folder, 2)
        for flags, problem in zip(layouts, pool.map(compared.compare, range(len(layouts)), layouts)):
            if problem:
                wrong += 1
                print(f"{' '.join(flags)}\n  {problem}", flush=True)
    print(f"{len(layouts)} layouts: {compared.counts['run']} ran and were planned, {compared.counts['refused']} were "
          f"refused by both, {wrong} differ; {compared.counts['strategies']} other strategies")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
