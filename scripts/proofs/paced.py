#!/usr/bin/env python3
"""
paced.py GPT_TRAIN [--runs N] [--seed N] [--first N] [--seconds X] [--allow MEDIAN,WORST] [--cp] [--order TAU] [--winners N] [--state FILE] -
random layouts, schedules and machines: what gpt_train --plan --machine says of a step, beside a run of real ranks that take the time of that
machine (--paced). Prints a line for each, the median and the largest error; with --allow the exit status says
whether they are within these percents.

--cp: layouts whose ranks split tokens, too, and attend in either form.

--order: layouts of one model on eight ranks of one machine instead. Are they in the same order by simulation and by run
(Kendall's tau, at least TAU)? And is what the search finds no slower, when it runs, than data
parallelism alone?

--winners N: N models and machines, as random, on which the search finds something else than data parallelism alone: is that
faster when both run?

--state FILE keeps what has been measured, so that a run that was cut off continues where it was; --most SECONDS ends one by itself, with status 3
where something is left.

What differs between the two is what the simulator does not know of how ranks overlap and wait. This machine's own noise
shows less the longer a step is: --seconds, for one rank; more ranks get more.
"""
import argparse
import json
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import tempfile

import slices
from training_runs import HYBRID, SCHEDULES, UNGROUPED

MOST_RANKS, STEPS, HEADS = 16, 4, 4


def machine(rng, inner, ranks):
    """Figures near those of a device that computes a small model as fast as it moves it."""
    inside = 10 ** rng.uniform(10, 11)
    latency = 10 ** rng.uniform(-7.5, -6.3)
    return {"weft_machine": 1, "name": "random",
            "device": {"memory": 1e12, "bf16": 1e12, "fp32": 1e12, "products": rng.uniform(.4, 1),
                       "attention": rng.uniform(.2, .8), "bandwidth": rng.uniform(3e11, 1.2e12),
                       "launch": rng.choice([0, rng.uniform(1e-8, 5e-8)])},
            "host": {"devices": rng.choice([ranks, ranks, inner]), "background": rng.random() < .7},
            "inside": {"bandwidth": inside, "latency": latency},
            "network": {"bandwidth": inside / rng.uniform(1, 8), "latency": latency * rng.uniform(1, 4)}}


def split(rng, layers, stages):
    """Steps of each stage: embedding, blocks and the last norm, cut anywhere but into empty stages."""
    cuts = sorted(rng.sample(range(1, layers + 2), stages - 1))
    return ",".join(str(b - a) for a, b in zip([0] + cuts, cuts + [layers + 2]))


def context(rng, cp, tp, flags):
    """Flags of ranks that split tokens; of HEADS heads each takes one at least, or keys are gathered."""
    gathers = "--sequence-parallel" in flags or cp * tp > HEADS or rng.random() < .5
    return ["--cp", cp, "--cp-form", "gather" if gathers else "heads"]


def configuration(rng, splits_tokens):
    while True:
        pp, tp, dp = rng.choice([1, 2, 2, 4, 4, 8]), rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 2, 4])
        cp = rng.choice([2, 2, 4]) if splits_tokens else 1
        if 1 < pp * tp * dp * cp <= MOST_RANKS:
            break
    flags, schedule = [], rng.choice(list(SCHEDULES))
    micros = rng.choice([4, 8, 16] if pp < 8 else [16])
    if schedule == "dualpipe-v":
        micros = max(micros, 2 * pp)
    stages = pp * SCHEDULES[schedule]
    layers = max(stages, rng.choice([4, 6, 8]))
    if pp > 1:
        flags += ["--pp", pp, "--pp-schedule", schedule]
        if rng.random() < .3:
            flags += ["--pp-split", split(rng, layers, stages)]
    if tp > 1:
        flags += ["--tp", tp] + (["--sequence-parallel"] if rng.random() < .5 else [])
    flags += context(rng, cp, tp, flags) if cp > 1 else []
    if dp > 1:
        strategy = rng.choice(UNGROUPED + HYBRID)
        if dp == 2 and strategy in HYBRID:
            strategy = "full_shard"
        flags += ["--dp", dp, "--strategy", strategy]
        flags += ["--shard-group-size", 2] if strategy in HYBRID else []
        flags += rng.choice([[], ["--accumulate", "local"], ["--accumulate", "reduced"], ["--accumulate", "group:2"]])
    again = rng.choice(["none", "none", "block", "attention"] + (["stage"] if pp > 1 else []))
    flags += ["--recompute", again] if again != "none" else []
    micro = rng.choice([1, 2])
    flags += ["--n-layer", layers, "--n-embd", rng.choice([48, 64, 96]), "--micro-batch-size", micro,
              "--global-batch-size", micro * micros * dp, "--seq-len", rng.choice([16, 32])]
    return [str(f) for f in flags], machine(rng, tp * dp * cp, pp * tp * dp * cp), pp * tp * dp * cp


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


