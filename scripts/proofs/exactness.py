#!/usr/bin/env python3
"""
exactness.py [--quick] [--gpt-train FILE] [--jobs N] - proves that the layout stays out of the
numbers: trains the same small model on every layout and compares each step's loss bits and digest
with those of one rank.

    gpt2, llama x tp 1, 2, 4, 8 x dp 1, 2, 4 x micro-batch 1, 2, 4 x sequence parallel off, on
    x threads per rank 1, 2 x dropout 0, 0.1: 576 runs of 30 steps, global batch 16; and an eighth of
    these for each of the other families. Half of them run under full_shard and half under no_shard;
    --strategies has the others.

exactness.py --strategies [--quick] - the same over what sharded data parallelism can choose:
strategy, units, prefetch, freeing after forward, size of groups, accumulation, on tp and dp 1 to 8,
with weights and activations stored as fp32 or bf16.
Every three values of three choices meet in some run (with --quick every two), 20 steps each.

exactness.py --pipeline [--quick] [--part K/N] - the same over what pipelines can choose: all schedules and tables made by
chance, pipeline ranks 1 to 8, one or two stages a rank, cuts that are uneven or leave stages empty, on
tp 1 and 2 and dp 1 to 4, under all strategies; some in 2 and 4 processes of mpirun. Every three values of
three choices meet in some run (with --quick every two).

exactness.py --adapters [--quick] [--part K/N] - the same over adapters (--lora-rank): what they are for, beside the
choices of --strategies, on tp 1 to 8, dp 1 to 4 and pipelines. --part 2/4 takes the second quarter of the runs.

exactness.py --any-dp [--quick] - the same over data-parallel ranks of any number and batches that these divide or not, of
which single sequences are added: dp 3 to 8, 10 and 12 with 1, 2, 3 and 4 micro-steps, and batches of 13 and 16;
strategies that split and those that do not, groups of 2, 3 and 5 ranks, tp 1, 2 and 8, and some in a process of mpirun for each
rank.

exactness.py --moe [--quick] [--part K/N] - the same over mixtures of experts: routers, balances, capacities, room, numbers that ranks cut evenly or not, both ways
of tokens to experts, their adapters and 4 bits, beside the choices of --strategies, on tp and dp 1 to 8, ep 1 to 32, etp 1 and tp, and pipelines.

exactness.py --cp [--quick] [--part K/N] - the same over ranks that split the tokens of each sequence: cp 2, 4 and 8 in both forms, beside tp,
sequence parallelism, dp and pp, on 2,048 to 32,768 tokens, lengths and heads that they do not divide, of every family, with windows, documents,
grouped heads, adapters, experts, fp32 and bf16; some in 2 processes of mpirun. In 600 runs every two values meet. --quick takes a few.

All of them but --cp run every family of models (training_runs.FAMILIES), with --quick, --any-dp and --pipeline one after the other.
Nothing divides: 12 heads, 3 key-value heads (but of gpt2) and a vocabulary of 257. --quick takes every
17th run, of --any-dp every 29th. The first difference ends it with status 1, and so does a comparison that proves
nothing: with --exact off, layouts have to differ.

exactness.py --exact-tp - the same for each --exact-tp, 1, 2, 4 and 8, of every family, in fp32 and bf16: on layouts of every tp
up to it the bits are those of one rank, other ones for each setting, and larger tp say that they are not layout-exact and are not.
With --quick gpt2 and llama alone.

exactness.py --builds [--jobs N] - the same over builds: gcc and clang, -O1 and -O3, each with its
portable, AVX2, AVX-512 and AMX kernels. What the machine can't run is skipped, and counted as such.
"""
import argparse
import collections
import itertools
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import context_choices
import exact_tp_choices
import pipeline_choices
from training_runs import (ARCHS, FAMILIES, HYBRID, ROOT, UNGROUPED, Covering, Failure, Progress, Trainer, all_of,
                           compare_choices, first_difference, goes_together, in_turn)

