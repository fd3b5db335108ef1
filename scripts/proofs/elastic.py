#!/usr/bin/env python3
"""
elastic.py [--trials N] [--seed S] [--ranks N] [--cp N] [BUILD] - proves that a lost rank costs no step and no bit: each trial trains on a random
layout with --elastic on, loses a random rank at a random moment (wherever it is then: computing, in a collective,
in its update), and has to end with the digest of a run that lost none, each step logged once. The rank is replaced at
once, or missing for some steps, so that the run continues on a smaller mesh and grows back. There is no
--save: nothing could be read from a disk.

Layouts: pp 1, 2 x tp 1 to 8 x dp 2 to 8 with N ranks (32), strategies with copies or buddies, sequence parallelism, GPT-2, Llama
and mixtures of 8 experts that data-parallel ranks split, fp32 and bf16; with --cp 2 or 4 as many of them split the tokens of sequences of 2,048 or 4,096. Prints how long it took to return
to work. Status 1 with the first trial that fails.
"""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

from training_runs import Failure, ROOT, TIMEOUT, write_text

STEPS = 8
MODEL = ["--n-layer", "2", "--n-head", "8", "--n-embd", "64", "--seq-len", "32", "--global-batch-size", "16",
         "--micro-batch-size", "1", "--lr", "3e-3", "--dropout", "0.1", "--eval-interval", "4", "--eval-iters", "1",
         "--threads-per-rank", "1", "--steps", str(STEPS), "--digest"]
MIXTURE = ["--arch", "llama", "--n-expert", "8", "--moe-top-k", "2", "--moe-ffn", "32", "--moe-balance", "bias"]
STRATEGIES = ["no_shard", "hybrid_shard", "full_shard --redundancy buddy", "shard_grad_op --redundancy buddy"]
LOST = re.compile(r"(?:continues after step (\d+) with what \d+ ranks hold|restarts), --pp \d+ --dp (\d+) --tp \d+(?: --cp \d+)?(?: --ep \d+)?, ([\d.]+) s later")
GROWN = re.compile(r"ranks are back: continuing after step (\d+), --pp \d+ --dp (\d+) --tp \d+(?: --cp \d+)?(?: --ep \d+)?, ([\d.]+) s later")


def numbers_of(rows):
    """What a run that lost no rank has alike, of each step."""
    return [(row["digest"], row["loss_bits"], row["val_loss"]) for row in rows]


def layout_of(random_, ranks):
    """Flags of `ranks` ranks, and their numbers."""
    dp = random_.choice([n for n in (2, 4, 8) if ranks % n == 0])
    pp = random_.choice([n for n in (1, 1, 2) if ranks % (dp * n) == 0])
    tp = ranks // dp // pp
    if tp > 8:
        return layout_of(random_, ranks)
    strategy = random_.choice(STRATEGIES)
    flags = ["--tp", tp, "--dp", dp, "--strategy", *strategy.split()]
    if strategy == "hybrid_shard":
        flags += ["--dp-replicate", 2]
    if pp > 1:
        flags += ["--pp", pp]
    if tp > 1 and random_.random() < 0.5:
        flags.append("--sequence-parallel")
    return [str(flag) for flag in flags], dp


def run(program, where, flags, environment=()):
    (where / "log").unlink(missing_ok=True)
    done = subprocess.run([program, "--data", where / "text", *MODEL, *flags, "--log-jsonl", "log"], cwd=where, text=True,
                          capture_output=True, timeout=TIMEOUT, env=dict(os.environ, **dict(environment)))
    rows = [json.loads(line) for line in (where / "log").read_text().splitlines()] if done.returncode == 0 else []
    return done, [row for row in rows if "step" in row]


def trial(options, random_, number, expected):
    model = [*random_.choice((["--arch", "gpt2"], ["--arch", "llama"], MIXTURE)), "--dtype", random_.choice(("fp32", "bf16"))]
    flags, dp = layout_of(random_, options.ranks // options.cp)
    if "--n-expert" in model and (dp > 2 or "buddy" in flags) and ("--dp-replicate" not in flags or dp > 2):
        flags += ["--ep", str(2 * int(flags[flags.index("--tp") + 1]))]  # experts that others have, too
    if options.cp > 1:
        model += ["--seq-len", str(1024 * options.cp), "--n-embd", "16"]
        flags += ["--cp", str(options.cp)]
    rank, step = random_.randrange(options.ranks), random_.randint(1, 4)
    absent = random_.choice((0, 0, 2, 3))
    flags += ["--elastic", "on", *(["--rejoin-after", str(absent)] if absent else [])]
    described = f"trial {number}: {' '.join(model + flags)}, rank {rank} in step {step}"
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        write_text(where / "text")
        if tuple(model) not in expected:
            _, rows = run(f"{options.build}/apps/gpt_train", where, model)
            expected[tuple(model)] = numbers_of(rows)
        whole, rows = run(f"{options.build}/apps/gpt_train", where, model + flags)
        if numbers_of(rows) != expected[tuple(model)]:
            raise Failure(f"{described}: without a loss it has other digests: {whole.stderr}")
        time = max(row["ms"] for row in rows[1:])
        done, rows = run(f"{options.build}/tests/hosts/gpt_train_faulty", where, model + flags,
                         {"WEFT_FAULT": f"vanish step {rank} {step}", "WEFT_FAULT_MS": str(max(1, int(1.5 * time)))})
    lost, grown = LOST.search(done.stderr), GROWN.search(done.stderr)
    if done.returncode != 0 or not lost:
        raise Failure(f"{described}: status {done.returncode}: {done.stderr}")
    if [row["step"] for row in rows] != list(range(1, STEPS + 1)):
        raise Failure(f"{described}: steps {[row['step'] for row in rows]} were logged")
    if numbers_of(rows) != expected[tuple(model)]:
        raise Failure(f"{described}: other digests: {done.stderr}")
    returns = absent > 0 and int(lost[1] or 0) + absent < STEPS
    if (int(lost[2]) < dp) != (absent > 0) or bool(grown) != returns:
        raise Failure(f"{described}: another mesh than it should be: {done.stderr}")
    return [float(lost[3])] + ([float(grown[3])] if grown else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--cp", type=int, choices=(1, 2, 4), default=1)
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    random_ = random.Random(options.seed)
    expected, back, grown = {}, [], []
    try:
        for number in range(1, options.trials + 1):
            times = trial(options, random_, number, expected)
            back.append(times[0])
            grown += times[1:]
            print(f"\r{number} of {options.trials} ", end="", flush=True)
    except Failure as failure:
        print(f"\nelastic.py: {failure}", file=sys.stderr)
        return 1
    print(f"\n{len(back)} ranks lost of {options.ranks}, no step lost, all digests those of runs without a loss\n"
          f"back at work after {statistics.median(back):.2f} s in the median, {max(back):.2f} s at most; grown again "
          f"{len(grown)} times" + (f", in {statistics.median(grown):.2f} s" if grown else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