def measure(program, flags, figures, seconds, words="All happy families are alike. " * 2000):
    """Simulated and measured seconds of a step, on the machine as it is."""
    with tempfile.TemporaryDirectory() as folder:
        file, plan, log = (os.path.join(folder, name) for name in ("machine.json", "plan.json", "log.jsonl"))
        text = os.path.join(folder, "text")
        pathlib.Path(file).write_text(json.dumps(figures), encoding="utf-8")
        pathlib.Path(text).write_text(words, encoding="utf-8")
        model = ["--arch", "llama", "--n-head", str(HEADS), "--eval-interval", "0", *flags]
        run([program, "--plan", *model, "--machine", file, "--json", plan])
        simulated = json.load(open(plan, encoding="utf-8"))["plan"]["time"]["seconds"]
        scale = seconds / simulated
        run([program, *model, "--data", text, "--steps", str(STEPS), "--memory-check", "off", "--log-jsonl", log,
             "--paced", file, "--paced-scale", f"{scale:.9g}", "--threads-per-rank", "1"])
        rows = [json.loads(line) for line in open(log, encoding="utf-8")]
        return simulated, min(row["ms"] for row in rows if row.get("step", 0) > 1) / 1e3 / scale


RANKS, BATCH = 8, 32
ONE = ["--n-layer", "8", "--n-embd", "64", "--seq-len", "32", "--global-batch-size", str(BATCH)]


def layouts(rng, runs):
    """Different layouts of eight ranks."""
    found = []
    while len(found) < runs:
        pp, tp = rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4])
        schedule, micro = rng.choice(["1f1b", "gpipe", "zb-h1", "interleaved", "naive", "zb-v"]), rng.choice([1, 2])
        dp = RANKS // (pp * tp)
        if pp * tp > RANKS or pp * SCHEDULES[schedule] > 8 or BATCH // dp // micro < pp:
            continue
        flags = ["--pp", pp, "--tp", tp, "--dp", dp, "--micro-batch-size", micro]
        flags += ["--pp-schedule", schedule] if pp > 1 else []
        flags += ["--strategy", rng.choice(UNGROUPED)] if dp > 1 else []
        flags = ONE + [str(f) for f in flags]
        if flags not in found:
            found.append(flags)
    return found