STEPS = 30
QUICK_STEPS = 8 # the first ones have every kind of update
STRATEGY_STEPS = 20
ADAPTED_STEPS = 8
MIXED_STEPS = 4
BATCH = 16
MODEL = ["--n-layer", "2", "--n-embd", "48", "--n-head", "12", "--vocab-size", "257",
         "--seq-len", "32", "--global-batch-size", str(BATCH), "--lr", "3e-3", "--eval-interval", "0",
         "--digest"]
TPS, DPS, MICROS = (1, 2, 4, 8), (1, 2, 4), (1, 2, 4)
ISAS = ("portable", "avx2", "avx512", "amx")
DTYPES = {"fp32": [], "bf16 weights": ["--param-dtype", "bf16"], "bf16": ["--dtype", "bf16"],
          "bf16 activations": ["--dtype", "bf16", "--param-dtype", "fp32"],
          "bf16, residual fp32": ["--dtype", "bf16", "--fp32-residual-connection"]}
CHOICES = {
    "strategy": (*UNGROUPED, *HYBRID),
    "wrap": ("--wrap-type block", "--wrap-type attention", "--wrap-type mlp",
             "--wrap-min-params 1", "--wrap-min-params 5000", "--wrap-min-params 20000"),
    "prefetch": (0, 1, 3),
    "reshard": ("default", "always", "never"),
    "group": (None, 1, 2, 4, 8),  # ranks of a group, of hybrid strategies alone
    "accumulate": ("auto", "local", "reduced", "group:2"),
    "tp": (1, 2, 4, 8),
    "dp": (1, 2, 4, 8),
    "micro": (1, 2),
    "sequence": (False, True), "beside": (False, True),  # rows over tp beside products
    "arch": tuple(FAMILIES),
    "recompute": ("none", "block", "attention"),
    "dropout": (0, 0.1),
    "dtype": tuple(DTYPES),
    "optimizer": ("adamw", "muon", "adamw8bit"),
}


ADAPTED = {name: CHOICES[name] for name in ("strategy", "reshard", "accumulate", "tp", "micro", "sequence", "beside", "arch",
                                            "recompute", "dtype")}
ADAPTED |= {
    "dp": (1, 2, 4), "pp": (1, 2), "wrap": CHOICES["wrap"][:1], "prefetch": (0, 2),
    "group": CHOICES["group"][:-1],  # no larger one has any dp: to look for a run of it would take for ever
    "optimizer": ("adamw", "adamw8bit"), "base": ("same", "nf4"), "rank": (1, 5, 8),
    "targets": ("q,v", "k,out", "all-linear"), "adapter": ("", "--lora-dropout 0.2", "--rslora --modules-to-save norm"),
    "mixture": (False, True), "etp": (False, True),  # a mixture's experts are adapted too; tp over their features
}


MIXED = {name: ADAPTED[name] for name in ("strategy", "reshard", "accumulate", "tp", "micro", "sequence", "beside", "recompute", "dtype",
                                          "dp", "group", "pp", "wrap", "prefetch")}
MIXED |= {
    "arch": tuple(FAMILIES), "optimizer": ("adamw",), "capacity": ("", "--moe-expert-capacity-factor 0.7"), "etp": (False, True), "ep": (1, 2, 4), "dispatch": ("gather", "exchange"),  # tp over features; dp over experts; ways of tokens
    "experts": ("--n-expert 8 --moe-top-k 2", "--n-expert 60 --moe-top-k 4 --moe-ffn 8 --moe-normalise off",
                "--n-expert 12 --moe-top-k 3 --moe-router sigmoid --moe-shared 24 --moe-scale 2.5", "--n-expert 3 --moe-top-k 1",
                "--n-expert 5 --moe-top-k 4 --moe-router softmax-chosen --moe-dense 1"),
    "balance": ("", *(f"--moe-balance {how} 0.1" for how in ("global --moe-global-weight", "bias --moe-bias-step", "sequence --moe-sequence-weight"))),
    "buffer": ("", "--moe-buffer 1.25", "--moe-buffer 0.1"),
    "adapted": ("", "--lora-rank 3 --lora-targets k,experts", "--lora-rank 5 --lora-targets q,experts --base-dtype nf4"),
}
MIXTURE = ["--arch", "llama", "--n-kv-head", "3", "--ffn", "40"]


