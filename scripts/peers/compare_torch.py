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
import collections.abc
import contextlib
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
                               SKIPPED)
from torch_report import Report, show_ratios, show_runs
from torch_settings import Setting, candidates
from torch_turns import Stopped, take_turns

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = ROOT / "scripts" / "peers" / "torch_gpt.py"
WORK = ROOT / "build" / "compare-torch"
SMALL = {"n_layer": 6, "n_embd": 384, "n_head": 6, "vocab_size": 256, "seq_len": 256,
         "global_batch_size": 8}
GPT2 = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50304, "global_batch_size": 4}
MODELS = {"small": SMALL, "124m-256": {**GPT2, "seq_len": 256},
          "124m-1024": {**GPT2, "seq_len": 1024}}
STEPS = {"small": 16, "124m-256": 10, "124m-1024": 6}
RECIPE = {"seed": 1, "lr": 1e-3, "min_lr": 1e-4, "warmup_steps": 2, "weight_decay": 0.1,
          "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip_grad": 1.0}
CHECKED = 5  # steps whose losses must agree,
WITHIN = {"fp32": 1e-5, "bf16": 1e-2}  # and how well: relative
# The gradient's norm: PyTorch's squares, summed in fp32, lose 2e-4 at 124M.
NORM_WITHIN = {"fp32": 5e-4, "bf16": 1e-1}
WORTH = 0.98  # of the time without it: what a setting must reach to be kept
TRIED = 5  # steps of a setting's trial
BUSY = 0.05  # share of the machine in others' use above which figures are tentative


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


@dataclasses.dataclass
class Started:
    """A run before its end."""
    commands: list
    environment: dict
    log: pathlib.Path  # a line per step, of the first process
    result: collections.abc.Callable  # (peak, others): its Run, after its end
    processes: list = dataclasses.field(default_factory=list)


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
        self.errors = self.folder / "errors"
        self.execute(Started([self.torch_command("weights", self.job)], dict(os.environ), None,
                             None))

    @staticmethod
    def torch_command(command, job):
        """The command line of a PyTorch process."""
        return [sys.executable, str(PEER), command, json.dumps(job)]

    def start(self, started):
        """Start a run's processes, at once."""
        with open(self.errors, "a", encoding="utf-8") as stderr:
            for command in started.commands:
                started.processes.append(subprocess.Popen(
                    command, env=started.environment, stdout=subprocess.DEVNULL, stderr=stderr,
                    start_new_session=True))

    @contextlib.contextmanager
    def no_process_left(self, all_started):
        """A failure has what was written to stderr, and ends all processes of runs."""
        try:
            yield
        except Failure as failure:
            raise Failure(f"{failure}\n"
                          f"{self.errors.read_text(errors='replace')[-4000:]}") from None
        finally:
            for process in (p for started in all_started for p in started.processes):
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def execute(self, started):
        """Run it. (peak memory, others' share of the machine)"""
        busy, start = busy_seconds(), time.monotonic()
        with self.no_process_left([started]):
            self.start(started)
            seconds, peak = wait_for_all(started.processes, started.commands[0])
        busy = max(busy_seconds() - busy - seconds, 0)
        return peak, busy / ((time.monotonic() - start) * os.cpu_count())

    def started(self, contestant, steps):
        """What a run of a contestant is started with."""
        log = self.folder / f"{next(self.number)}"
        return (self.torch_started if contestant.layout is None else self.weft_started)(
            contestant, steps, log)

    def run(self, contestant, steps=None):
        """One run of a contestant."""
        started = self.started(contestant, steps or self.steps)
        return started.result(*self.execute(started))

    def run_in_turns(self, contestants):
        """One run of each, whose steps take turns: {name: run}. Others' share of the machine
        is that of all."""
        runs = {c.name: self.started(c, self.steps) for c in contestants}
        stopped, results, seconds = {}, {}, 0.0
        busy, begin = busy_seconds(), time.monotonic()
        with self.no_process_left(runs.values()):
            for name, started in runs.items():
                self.start(started)
                stopped[name] = Stopped(started.processes[0], started.log)
                for _ in range(SKIPPED):
                    stopped[name].take_step()
            ms = take_turns(stopped, self.steps - SKIPPED)
            for name, started in runs.items():
                stopped[name].signal(signal.SIGCONT)
                more, peak = wait_for_all(started.processes, started.commands[0])
                seconds += more
                results[name] = started.result(peak, 0)
                results[name].ms[SKIPPED:] = ms[name]
        busy = max(busy_seconds() - busy - seconds, 0)
        busy /= (time.monotonic() - begin) * os.cpu_count()
        return {name: dataclasses.replace(run, others=busy) for name, run in results.items()}

    def weft_started(self, contestant, steps, log):
        """gpt_train, whose log has all that is needed."""
        options = {**self.model, **RECIPE, "steps": steps, "arch": "gpt2", "dropout": 0,
                   "threads_per_rank": contestant.threads, "val_fraction": 0,
                   "eval_interval": 0, "dtype": contestant.dtype or self.dtype}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command = [str(self.gpt_train), "--data", self.job["data"], *flags, *contestant.layout,
                   "--log-jsonl", str(log)]

        def result(peak, others):
            rows = [row for row in map(json.loads, log.read_text().splitlines())
                    if "step" in row]
            return Run([row["ms"] for row in rows], [row["loss"] for row in rows],
                       [row["grad_norm"] for row in rows], [row["loss_bits"] for row in rows],
                       peak, 0, others)

        return Started([command], dict(os.environ), log, result)

    def torch_started(self, contestant, steps, log):
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

        def result(_peak, others):
            rows = [[json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
                    for log in logs]
            return Run([max(step) for step in zip(*([row["ms"] for row in rank[:-1]]
                                                    for rank in rows))],
                       [row["loss"] for row in rows[0][:-1]],
                       [row["grad_norm"] for row in rows[0][:-1]], [],
                       sum(rank[-1]["peak"] for rank in rows),
                       sum(rank[-1]["base"] for rank in rows), others)

        commands = [self.torch_command("train", {**job, "rank": rank, "log": log})
                    for rank, log in enumerate(logs)]
        return Started(commands, environment, pathlib.Path(logs[0]), result)


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
    if run.bits and not contestant.bits_alone and run.bits != first.bits:
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


def compare(arguments, report, folder):
    """Everything, in order."""
    bf16 = arguments.dtype == "bf16"
    contestants = [c for c in (BF16_CONTESTANTS if bf16 else CONTESTANTS)
                   if (arguments.compiled or not c.compiled)
                   and arguments.threads in (None, c.threads * c.ranks)
                   and not (arguments.turns and c.layout is None and c.ranks > 1)]
    runs = {contestant.name: [] for contestant in contestants}
    first, others, largest = None, 0, 0
    arena = Arena(arguments, folder)
    if arguments.tune:
        tune(arena, report)
    else:
        arena.setting = next(candidates(WORK))[0]
    report.say(f"PyTorch's settings: {arena.setting.name or 'as installed'}")
    for number in range(arguments.rounds):
        together = arena.run_in_turns(contestants) if arguments.turns else {}
        for contestant in contestants[::-1] if number % 2 else contestants:
            run = together.get(contestant.name) or arena.run(contestant)
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
                arena.model["seq_len"] == 1024, arguments.turns, report)
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
    parser.add_argument("--threads", type=int,
                        help="leave out all but those of so many threads or ranks")
    parser.add_argument("--turns", action="store_true",
                        help="steps take turns, not runs, DDP's left out: for a machine whose "
                             "speed changes from second to second")
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
