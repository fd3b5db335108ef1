#!/usr/bin/env python3
"""
compare_torch.py [OPTION...] - the same GPT-2 in Weft and in PyTorch: time, memory and losses.
Run by compare_torch.sh, which makes the environment.

Same shapes, initial weights, sequences, AdamW, clipping and learning rates (torch_gpt.py). The
contestants alternate, each a process of its own, in rounds; a figure is the median of the
rounds, a ratio the median of the rounds' ratios. PyTorch runs eager and compiled, on one thread
and two, and as two DDP processes over gloo; Weft on one thread and two, with --dp 2 and --tp 2.

PyTorch runs with the settings that make it fastest on this machine. Those known to matter are
tried one by one (torch_settings.py), and kept where they win 2 % of an eager step on two threads:
MKL's kernels for Intel also on AMD, huge pages and memory that is never given back (or
jemalloc or tcmalloc, where installed), how threads wait, and, eager, the loss in chunks.
Always: fused attention, fused AdamW, one matrix for q, k and v, gradient buckets as views.

Peak memory is resident memory of all processes, PyTorch's after its first steps; "of training"
leaves out what PyTorch takes before there is a model.

With --dtype bf16 Weft trains with --dtype bf16 and PyTorch under autocast to bf16, whose weights
are fp32 as well; Weft in fp32 alternates with them.

Status 1: a run failed, or losses of the first steps differ: PyTorch's from Weft's by over 1e-5
of themselves (bf16: 1e-2), Weft's from one another by a bit; or gradients do, by their norms.
"""
import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from torch_contestants import (BF16_COMPARISONS, BF16_CONTESTANTS, COMPARISONS, CONTESTANTS,
                               LONG_EAGER_AIM)
from torch_settings import Setting, candidates

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = ROOT / "scripts" / "peers" / "torch_gpt.py"
WORK = ROOT / "build" / "compare-torch"
SMALL = {"n_layer": 6, "n_embd": 384, "n_head": 6, "vocab_size": 256, "seq_len": 256,
         "global_batch_size": 8}
GPT2 = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50304, "global_batch_size": 4}
MODELS = {"small": SMALL, "124m-256": {**GPT2, "seq_len": 256},
          "124m-1024": {**GPT2, "seq_len": 1024}}
STEPS = {"small": 16, "124m-256": 10, "124m-1024": 6}
SKIPPED = 2  # steps of a run that warm up: compilation, page faults, caches
RECIPE = {"seed": 1, "lr": 1e-3, "min_lr": 1e-4, "warmup_steps": 2, "weight_decay": 0.1,
          "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip_grad": 1.0}
CHECKED = 5  # steps whose losses must agree,
WITHIN = {"fp32": 1e-5, "bf16": 1e-2}  # and how well: relative
# The gradient's norm: PyTorch's squares, summed in fp32, lose 2e-4 at 124M.
NORM_WITHIN = {"fp32": 5e-4, "bf16": 1e-1}
MIB = 1 << 20
WORTH = 0.98  # of the time without it: what a setting must reach to be kept
TRIED = 5  # steps of a setting's trial
BUSY = 0.05  # share of the machine in others' use above which figures are tentative
MEMORY_AIM = 0.6


class Failure(Exception):
    """What ends the comparison, with its text."""


@dataclasses.dataclass
class Run:
    """What one process, or one per rank, did. Memory in bytes, summed over processes."""
    ms: list
    losses: list
    norms: list
    bits: list  # Weft's losses to the bit
    peak: int
    base: int  # PyTorch's memory before the model exists
    others: float  # share of the machine that other programs used meanwhile

    @property
    def step(self):
        """Median of the steps after the warm-up."""
        return statistics.median(self.ms[SKIPPED:])