def layout_options(tp, dp, micro, sequence, threads):
    """Flags of a layout."""
    return ["--tp", str(tp), "--dp", str(dp), "--micro-batch-size", str(micro),
            "--threads-per-rank", str(threads), *(["--sequence-parallel"] if sequence and tp > 1 else [])]


def check_control(trainer):
    """Without exactness the layout does show, or equal bits would prove nothing."""
    for arch, flags in ARCHS.items():
        off = [trainer.run([*flags, "--exact", "off", "--tp", str(tp)]) for tp in (1, 4)]
        difference = first_difference(off[1], off[0])
        if not difference:
            raise Failure(f"{arch} with --exact off: tp 4 has the bits of tp 1 too, so that "
                          f"equal bits prove nothing")
        print(f"{arch} with --exact off: tp 4 differs from tp 1 at {difference.partition(':')[0]}")


def compare_layouts(trainer, jobs, quick):
    """Every layout against one rank."""
    layouts = list(itertools.product((0, 0.1), TPS, DPS, MICROS, (False, True), (1, 2)))
    others = [arch for arch in FAMILIES if arch not in ARCHS]
    runs = [(arch, *run) for arch in ARCHS for run in layouts]
    runs += [(others[i % len(others)], *run)
             for i, run in enumerate(random.Random(1).sample(layouts, len(layouts)))]
    runs = [(*run, "full_shard" if run[-2] == (run[-1] > 1) else "no_shard") for run in runs]
    if quick:
        runs = runs[::17]  # no divisor of any of the counts: all values of all options come
    base = {(arch, dropout): [*flags, "--dropout", str(dropout)]
            for arch, flags in FAMILIES.items() for dropout in (0, 0.1)
            if (arch, dropout) in {run[:2] for run in runs}}
    progress = Progress(len(runs))
    reference = {key: trainer.run([*flags, "--threads-per-rank", "1"])
                 for key, flags in base.items()}
    if len({steps[-1] for steps in reference.values()}) != len(reference):
        raise Failure("two models have the same digest: dropout or architecture has no effect")
    passed = {}

    def done(key, steps):
        arch, dropout, tp, dp, *rest, strategy = key
        text = (f"{arch} dropout {dropout} tp {tp} dp {dp} micro-batch {rest[0]}"
                f"{' sequence-parallel' if rest[1] else ''} threads {rest[2]} {strategy}")
        difference = first_difference(steps, reference[arch, dropout])
        if difference:
            raise Failure(f"{text} differs from one rank at {difference}\n"
                          f"flags: {' '.join(MODEL + base[arch, dropout])} "
                          f"{' '.join(layout_options(tp, dp, *rest))} --strategy {strategy}")
        passed[arch, tp, dp] = passed.get((arch, tp, dp), 0) + 1
        progress.step(text)

    all_of(jobs, [(key, lambda k=key: trainer.run(base[k[:2]] + layout_options(*k[2:-1])
                                                  + ["--strategy", k[-1]]))
                  for key in runs], done)
    print(f"\n{'equal runs':12}" + "".join(f"{f'dp {dp}':>8}" for dp in DPS))
    for arch, tp in itertools.product(FAMILIES, TPS):
        print(f"{f'{arch} tp {tp}':12}"
              + "".join(f"{passed.get((arch, tp, dp), 0):>8}" for dp in DPS))
    for (arch, dropout), steps in reference.items():
        print(f"{arch} dropout {dropout}: digest {steps[-1][1]}")
    print(f"{len(runs)} runs of {trainer.steps} steps: the loss bits and digest of every step are those "
          f"of one rank ({progress.seconds():.0f} s)")


