"""
training_runs.py - for scripts that compare runs of gpt_train: a text to train on, a run as the loss bits
and the digest of its steps, many runs at a time, and choices of which every few values meet in a run.
"""
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 600  # seconds for a run of a second or so: it hangs
ARCHS = {"gpt2": ["--arch", "gpt2"], "llama": ["--arch", "llama", "--n-kv-head", "3"]}


def rows(table, macro):
    """The rows of a table of Weft's: lists of their columns as text."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / table).read_text(), flags=re.S)
    return [[column.strip().strip('"') for column in row.split(",")] for row in re.findall(rf"^{macro}\((.*?)\)$", text, re.M | re.S)]


# Properties of families that a model of this size shows.
SHOWN = {"mistral": "--sliding-window 9", "smollm3": "--rope-skip 2", "phi3": "--norm-eps 0.001",
         "ministral": "--sliding-window 9 --window-blocks 0", "olmo3": "--sliding-window 9 --window-rope-base 100",
         "gemma2": "--sliding-window 9 --score-cap 2 --logit-cap 3", "gemma3_text": "--sliding-window 9 --window-rope-base 100",
         "granite": "--embedding-scale 3 --residual-scale 0.6 --attention-scale 0.3 --logit-divisor 2"}
# Their layouts are those of exactness.py --moe: they have no MLPs to wrap or to adapt.
MIXTURES = ("mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "granitemoe", "granitemoeshared", "llama4_text")
POST_NORM = {name for name, *columns in rows("nn/models/gpt/families.def", "FAMILY") if ".order = WF_NN_POST_NORM" in columns}
FAMILIES = ARCHS | {name: ["--arch", name, "--n-kv-head", "3", *SHOWN.get(name, "").split()]
                    for name, *_ in rows("nn/models/gpt/families.def", "FAMILY") if name not in (*ARCHS, *MIXTURES)}
STRATEGIES = {name: groups == "1" for name, groups, *_ in rows("parallel/shard/strategies.def", "STRATEGY")}
HYBRID = tuple(name for name, groups in STRATEGIES.items() if groups)
UNGROUPED = tuple(name for name, groups in STRATEGIES.items() if not groups)
SCHEDULES = {name: int(stages) for name, _, stages, *_ in rows("parallel/pipeline/schedules.def", "SCHEDULE")}
MPIRUN = ["mpirun", "--quiet", "--oversubscribe", "--bind-to", "none"]


class Failure(Exception):
    """What ends the comparison, with its text."""


def write_text(path):
    """Words of a made-up language: text enough to learn from, the same on every machine."""
    source = random.Random(1)
    words = ["".join(source.choice(("ba", "no", "ri", "se", "tu", "len", "dor", "mi"))
                     for _ in range(source.randint(1, 4))) for _ in range(500)]
    path.write_text(" ".join(words[min(int(source.expovariate(0.02)), 499)]
                             + source.choice(("", "", "", ",", ".\n")) for _ in range(30000)))


class Trainer:
    """Runs of gpt_train on one text."""

    def __init__(self, program, folder, model, steps):
        self.program = program
        self.model = model
        self.steps = steps
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "text"
        self.number = itertools.count()
        write_text(self.data)

    def environment(self, isa):
        """What the program finds: the plugins of its build, and an OpenMPI that root may use."""
        return dict(os.environ, WEFT_PLUGINS=str(self.program.parent.parent),
                    OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                    **({"WEFT_CPU_ISA": isa} if isa else {}))

    def reported(self, command):
        """A command as people read it, with the files that are gone when the script ends."""
        files = [pathlib.Path(word) for word in command if word.startswith(f"{self.folder}/")]
        return "\n".join([" ".join(command), *(f"{file.name}:\n{file.read_text()}" for file in files
                                               if file.exists() and file != self.data)])

    def run(self, options, isa=None, processes=0):
        """(loss bits, digest) of every step; raises Failure with the command that failed."""
        return self.run_with_errors(options, isa, processes)[0]

    def run_with_errors(self, options, isa=None, processes=0):
        """The same, and what the run wrote to standard error."""
        log = self.folder / f"{next(self.number)}.jsonl"
        command = [*(MPIRUN + ["-np", str(processes)] if processes else []), str(self.program),
                   "--data", str(self.data), *self.model, *options, "--steps", str(self.steps),
                   "--log-jsonl", str(log)]
        try:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True, timeout=TIMEOUT, env=self.environment(isa),
                                  check=False)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"no end after {TIMEOUT} s: {self.reported(command)}") from error
        if done.returncode:
            raise Failure(f"status {done.returncode}: {self.reported(command)}\n{done.stderr}")
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        log.unlink()
        steps = [(row["loss_bits"], row["digest"]) for row in rows if "step" in row]
        if len(steps) != self.steps:
            raise Failure(f"{len(steps)} rows of {self.steps} steps: {' '.join(command)}")
        return steps, done.stderr


def in_turn(runs):
    """Runs with the other families, one after the other, where they have a Llama."""
    others = itertools.cycle([name for name in FAMILIES if name != "gpt2"])
    return [{**run, "arch": next(name for name in others if goes_together({**run, "arch": name}))}
            if run["arch"] == "llama" else run for run in runs]


def goes_together(run):
    """A residual stream in fp32 needs norms before attention and MLP."""
    return run.get("dtype") != "bf16, residual fp32" or run.get("arch") not in POST_NORM


def first_difference(steps, reference):
    """Text about the first step that differs, or None."""
    for i, (mine, other) in enumerate(zip(steps, reference)):
        if mine != other:
            return (f"step {i + 1}: loss {mine[0]}, digest {mine[1]} instead of "
                    f"loss {other[0]}, digest {other[1]}")
    return None


class Progress:
    """A line that says how far it is and how long it will take."""

    def __init__(self, total):
        self.total, self.done = total, 0
        self.start = self.shown = time.monotonic()

    def step(self, what):
        """Count one; on a terminal the line is rewritten, in a file one is added at times."""
        self.done += 1
        now = time.monotonic()
        left = (now - self.start) / self.done * (self.total - self.done)
        line = f"{self.done}/{self.total}  {left:.0f} s left  {what}"
        if sys.stdout.isatty():
            print(f"\r\033[K{line[:79]}", end="" if self.done < self.total else "\n", flush=True)
        elif now - self.shown > 10 or self.done == self.total:
            self.shown = now
            print(line, flush=True)

    def seconds(self):
        """Since the start."""
        return time.monotonic() - self.start


def all_of(jobs, tasks, done):
    """Call the tasks on `jobs` threads, and done(task's key, result) as each ends."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(task): key for key, task in tasks}
        try:
            for future in concurrent.futures.as_completed(futures):
                done(futures[future], future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def compare_choices(trainer, jobs, runs, numbers, layout):
    """Runs of values by choice: numbers(run) are the flags that change a run's numbers, layout(run) those that do not,
    and in how many processes, 0 for this one. Each has the loss bits and digests of one rank."""
    kinds = {tuple(numbers(run)): None for run in runs}
    progress = Progress(len(runs) + len(kinds))

    def found(kind, steps):
        kinds[kind] = steps
        progress.step(" ".join(kind))

    all_of(jobs, [(kind, lambda k=kind: trainer.run([*k, "--threads-per-rank", "1"]))
                  for kind in kinds], found)
    seen = {}
    for kind, steps in kinds.items():
        if seen.setdefault(steps[-1], kind) != kind:
            raise Failure(f"two models have the same digest: one of what they differ in has no effect:\n"
                          f"{' '.join(kind)}\n{' '.join(seen[steps[-1]])}")

    def done(number, steps):
        kind = tuple(numbers(runs[number]))
        flags, processes = layout(runs[number])
        where = f"{processes} processes" if processes else "one process"
        difference = first_difference(steps, kinds[kind])
        if difference:
            command = [*trainer.model, "--steps", str(trainer.steps), *kind, *flags]
            raise Failure(f"differs from one rank at {difference}\nin {where}: "
                          f"{trainer.reported(command)}")
        progress.step(f"{where}: {' '.join([*kind, *flags])}")

    def task(run):
        flags, processes = layout(run)
        return trainer.run([*numbers(run), *flags], processes=processes)

    all_of(jobs, [(number, lambda r=run: task(r)) for number, run in enumerate(runs)], done)
    print(f"{len(runs)} runs of {trainer.steps} steps: the loss bits and digest of every step are "
          f"those of one rank, of which {len(kinds)} were run ({progress.seconds():.0f} s)")


class Covering:
    """Runs in which every `strength` values of different choices meet, where the rules let them."""

    def __init__(self, choices, possible, strength):
        self.possible = possible
        self.strength = strength
        self.source = random.Random(1)
        self.values = [(name, value) for name in choices for value in choices[name]]
        self.names = list(choices)
        numbers = itertools.count()
        self.of = {name: [next(numbers) for _ in choices[name]] for name in choices}
        self.runs, self.met, self.left_out = [], 0, 0
        self.missing = [set() for _ in self.values]  # of each value: what else it has to meet
        for names in itertools.combinations(choices, strength):
            for chosen in itertools.product(*(self.of[name] for name in names)):
                if possible(self.run_of(chosen)):
                    self.mark(chosen, set.add)
                else:
                    self.left_out += 1
        self.cover()

    def run_of(self, chosen):
        """Values by the names of their choices."""
        return dict(self.values[number] for number in chosen)

    def mark(self, chosen, change):
        """Add a meeting to those that are missing, or take it away."""
        for number in chosen:
            change(self.missing[number], tuple(other for other in chosen if other != number))

    def gain(self, number, chosen):
        """How many missing meetings a value adds to a run."""
        others = set(itertools.combinations(sorted(chosen), self.strength - 1))
        return len(self.missing[number] & others)

    def complete(self, chosen, names):
        """A run with its open choices made, the most useful values first; None: there is none. `names` are the open choices,
        each with the values that are left of it. A choice with none left ends the search here: met later, it would be met once
        for all values of all choices before it."""
        if not names:
            return chosen
        fitting = {name: [number for number in of if self.possible(self.run_of((*chosen, number)))] for name, of in names.items()}
        if not all(fitting.values()):
            return None
        name, *others = fitting
        self.source.shuffle(fitting[name])
        for number in sorted(fitting[name], key=lambda n: -self.gain(n, chosen)):
            whole = self.complete((*chosen, number), {other: fitting[other] for other in others})
            if whole:
                return whole
        return None

    def cover(self):
        """One run after the other, each for one meeting that is missing and as many as can be."""
        for number, missing in enumerate(self.missing):
            while missing:
                first = (number, *min(missing))
                taken = self.run_of(first)
                names = [name for name in self.names if name not in taken]
                self.source.shuffle(names)
                whole = self.complete(first, {name: self.of[name] for name in names})
                if not whole:  # every value of an open choice was tried
                    self.mark(tuple(sorted(first)), set.discard)
                    self.left_out += 1
                    continue
                for meeting in itertools.combinations(sorted(whole), self.strength):
                    self.met += meeting[1:] in self.missing[meeting[0]]
                    self.mark(meeting, set.discard)
                self.runs.append(self.run_of(sorted(whole)))