def busy_seconds():
    """Processor time used by all programs since the machine started."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def wait_for_all(processes, command):
    """Processor seconds and peak memory of all; the first failure ends the others."""
    seconds, peak = 0.0, 0
    waiting = {process.pid: process for process in processes}
    while waiting:
        for pid in list(waiting):
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if not done:
                continue
            code = waiting.pop(pid).returncode = os.waitstatus_to_exitcode(status)
            seconds += usage.ru_utime + usage.ru_stime
            peak += usage.ru_maxrss << 10
            if code:
                raise Failure(f"status {code}: {' '.join(command)}")
        time.sleep(0.02)
    return seconds, peak


class Arena:
    """Runs contestants on one model."""

    def __init__(self, arguments, folder):
        self.gpt_train = arguments.gpt_train
        self.folder = pathlib.Path(folder)
        self.number = itertools.count()
        self.steps = arguments.steps
        self.model = MODELS[arguments.model]
        self.job = {**self.model, **RECIPE, "skip": SKIPPED, "data": str(arguments.data),
                    "weights": str(self.folder / "weights.safetensors"), "chunked_loss": False,
                    "autocast": arguments.dtype == "bf16"}
        self.dtype = arguments.dtype
        self.setting = Setting("")
        self.execute([self.torch_command("weights", self.job)], dict(os.environ))

    @staticmethod
    def torch_command(command, job):
        """The command line of a PyTorch process."""
        return [sys.executable, str(PEER), command, json.dumps(job)]

    def execute(self, commands, environment):
        """Run commands at once. (peak memory, others' share of the machine)"""
        errors = self.folder / "errors"
        processes = []
        busy, start = busy_seconds(), time.monotonic()
        try:
            with open(errors, "w", encoding="utf-8") as stderr:
                for command in commands:
                    processes.append(subprocess.Popen(
                        command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr,
                        start_new_session=True))
            seconds, peak = wait_for_all(processes, commands[0])
        except Failure as failure:
            raise Failure(f"{failure}\n{errors.read_text(errors='replace')[-4000:]}") from None
        finally:
            for process in processes:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        busy = max(busy_seconds() - busy - seconds, 0)
        return peak, busy / ((time.monotonic() - start) * os.cpu_count())

    def run(self, contestant, steps=None):
        """One run of a contestant."""
        number, steps = next(self.number), steps or self.steps
        return (self.run_torch if contestant.layout is None else self.run_weft)(
            contestant, steps, self.folder / f"{number}")

    def run_weft(self, contestant, steps, log):
        """gpt_train, whose log has all that is needed."""
        options = {**self.model, **RECIPE, "steps": steps, "arch": "gpt2", "dropout": 0,
                   "threads_per_rank": contestant.threads, "val_fraction": 0,
                   "eval_interval": 0, "dtype": contestant.dtype or self.dtype}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command = [str(self.gpt_train), "--data", self.job["data"], *flags, *contestant.layout,
                   "--log-jsonl", str(log)]
        peak, others = self.execute([command], dict(os.environ))
        rows = [row for row in map(json.loads, log.read_text().splitlines()) if "step" in row]
        return Run([row["ms"] for row in rows], [row["loss"] for row in rows],
                   [row["grad_norm"] for row in rows], [row["loss_bits"] for row in rows],
                   peak, 0, others)

    def run_torch(self, contestant, steps, log):
        """A process per rank; a step is as long as its slowest rank's."""
        logs = [f"{log}.{rank}" for rank in range(contestant.ranks)]
        job = {**self.job, **self.setting.job, "steps": steps, "threads": contestant.threads,
               "ranks": contestant.ranks, "compiled": contestant.compiled,
               "meeting": f"{log}.meeting"}
        if contestant.compiled:  # which would leave the loss in chunks to eager mode
            job["chunked_loss"] = False
        environment = {**os.environ, "OMP_NUM_THREADS": str(contestant.threads),
                       "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo",
                       "TORCHINDUCTOR_CACHE_DIR": str(WORK / "inductor"), **self.setting.env}
        if self.setting.preload:
            environment["LD_PRELOAD"] = ":".join(self.setting.preload)
        _, others = self.execute([self.torch_command("train", {**job, "rank": rank, "log": log})
                                  for rank, log in enumerate(logs)], environment)
        rows = [[json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
                for log in logs]
        return Run([max(step) for step in zip(*([row["ms"] for row in rank[:-1]]
                                                for rank in rows))],
                   [row["loss"] for row in rows[0][:-1]],
                   [row["grad_norm"] for row in rows[0][:-1]], [],
                   sum(rank[-1]["peak"] for rank in rows),
                   sum(rank[-1]["base"] for rank in rows), others)


class Report:
    """Text on stdout, and the same as rows of JSON in a file."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8") if path else None

    @staticmethod
    def say(line):
        """A line of text, at once."""
        print(line, flush=True)

    def row(self, **fields):
        """A row of the file."""
        if self.file:
            self.file.write(json.dumps(fields) + "\n")
            self.file.flush()


def tune(arena, report):
    """Choose PyTorch's settings by their fastest step: other programs can only add to that."""
    eager = next(c for c in CONTESTANTS if c.name == "eager, 2 threads")
    report.say("PyTorch's fastest step, eager on 2 threads:")
    for group in candidates(WORK):
        before, ms = arena.setting, {}
        for setting in (Setting(""), *group):
            arena.setting = before + setting
            ms[setting.name] = min(arena.run(eager, SKIPPED + TRIED).ms[SKIPPED:])
            report.row(row="setting", name=arena.setting.name, ms=ms[setting.name])
        report.say("    " + ", ".join(f"{name or 'without'} {time:.0f} ms"
                                      for name, time in ms.items()))
        fastest = min(group, key=lambda setting: ms[setting.name])
        worth_it = ms[fastest.name] <= ms[""] * WORTH
        arena.setting = before + fastest if worth_it else before


def check(contestant, run, first, dtype):
    """The first run, Weft's, is the measure: Weft's others have its losses to the bit,
    PyTorch's agree, and so do gradients, as norms. The largest difference of a loss, relative.
    """
    largest, name = 0, contestant.name
    if run.bits and not contestant.dtype and run.bits != first.bits:
        raise Failure(f"{name}: losses {run.losses} are not the bits of {first.losses}")
    for step in range(min(CHECKED, len(first.losses))):
        for what, theirs, ours, within in (
                ("loss", run.losses[step], first.losses[step], WITHIN[dtype]),
                ("gradient norm", run.norms[step], first.norms[step],
                 NORM_WITHIN[dtype])):
            apart = abs(theirs / ours - 1)
            if not apart <= within:
                raise Failure(f"{name}: {what} {theirs} at step {step + 1} and {ours} in Weft "
                              f"are {apart:.1e} apart, more than {within:g}")
            if what == "loss":
                largest = max(largest, apart)
    return largest


def median_and_range(values, digits):
    """Such as 1.23  1.20..1.25"""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f}  {low:.{digits}f}..{high:.{digits}f}"


def show_runs(runs, tokens, report):
    """The table of contestants."""
    report.say(f"\n{'':26}{'ms a step':>22}{'tokens/s':>10}{'peak MiB':>10}{'of training':>13}")
    for name, rounds in runs.items():
        steps = [run.step for run in rounds]
        peak = statistics.median(run.peak for run in rounds)
        above = statistics.median(run.peak - run.base for run in rounds)
        rate = tokens / statistics.median(steps) * 1e3
        report.say(f"{name:26}{median_and_range(steps, 0):>22}{rate:10.0f}{peak / MIB:10.0f}"
                   f"{above / MIB:13.0f}")
        report.row(row="contestant", name=name, ms=statistics.median(steps), rounds=steps,
                   tokens_per_s=rate, peak_bytes=peak, training_bytes=above)


def show_ratios(runs, comparisons, long_sequences, report):
    """How many times as fast Weft is, and its share of the memory."""
    report.say(f"\n{'':44}{'times as fast':>20}{'aim':>6}{'memory':>9}{'aim':>6}")
    for weft, torch, aim in comparisons:
        if weft not in runs or torch not in runs:
            continue
        if comparisons is COMPARISONS and long_sequences and torch.startswith("eager"):
            aim = LONG_EAGER_AIM
        faster = [theirs.step / ours.step for ours, theirs in zip(runs[weft], runs[torch])]
        memory = statistics.median(ours.peak / theirs.peak
                                   for ours, theirs in zip(runs[weft], runs[torch]))
        report.say(f"{f'{weft} : {torch}':44}{median_and_range(faster, 2):>20}{aim:6.2f}"
                   f"{memory:9.2f}{MEMORY_AIM:6.2f}")
        report.row(row="ratio", weft=weft, torch=torch, times_as_fast=statistics.median(faster),
                   rounds=faster, aim=aim, memory=memory, memory_aim=MEMORY_AIM)


def compare(arguments, report, folder):
    """Everything, in order."""
    bf16 = arguments.dtype == "bf16"
    contestants = [c for c in (BF16_CONTESTANTS if bf16 else CONTESTANTS)
                   if arguments.compiled or not c.compiled]
    runs = {contestant.name: [] for contestant in contestants}
    first, others, largest = None, 0, 0
    arena = Arena(arguments, folder)
    if arguments.tune:
        tune(arena, report)
    else:
        arena.setting = next(candidates(WORK))[0]
    report.say(f"PyTorch's settings: {arena.setting.name or 'as installed'}")
    for number in range(arguments.rounds):
        for contestant in contestants[::-1] if number % 2 else contestants:
            run = arena.run(contestant)
            runs[contestant.name].append(run)
            first = first or run
            largest = max(largest, check(contestant, run, first, arguments.dtype))
            others = max(others, run.others)
            report.say(f"round {number + 1}/{arguments.rounds}  {contestant.name}: "
                       f"{run.step:.0f} ms a step")
            report.row(row="run", round=number + 1, name=contestant.name,
                       setting=arena.setting.name, **dataclasses.asdict(run))
    show_runs(runs, arena.model["global_batch_size"] * arena.model["seq_len"], report)
    show_ratios(runs, BF16_COMPARISONS if bf16 else COMPARISONS,
                arena.model["seq_len"] == 1024, report)
    report.say(f"\nlosses and gradients agree: Weft's to the bit, PyTorch's losses within "
               f"{largest:.1e} over {min(CHECKED, arguments.steps)} steps")
    if others > BUSY:
        report.say(f"TENTATIVE: taken under load; other programs used up to {others:.0%} of "
                   "the machine during a run")
    report.row(row="end", largest_difference=largest, others=others, tentative=others > BUSY)


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of a run (16, 10, 6 by model)")
    parser.add_argument("--quick", action="store_true",
                        help="one round of few steps, and no trial of settings")
    parser.add_argument("--no-compiled", dest="compiled", action="store_false",
                        help="leave out torch.compile")
    parser.add_argument("--no-tune", dest="tune", action="store_false",
                        help="no trial of settings: take the first for this processor")
    parser.add_argument("--json", metavar="FILE", help="write each run and ratio as a JSON row")
    parser.add_argument("--gpt-train", type=pathlib.Path, metavar="FILE",
                        default=ROOT / "build" / "apps" / "gpt_train")
    parser.add_argument("--data", type=pathlib.Path, metavar="FILE",
                        default=ROOT / "build" / "corpus.txt")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.tune = 1, False
    arguments.steps = arguments.steps or (SKIPPED + 4 if arguments.quick
                                          else STEPS[arguments.model])
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            compare(arguments, Report(arguments.json), folder)
    except Failure as failure:
        print(f"compare_torch: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