def possible(run):
    """Whether the values of a run, some of which may be open, go together."""
    group, dp, ep = run.get("group", "open"), run.get("dp", 8), run.get("ep", 2 if run.get("dispatch") == "exchange" else 1)
    if run.get("accumulate") == "group:2" and BATCH // run.get("dp", 1) // run.get("micro", 1) < 2:
        return False
    if not goes_together(run) or ep > min(dp, group if isinstance(group, int) else dp) or (ep > 1 and run.get("accumulate") == "group:2") or (
            ep == 1 and run.get("dispatch") == "exchange") or (run.get("etp") and run.get("tp", 2) == 1):
        return False
    if (run.get("etp") and not run.get("mixture", True)) or (run.get("mixture") and "dropout" in run.get("adapter", "")) or (
            run.get("adapted") and "bias" in run.get("balance", "")):  # adapters freeze biases, which is refused
        return False
    if "strategy" in run and group != "open" and (run["strategy"] in HYBRID) == (group is None):
        return False
    return group in ("open", None) or group <= dp


def strategy_options(run):
    """Flags of a run of compare_strategies, but for the model's."""
    return ["--strategy", run["strategy"], *run["wrap"].split(), "--prefetch", str(run["prefetch"]),
            "--reshard-after-forward", run["reshard"], "--accumulate", run["accumulate"],
            "--recompute", run["recompute"],
            *(["--shard-group-size", str(run["group"])] if run["group"] else []), *(["--etp", str(run["tp"])] if run.get("etp") else []),
            *(["--ep", str((1 if run["etp"] else run["tp"]) * run["ep"]), "--moe-dispatch", run["dispatch"]] if run.get("ep", 1) > 1 else []),
            *(["--tp-comm-overlap", "on", "--tp-comm-block", "1"] if run["beside"] and run["tp"] > 1 else []),
            *run.get("buffer", "").split(), *layout_options(run["tp"], run["dp"], run["micro"], run["sequence"], 1)]


def covering(choices, quick):
    """Runs in which every three values meet, families among them; with quick every two, and families alternate."""
    if quick:
        return in_turn(Covering({**choices, "arch": tuple(ARCHS)}, possible, 2).runs)
    return Covering(choices, possible, 3).runs


def compare_strategies(trainer, jobs, quick):
    """A covering part of all that sharded data parallelism can choose, against one rank."""
    runs = covering(CHOICES, quick)
    compare_choices(
        trainer, jobs, runs,
        lambda run: [*FAMILIES[run["arch"]], "--dropout", str(run["dropout"]), *DTYPES[run["dtype"]],
                     "--optimizer", run["optimizer"]],
        lambda run: (strategy_options(run), 0))
    for name, count in collections.Counter(run["strategy"] for run in runs).items():
        print(f"{name:20}{count:5} equal runs")


