#!/usr/bin/env python3
"""
calibrated.py GPT_TRAIN [--turns N] [--allow PERCENT] [--state FILE [--most SECONDS]] - real compute on this machine, beside what a plan says of it by figures
that were measured right before it: gpt_train --calibrate, then --plan --machine and a run, for layouts of two ranks.

All layouts run in rounds, each time with a calibration of its own, and of a layout the round with the middle error
counts: this machine is a third slower for half a minute now and then, which hits a run and not its calibration, or
the other way round. Prints that of each, and the median and the largest error. Nothing else should run meanwhile.
With --state FILE a run continues where the last one was cut off, and --most SECONDS ends it by itself.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import slices

MODELS = [["--n-layer", "4", "--n-embd", "256", "--n-head", "4", "--seq-len", "128"],
          ["--n-layer", "6", "--n-embd", "384", "--n-head", "6", "--seq-len", "256"]]
LAYOUTS = [["--pp", "2"], ["--pp", "2", "--pp-schedule", "zb-h1"], ["--dp", "2"],
           ["--dp", "2", "--strategy", "no_shard"], ["--tp", "2"], ["--tp", "2", "--sequence-parallel"]]
STEPS = 6


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


def measure(program, folder, model, layout, machine):
    plan, log, text = (os.path.join(folder, name) for name in ("plan.json", "log.jsonl", "text"))
    flags = [*model, *layout, "--arch", "llama", "--micro-batch-size", "2", "--global-batch-size", "16", "--eval-interval",
             "0", "--accumulate", "local"]
    run([program, "--plan", *flags, "--machine", machine, "--json", plan])
    simulated = json.load(open(plan, encoding="utf-8"))["plan"]["time"]["seconds"]
    pathlib.Path(log).unlink(missing_ok=True)
    run([program, *flags, "--data", text, "--steps", str(STEPS), "--log-jsonl", log])
    rows = [json.loads(line) for line in open(log, encoding="utf-8")]
    return simulated, statistics.median(row["ms"] for row in rows if row.get("step", 0) > 1) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpt_train")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--allow", type=float)
    slices.add_arguments(parser)
    a = parser.parse_args()
    done = slices.Done(a)
    cases = [(model, layout) for model in MODELS for layout in LAYOUTS]
    found = [[] for _ in cases]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "text").write_text("All happy families are alike. " * 20000, encoding="utf-8")
        machine = os.path.join(folder, "machine.json")

        def one(model, layout):
            run([a.gpt_train, "--calibrate", machine, "--arch", "llama", "--micro-batch-size", "2", *model])
            return measure(a.gpt_train, folder, model, layout, machine)

        for turn in range(a.turns):
            for i, case in enumerate(cases):
                found[i].append(done.once([turn, i], lambda case=case: one(*case)))
    errors = []
    for (model, layout), turns in zip(cases, found):
        simulated, measured = sorted(turns, key=lambda pair: pair[0] / pair[1])[len(turns) // 2]
        errors.append(100 * (simulated / measured - 1))
        print(f"{errors[-1]:+6.1f} %  {1e3 * simulated:8.1f} ms simulated {1e3 * measured:8.1f} measured  "
              f"{' '.join(model + layout)}", flush=True)
    sizes = sorted(abs(e) for e in errors)
    print(f"{len(sizes)} runs: median {statistics.median(sizes):.1f} %, worst {sizes[-1]:.1f} %")
    sys.exit(a.allow is not None and statistics.median(sizes) > a.allow)


if __name__ == "__main__":
    main()
