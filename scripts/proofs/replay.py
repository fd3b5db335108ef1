#!/usr/bin/env python3
"""
replay.py [--trials N] [--seed S] [--gpt-train FILE] - proves that a replay names what failing hardware did: each trial
trains on a random layout with --log-digests, flips a bit of what a random rank holds after a random step (a
parameter or a moment of it, replicated or a shard), and repeats the steps on another random layout from the
last checkpoint before. The replay has to name that step, that rank and that tensor, and nothing else; without the bit it has to
find nothing.

Layouts: pp 1, 2 x tp 1, 2, 4 x dp 1, 2, 4 up to eight ranks, strategies, sequence parallelism, GPT-2 and Llama, fp32 and bf16.
Status 1 with the first trial that fails.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from training_runs import Failure, ROOT, TIMEOUT, UNGROUPED, write_text

STEPS = 6
MODEL = ["--n-layer", "2", "--n-head", "4", "--n-embd", "32", "--seq-len", "32", "--global-batch-size", "8",
         "--micro-batch-size", "1", "--lr", "3e-3", "--dropout", "0.1", "--eval-interval", "0",
         "--threads-per-rank", "1", "--steps", str(STEPS)]
STRATEGIES = (*UNGROUPED, "hybrid_shard")
KINDS = ["", ", first moment", ", second moment"]
SUFFIX = ["", ".m", ".v"]
NAMED = re.compile(r"replay: step (\d+): rank (\d+) had another ([\w.]+)((?:, \w+ moment)?):")


def layout_of(random_):
    """Flags of up to eight ranks."""
    pp, tp = random_.choice((1, 1, 2)), random_.choice((1, 2, 4))
    dp = random_.choice([n for n in (1, 2, 4) if pp * tp * n <= 8])
    flags = ["--tp", tp, "--dp", dp]
    strategy = random_.choice(STRATEGIES if dp == 4 else STRATEGIES[:-1])
    if pp > 1:
        flags += ["--pp", pp]
    if dp > 1:
        flags += ["--strategy", strategy]
    if dp > 1 and strategy == "hybrid_shard":
        flags += ["--shard-group-size", 2]
    if tp > 1 and random_.random() < 0.5:
        flags.append("--sequence-parallel")
    return [str(flag) for flag in flags]


def run(options, where, *flags):
    done = subprocess.run([options.gpt_train, "--data", where / "text", *MODEL, *flags], cwd=where, text=True,
                          capture_output=True, timeout=TIMEOUT)
    return done.returncode, done.stdout, done.stderr


def bit_to_turn(random_, where, dtype):
    """A step, a rank, and a bit of what it holds then."""
    files = sorted((where / "logged").glob("rank-*.jsonl"))
    step, rank = random_.randint(1, STEPS), random_.randrange(len(files))
    head = json.loads(files[rank].read_text().splitlines()[0])
    path, kind, _, _, local = random_.choice(head["parts"])
    elements = 1
    for extent in local:
        elements *= extent
    bit = random_.randrange(16 if dtype == "bf16" else 32)
    return step, rank, path, kind, random_.randrange(elements), bit


def replay(options, where, model, flags, folder, step):
    """From the last checkpoint before the step."""
    before = (step - 1) // 2 * 2
    resume = ["--resume", f"saved/step-{before:08d}"] if before else ["--resume", "none"]
    return run(options, where, *model, *flags, *resume, "--replay", folder)


def trial(options, random_, number):
    dtype = random_.choice(("fp32", "fp32", "bf16"))
    model = ["--arch", random_.choice(("gpt2", "llama")), "--dtype", dtype]
    first, second = layout_of(random_), layout_of(random_)
    described = f"trial {number}: {' '.join(model + first)}, repeated with {' '.join(second)}"
    with tempfile.TemporaryDirectory(prefix="weft-replay-") as name:
        where = pathlib.Path(name)
        write_text(where / "text")
        saving = ["--save", "saved", "--save-interval", "2", "--keep", "0"]
        status, _, err = run(options, where, *model, *first, *saving, "--log-digests", "logged")
        if status:
            raise Failure(f"{described}: {err}")
        step, rank, path, kind, element, bit = bit_to_turn(random_, where, dtype)
        flip = f"{step}:{rank}:{path}{SUFFIX[kind]}:{element}:{bit}"
        # A bit of an exponent may end the run: what it logged is there all the same.
        run(options, where, *model, *first, "--log-digests", "flipped", "--flip-bit", flip)
        described += f", --flip-bit {flip}"
        status, out, err = replay(options, where, model, second, "logged", step)
        if status or "is the same, part by part" not in out:
            raise Failure(f"{described}: a run as it should be: {out}{err}")
        status, out, err = replay(options, where, model, second, "flipped", step)
        named = NAMED.findall(out)
        if status != 3 or named != [(str(step), str(rank), path, KINDS[kind])]:
            raise Failure(f"{described}: status {status}, named {named}\n{out}{err}")
    return described


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpt-train", default=ROOT / "build/apps/gpt_train")
    options = parser.parse_args()
    options.gpt_train = pathlib.Path(options.gpt_train).resolve()
    random_ = random.Random(options.seed)
    for number in range(1, options.trials + 1):
        try:
            print(trial(options, random_, number), flush=True)
        except (Failure, subprocess.TimeoutExpired) as failed:
            print(f"replay: {failed}", file=sys.stderr)
            return 1
    print(f"replay: {options.trials} of {options.trials} bits named by step, rank and tensor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
