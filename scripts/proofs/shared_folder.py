#!/usr/bin/env python3
"""
shared_folder.py [--trials N] [--seed S] [BUILD] - two or three runs with one --save and one --log-jsonl, begun within 0.3 s of each
other: one trains to its end, the others say who saves there and end with status 8, every checkpoint that is left is
whole, and the log has each step once, in order. Status 1 with the first trial in which it is not so.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from training_runs import Failure, ROOT, write_text

STEPS = 60
MODEL = ["--n-layer", "1", "--n-head", "4", "--n-embd", "16", "--seq-len", "16", "--global-batch-size", "4", "--steps", str(STEPS),
         "--eval-interval", "0", "--digest", "--threads-per-rank", "1", "--save-interval", "7"]
REFUSED = re.compile(r"another run saves to \S+ \(process \d+\)")


def trial(build, folder, random_):
    """Begins the runs, and judges what they leave."""
    command = [build / "apps/gpt_train", "--data", folder.parent / "text", *MODEL, *random_.choice(([], ["--dp", "2"], ["--tp", "2"])),
               "--save", folder / "run", "--log-jsonl", folder / "log"]
    runs = []
    for _ in range(random_.choice((2, 2, 3))):
        runs.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        time.sleep(random_.choice((0, 0, 0.01, 0.05, 0.1, 0.3)))
    ends = [(run.communicate()[1], run.returncode) for run in runs]
    if sorted(status for _, status in ends) != [0] + [8] * (len(runs) - 1):
        raise Failure(f"they end with {ends}")
    if not all(status == 0 or REFUSED.search(said) for said, status in ends):
        raise Failure(f"it is not said who saves there: {ends}")
    steps = [row["step"] for row in map(json.loads, (folder / "log").read_text().splitlines()) if "step" in row]
    if steps != list(range(1, STEPS + 1)):
        raise Failure(f"the log has steps {steps}")
    done = subprocess.run([build / "apps/ckpt", "verify", *sorted((folder / "run").glob("step-*"))], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise Failure(done.stdout + done.stderr)


def main():
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_args()
    random_ = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        write_text(pathlib.Path(name) / "text")
        for number in range(1, options.trials + 1):
            folder = pathlib.Path(name) / str(number)
            folder.mkdir()
            try:
                trial(options.build.resolve(), folder, random_)
            except Failure as failure:
                sys.exit(f"shared_folder.py: trial {number}: {failure}")
    print(f"{options.trials} times one of two or three runs trained, and the others left its folder and log alone")


if __name__ == "__main__":
    main()