def compare_adapters(trainer, jobs, quick, part):
    """A covering part of what adapters and their layouts can be, against one rank."""
    runs = covering(ADAPTED, quick)
    runs = runs[len(runs) * (part[0] - 1) // part[1]:len(runs) * part[0] // part[1]]
    compare_choices(
        trainer, jobs, runs,
        lambda run: [*(MIXTURE + ["--n-expert", "8", "--moe-top-k", "2"] if run["mixture"] else FAMILIES[run["arch"]]),
                     *DTYPES[run["dtype"]], "--lora-rank", str(run["rank"]), "--lora-alpha", "6",
                     "--lora-targets", run["targets"] + (",experts" if run["mixture"] else ""), "--base-dtype", run["base"],
                     "--optimizer", run["optimizer"], *run["adapter"].split()],
        lambda run: (strategy_options(run) + ["--pp", str(run["pp"])], 0))
    for name, count in collections.Counter(run["strategy"] for run in runs).items():
        print(f"{name:20}{count:5} equal runs")


def compare_moe(trainer, jobs, quick, part):
    """Mixtures of experts and their layouts, against one rank."""
    runs = covering(MIXED, quick)
    runs = runs[len(runs) * (part[0] - 1) // part[1]:len(runs) * part[0] // part[1]]
    compare_choices(
        trainer, jobs, runs,
        lambda run: [*MIXTURE, *DTYPES[run["dtype"]], *f"{run['experts']} {run['balance']} {run['capacity']} {run['adapted']}".split()],
        lambda run: (strategy_options(run) + ["--pp", str(run["pp"])], 0))
    for value, count in collections.Counter(run[c] or f"no {c}" for run in runs for c in ("experts", "balance", "capacity", "buffer", "adapted")).items():
        print(f"{value:60}{count:5} equal runs")


def compare_any_dp(trainer, jobs, quick):
    """Data-parallel ranks of any number, a sequence at a time, against one rank."""
    runs = [run for run in itertools.product(ARCHS, (3, 4, 5, 6, 7, 8, 10, 12), (1, 2, 3, 4, -13, -16), (None, 2, 3, 5),
                                             CHOICES["strategy"], (1, 2, 8), (False, True))
            if (run[4] in HYBRID) == (run[3] is not None) and (run[3] is None or run[1] % run[3] == 0)
            and run[1] * run[5] <= 24]
    if quick:
        runs = runs[::29]
    tasks = []
    for i, (arch, dp, micros, group, strategy, tp, sequence) in enumerate(runs):
        batch = dp * micros if micros > 0 else -micros
        groups = dp // group if group else 1
        way = "reduced" if not group else "auto" if groups.bit_count() == 1 and batch % groups == 0 else "group:1"
        tasks.append({"arch": arch, "batch": batch, "options":
                      ["--strategy", strategy, "--accumulate", way, *(["--shard-group-size", str(group)] if group else []),
                       *layout_options(tp, dp, 1, sequence, 1)],
                      "processes": dp * tp if i % 16 == 0 and dp * tp <= 6 else 0})
    compare_choices(trainer, jobs, in_turn(tasks),
                    lambda run: [*FAMILIES[run["arch"]], "--global-batch-size", str(run["batch"])],
                    lambda run: (run["options"], run["processes"]))
    for name, count in collections.Counter(run[4] for run in runs).items():
        print(f"{name:20}{count:5} equal runs")


def build(folder, compiler, level):
    """gpt_train, built in a folder of its own."""
    flags = ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_C_FLAGS_RELEASE=-{level} -DNDEBUG",
             f"-DCMAKE_C_COMPILER={compiler}", "-DBUILD_TESTING=OFF"]
    for command in (["cmake", "-S", str(ROOT), "-B", str(folder), *flags],
                    ["cmake", "--build", str(folder), "-j", str(os.cpu_count()), "--target",
                     "gpt_train"]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if done.returncode:
            raise Failure(f"{' '.join(command)}\n{done.stdout}")
    return folder / "apps" / "gpt_train"


def compare_builds(folder, jobs):
    """Every build and instruction set against the first."""
    options = {f"{arch} {name}": [*flags, *more] for arch, flags in ARCHS.items()
               for name, more in (("one rank", []), ("one rank in bf16", DTYPES["bf16"]),
                                  ("tp 4 dp 2, dropout 0.1",
                                   ["--tp", "4", "--dp", "2", "--dropout", "0.1", "--sequence-parallel"]))}
    builds = list(itertools.product(("gcc", "clang"), ("O1", "O3")))
    progress = Progress(len(builds) * len(ISAS))
    reference, equal, skipped = {}, 0, []
    for compiler, level in builds:
        trainer = Trainer(build(folder / f"{compiler}-{level}", compiler, level), folder, MODEL,
                          STEPS)
        for isa in ISAS:
            name = f"{compiler} -{level} {isa}"
            try:
                trainer.run([], isa)
            except Failure as failure:
                if "this machine lacks" not in str(failure):
                    raise
                skipped.append(name)
                progress.step(f"{name}: SKIPPED, not of this machine")
                continue
            results = {}
            all_of(jobs, [(key, lambda k=key, t=trainer, i=isa: t.run(options[k], i))
                          for key in options], results.__setitem__)
            for key, steps in results.items():
                difference = first_difference(steps, reference.setdefault(key, steps))
                if difference:
                    raise Failure(f"{name}, {key}: differs from {' '.join(builds[0])} at "
                                  f"{difference}")
            equal += 1
            progress.step(name)
    for key, steps in sorted(reference.items()):
        print(f"{key}: digest {steps[-1][1]}")
    print(f"{equal} of {progress.total} builds and instruction sets: the same loss bits and "
          f"digest at every step ({progress.seconds():.0f} s)"
          + (f"; SKIPPED on this machine: {', '.join(skipped)}" if skipped else ""))


def part_of(text):
    """K/N, from 1/N to N/N."""
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise ValueError
    return k, n


def main():
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a representative part of the layouts")
    parser.add_argument("--builds", action="store_true", help="compare builds, not layouts")
    parser.add_argument("--strategies", action="store_true",
                        help="compare strategies of sharded data parallelism")
    parser.add_argument("--pipeline", action="store_true", help="compare pipelines")
    parser.add_argument("--adapters", action="store_true", help="compare adapters")
    parser.add_argument("--moe", action="store_true", help="compare mixtures of experts")
    parser.add_argument("--any-dp", action="store_true", help="compare numbers of ranks that are no power of two")
    parser.add_argument("--cp", action="store_true", help="compare ranks that split tokens")
    parser.add_argument("--exact-tp", action="store_true", help="compare layouts under each --exact-tp")
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="K/N", help="of --adapters, --moe, --cp and --pipeline: part K of N")
    parser.add_argument("--gpt-train", type=pathlib.Path, default=ROOT / "build/apps/gpt_train",
                        help="default: build/apps/gpt_train")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="runs at a time")
    arguments = parser.parse_args()
    if not arguments.builds and not os.access(arguments.gpt_train, os.X_OK):
        sys.exit(f"there is no {arguments.gpt_train}: scripts/build.sh build makes it, or name "
                 f"another with --gpt-train")
    with tempfile.TemporaryDirectory(prefix="weft-exactness-") as folder:
        try:
            if arguments.builds:
                compare_builds(pathlib.Path(folder), arguments.jobs)
            elif arguments.strategies:
                trainer = Trainer(arguments.gpt_train.resolve(), folder, MODEL, STRATEGY_STEPS)
                compare_strategies(trainer, arguments.jobs, arguments.quick)
            elif arguments.adapters:
                trainer = Trainer(arguments.gpt_train.resolve(), folder, MODEL, ADAPTED_STEPS)
                compare_adapters(trainer, arguments.jobs, arguments.quick, arguments.part)
            elif arguments.moe:
                trainer = Trainer(arguments.gpt_train.resolve(), folder, MODEL, MIXED_STEPS)
                compare_moe(trainer, arguments.jobs, arguments.quick, arguments.part)
            elif arguments.cp:
                context_choices.compare(arguments.gpt_train.resolve(), folder, arguments.jobs, arguments.quick, arguments.part)
            elif arguments.exact_tp:
                exact_tp_choices.compare(arguments.gpt_train.resolve(), folder, MODEL, arguments.jobs, arguments.quick)
            elif arguments.any_dp:
                model = [word for i, word in enumerate(MODEL) if "--global-batch-size" not in MODEL[max(i - 1, 0):i + 1]]
                trainer = Trainer(arguments.gpt_train.resolve(), folder, model, ADAPTED_STEPS)
                compare_any_dp(trainer, arguments.jobs, arguments.quick)
            elif arguments.pipeline:
                pipeline_choices.compare(arguments.gpt_train.resolve(), folder, arguments.jobs,
                                         arguments.quick, arguments.part)
            else:
                trainer = Trainer(arguments.gpt_train.resolve(), folder, MODEL,
                                  QUICK_STEPS if arguments.quick else STEPS)
                check_control(trainer)
                compare_layouts(trainer, arguments.jobs, arguments.quick)
        except Failure as failure:
            sys.exit(f"\nFAILED: {failure}")


if __name__ == "__main__":
    main()