def tau(pairs):
    """Kendall's: pairs in the same order less those in the other, of all."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for i, a in enumerate(pairs) for b in pairs[:i]]
    return sum((s > 0) - (s < 0) for s in signs) / len(signs)


def search(program, figures, model=tuple(ONE), ranks=RANKS):
    """Flags of the fastest layout that is found, and of the fastest of data parallelism alone."""
    with tempfile.TemporaryDirectory() as folder:
        file, found = os.path.join(folder, "machine.json"), os.path.join(folder, "search.json")
        pathlib.Path(file).write_text(json.dumps(figures), encoding="utf-8")
        run([program, "--plan", "--search", "--arch", "llama", "--n-head", "4", "--dtype", "fp32", *model, "--ranks",
             str(ranks), "--machine", file, "--json", found])
        result = json.load(open(found, encoding="utf-8"))
        return [list(model) + shlex.split(f["flags"]) for f in (result["top"][0], result["plain"])]


def order(a, done):
    rng = random.Random(a.seed)
    figures = machine(rng, RANKS, RANKS)
    pairs, seconds = [], a.seconds * (1 + RANKS / 4)
    for flags in layouts(rng, a.runs):
        pairs.append(done.once(flags, lambda flags=flags: measure(a.gpt_train, flags, figures, seconds)))
        print(f"{1e6 * pairs[-1][0]:9.1f} us simulated {1e6 * pairs[-1][1]:9.1f} measured  {' '.join(flags)}", flush=True)
    print(f"Kendall's tau of {len(pairs)}: {tau(pairs):.3f}")
    times = [done.once(["found", i], lambda flags=flags: measure(a.gpt_train, flags, figures, seconds))
             for i, flags in enumerate(search(a.gpt_train, figures))]
    print(f"the search's first: {1e6 * times[0][0]:.1f} us simulated, {1e6 * times[0][1]:.1f} measured; data parallelism "
          f"alone: {1e6 * times[1][0]:.1f}, {1e6 * times[1][1]:.1f}")
    sys.exit(tau(pairs) < a.order or times[0][1] > 1.02 * times[1][1])


def contest(rng):
    """A model, a machine of slow links and few sequences, as they are where data parallelism alone is not the best."""
    ranks, layers = rng.choice([4, 8, 8]), rng.choice([4, 6, 8])
    model = ["--n-layer", layers, "--n-embd", rng.choice([64, 96, 128]), "--seq-len", rng.choice([16, 32]),
             "--global-batch-size", ranks * rng.choice([1, 2, 4])]
    figures = machine(rng, rng.choice([2, ranks]), ranks)
    for link in ("inside", "network"):
        figures[link]["bandwidth"] /= 10 ** rng.uniform(.3, 1.3)
    return tuple(str(w) for w in model), figures, ranks


def winners(a, done):
    """What the search finds beside data parallelism alone, run, where it found something else."""
    lost, found, drawn = 0, 0, 0
    while found < a.winners:
        model, figures, ranks = contest(random.Random(1000 * a.seed + drawn))
        first, plain = done.once(["search", drawn], lambda: search(a.gpt_train, figures, model, ranks))
        drawn += 1
        if "--pp" not in first and "--tp" not in first:
            continue
        found += 1
        seconds = a.seconds * (1 + ranks / 4)
        times = done.once(["runs", drawn], lambda: [measure(a.gpt_train, flags, figures, seconds) for flags in (first, plain)])
        lost += times[0][1] > times[1][1]
        print(f"{1e6 * times[0][0]:9.1f} us simulated {1e6 * times[0][1]:9.1f} measured; data parallelism {1e6 * times[1][0]:9.1f}, "
              f"{1e6 * times[1][1]:9.1f}: {times[1][1] / times[0][1]:5.2f} times  {' '.join(first)} | {' '.join(plain[len(model):])}",
              flush=True)
    print(f"{found} of {drawn} searches found something else than data parallelism; it was slower than that in {lost} runs")
    sys.exit(lost > 0)


def several(a, flags, figures, ranks, worst):
    """A measurement, and others, slower, where it took longer than is allowed."""
    simulated, measured = measure(a.gpt_train, flags, figures, a.seconds * (1 + ranks / 4))
    for k in range(1, a.tries):
        if 100 * (1 - simulated / measured) <= worst:
            break
        measured = min(measured, measure(a.gpt_train, flags, figures, 2 ** k * a.seconds * (1 + ranks / 4))[1])
    return simulated, measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpt_train")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=.6)
    parser.add_argument("--allow", metavar="MEDIAN,WORST", help="status 1 if errors in percent are larger")
    parser.add_argument("--tries", type=int, default=1, help="with --allow: a run that took longer than that allows is "
                        "remeasured, slower: others on this machine delay a run, and never hasten it")
    parser.add_argument("--cp", action="store_true")
    parser.add_argument("--order", type=float)
    parser.add_argument("--winners", type=int)
    slices.add_arguments(parser)
    a = parser.parse_args()
    done = slices.Done(a)
    if a.winners is not None:
        winners(a, done)
    if a.order is not None:
        order(a, done)
    median, worst = (float(x) for x in (a.allow or "inf,inf").split(","))
    errors = []
    for i in range(a.first, a.first + a.runs):
        flags, figures, ranks = configuration(random.Random(1000 * a.seed + i), a.cp)
        simulated, measured = done.once(["layout", a.seed, i], lambda: several(a, flags, figures, ranks, worst))
        errors.append(100 * (simulated / measured - 1))
        print(f"{i:3d} {errors[-1]:+6.1f} %  {1e6 * simulated:9.1f} us simulated {1e6 * measured:9.1f} measured  "
              f"{'background' if figures['host']['background'] else 'in turn':10s} "
              f"hosts of {figures['host']['devices']:2d}  {' '.join(flags)}", flush=True)
    sizes = sorted(abs(e) for e in errors)
    print(f"{len(sizes)} runs: median {statistics.median(sizes):.1f} %, worst {sizes[-1]:.1f} %")
    sys.exit(statistics.median(sizes) > median or sizes[-1] > worst)


if __name__ == "__main__":
    main()
