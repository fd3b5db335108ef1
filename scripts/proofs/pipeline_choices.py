"""
pipeline_choices.py - what exactness.py --pipeline chooses from: schedules, among them tables made by chance, numbers
of ranks and stages, cuts of the model, and all that goes with them; and which of it goes together.
"""
import collections
import random
import shutil
import subprocess

from training_runs import (ARCHS, FAMILIES, HYBRID, UNGROUPED, Covering, Failure, Trainer, compare_choices,
                           first_difference, in_turn)

STEPS, QUICK_STEPS = 4, 2
LAYERS = 14  # with embedding and last norm, a step for each of 16 stages
WIDTH, QUICK_WIDTH = 48, 24
QUICK_BATCHES = (4, 8)
MODEL = ["--n-layer", str(LAYERS), "--n-head", "12", "--vocab-size", "257",
         "--seq-len", "16", "--lr", "3e-3", "--eval-interval", "0", "--digest"]
DTYPES = {"fp32": [], "bf16": ["--dtype", "bf16"], "bf16 weights": ["--param-dtype", "bf16"]}
ONE_STAGE = ("1f1b", "gpipe", "zb-h2")  # a rank
TWO_STAGES = ("zb-v", "v-half", "v-min", "dualpipe-v")
AGAIN = "by chance 2"  # recomputes forwards
OVERLAPPING = ("dualpipe-v", "by chance 3")  # pairs of actions on two stages of a rank
LOWERED = "by chance 4"  # has messages, gathers and reductions
BY_CHANCE = ("by chance 1", AGAIN, "by chance 3", LOWERED)
FIRST_STAGES = "embed,block.0,block.1,block.2"
CHOICES = {
    "schedule": (),  # those of `schedule list` and BY_CHANCE
    "strategy": (*UNGROUPED, *HYBRID),
    "split": ("auto", "uneven", "paths", "hollow", "hollow end"),
    "pp": (1, 2, 4, 8),
    "virtual": (1, 2),
    "tp": (1, 2),
    "dp": (1, 2, 4),
    "group": (None, 1, 2, 4),  # ranks of a group, of hybrid strategies alone
    "depth": (0, 32),
    "resident": (0, 1, 2),
    "accumulate": ("auto", "local", "reduced", "group:2"),
    "recompute": ("none", "block", "attention", "stage"),
    "wrap": ("--wrap-type block", "--wrap-type attention", "--wrap-type mlp",
             "--wrap-min-params 5000", "--wrap-min-params 100000"),
    "prefetch": (0, 1, 3),
    "reshard": ("default", "always", "never"),
    "sequence": (False, True),
    "send": ("whole", "split"),
    "micro": (1, 2),
    "batch": (4, 32),
    "arch": ("gpt2", "llama", "llama tied"),
    "frozen": (None, FIRST_STAGES, "block.3,block.4,block.5.attn,norm"),
    "dropout": (0, 0.1),
    "dtype": tuple(DTYPES),
    "optimizer": ("adamw", "muon", "sgd"),
}
ODD = 12  # a batch whose micro-batches, of a sequence each, are no power of two
MOST_DRAWN = 200  # tables, for one that can run


def choices(program, quick=False):
    """CHOICES with the schedules that there are."""
    done = subprocess.run([program, "list"], stdout=subprocess.PIPE, text=True, check=True)
    names = [line.split()[0] for line in done.stdout.splitlines()]
    return {**CHOICES, "schedule": (*names, *BY_CHANCE), **({"batch": QUICK_BATCHES} if quick else {})}


def possible(run):
    """Whether the values of a run, some of which may be open, go together."""
    schedule, dp = run.get("schedule"), run.get("dp", 4)
    virtual = run.get("virtual", 1 if schedule in ONE_STAGE else 2)
    group = run.get("group", "open")
    least = run.get("dp", 1 if group in ("open", None) else group)  # ranks that split the batch
    micros = run.get("batch", 32) / (least * run.get("micro", 1))
    if virtual != 1 and schedule in ONE_STAGE or virtual != 2 and schedule in TWO_STAGES:
        return False
    if micros < (2 if run.get("accumulate") == "group:2" else 1):
        return False
    if schedule == "dualpipe-v" and micros < 2 * run.get("pp", 1):
        return False
    if schedule in OVERLAPPING and run.get("resident") == 1:
        return False
    if schedule in (AGAIN, LOWERED) and run.get("recompute") == "stage":
        return False
    if schedule == LOWERED and (run.get("depth") or run.get("resident")
                                or run.get("frozen") == FIRST_STAGES):
        return False
    if run.get("pp", 8) * virtual < {"auto": 1, "hollow": 3}.get(run.get("split", "auto"), 2):
        return False
    if "strategy" in run and group != "open" and (run["strategy"] in HYBRID) == (group is None):
        return False
    return group in ("open", None) or group <= dp


def split_text(split, stages):
    """A cut of the model's steps: embedding, blocks and last norm."""
    if split == "auto":
        return "auto"
    weights = [1 if split.startswith("hollow") else 1 + 4 * (stage % 2) for stage in range(stages)]
    if split == "hollow":
        weights[stages // 2] = 0
    if split == "hollow end":
        weights[-1] = 0
    ends = [(LAYERS + 1) * sum(weights[:stage + 1]) // sum(weights) + 1
            for stage in range(stages)]  # stage 0 has one step at least
    if split != "paths":
        return ",".join(str(end - begin) for begin, end in zip([0, *ends], ends))
    return ",".join(f"block.{end - 1}" if end <= LAYERS else "norm" for end in ends[:-1])


def numbers(run):
    """Flags that change a run's numbers."""
    arch, _, tied = run["arch"].partition(" ")
    return [*FAMILIES[arch], *(["--tie-embeddings", "on"] if tied else []),
            *(["--freeze", run["frozen"]] if run["frozen"] else []), "--dropout", str(run["dropout"]), *DTYPES[run["dtype"]],
            "--optimizer", run["optimizer"], "--global-batch-size", str(run["batch"]),
            *(["--micro-batch-size", "1"] if run["batch"] == ODD else [])]


def layout(run):
    """The others."""
    return ["--pp", str(run["pp"]), "--pp-schedule", run["table"], "--pp-virtual",
            str(run["virtual"]), *(["--pp-depth", str(run["depth"])] if run["pp"] > 1 else []),
            "--pp-resident", str(run["resident"]), "--pp-split", split_text(run["split"], run["pp"] * run["virtual"]),
            "--tp", str(run["tp"]), "--dp", str(run["dp"]), "--strategy", run["strategy"],
            *(["--shard-group-size", str(run["group"])] if run["group"] else []),
            "--accumulate", run["accumulate"], "--recompute", run["recompute"],
            *run["wrap"].split(), "--prefetch", str(run["prefetch"]),
            "--reshard-after-forward", run["reshard"], "--micro-batch-size", str(run["micro"]),
            *(["--sequence-parallel"] if run["sequence"] and run["tp"] > 1 else []),
            *(["--pp-send", run["send"]] if run["pp"] > 1 and run["tp"] > 1 and not run["sequence"] else []),
            "--threads-per-rank", "1"]


class Draw:
    """A table by chance: stages lie on any ranks, and of all that can be done next, something is."""

    def __init__(self, source, name, ranks, stages, micros):
        self.source, self.name, self.stages, self.micros = source, name, stages, micros
        self.stage_rank = [*range(ranks), *(source.randrange(ranks) for _ in range(stages - ranks))]
        source.shuffle(self.stage_rank)
        self.apart = source.random()  # share of backward passes that are I and W
        self.deep = source.random() / 2  # share of actions that go on with what came last
        self.rows = [[] for _ in range(ranks)]
        self.ready = [("F", 0, micro) for micro in range(micros)]
        while self.ready:
            at = 0 if source.random() < self.deep else source.randrange(len(self.ready))
            self.perform(*self.ready.pop(at))

    def perform(self, kind, stage, micro):
        """One more action of a row, and what can be done after it."""
        if kind == "B" and self.name == AGAIN and self.source.random() < 0.5:
            self.rows[self.stage_rank[stage]].append(("R", stage, micro))
        if kind == "B" and self.source.random() < self.apart:
            kind = "I"
            self.ready.append(("W", stage, micro))
        self.rows[self.stage_rank[stage]].append((kind, stage, micro))
        if kind == "F":
            last = stage + 1 == self.stages
            self.ready.insert(0, ("B", stage, micro) if last else ("F", stage + 1, micro))
        elif kind != "W" and stage:
            self.ready.insert(0, ("B", stage - 1, micro))

    def row_text(self, row):
        """A row, weights of micro-batches that follow each other as one action, some pairs as one."""
        words, after = [], None  # of what the next action may overlap
        for kind, stage, micro in row:
            if words and kind == "W" and words[-1][:2] == ["W", stage] and \
                    words[-1][3] + 1 == micro:
                words[-1][3] = micro
            else:
                words.append([kind, stage, micro, micro])
        texts = []
        for kind, stage, first, last in words:
            texts.append(f"{kind}{stage}.{first}" + (f"-{last}" if last > first else ""))
            pair = kind in "BI" and after is not None and after != stage
            if self.name in OVERLAPPING and pair and self.source.random() < 0.3:
                texts[-2:] = [f"({texts[-2]} + {texts[-1]})"]
                after = None
            else:
                after = stage if kind == "F" else None
        return " ".join(texts)

    def text(self):
        """The file."""
        head = (f"weft-schedule 1\nstages {self.stages}  micro {self.micros}  place "
                + " ".join(map(str, self.stage_rank)))
        return "\n".join([head, *(f"{rank}: {self.row_text(row)}"
                                  for rank, row in enumerate(self.rows))]) + "\n"


class Tables:
    """Files of tables by chance, one for each name and size, which the tool has proved."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.drawn = self.refused = 0

    def of(self, run):
        """What --pp-schedule is given."""
        if run["schedule"] not in BY_CHANCE:
            return run["schedule"]
        micros = run["batch"] // run["dp"] // run["micro"]
        sizes = (run["pp"], run["pp"] * run["virtual"], micros)
        path = self.folder / "-".join(map(str, (run["schedule"].replace(" ", "-"), *sizes)))
        if not path.exists():
            source = random.Random(path.name)
            self.make(path, (source, run["schedule"], *sizes))
            if run["schedule"] == LOWERED:
                self.lower(path, source, micros)
        return path

    def lower(self, path, source, micros):
        """The table with all that ranks do beside it, in one of the orders that there are."""
        even = micros & (micros - 1) == 0
        values = {"--ahead": source.randint(1, 3), "--prefetch": source.randint(1, 3),
                  "--resident": source.randint(0, 2), "--group": source.choice((0, micros * even))}
        values["--prefetch"] *= values["--resident"] > 0
        flags = [word for flag, value in values.items() if value for word in (flag, str(value))]
        flags += [flag for flag in ("--tied", "--recompute") if source.random() < 0.5]
        done = subprocess.run([self.program, "lower", path, *flags], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise Failure(f"schedule lower {' '.join(flags)}: status {done.returncode}: "
                          f"{done.stderr}\n{path.read_text()}")
        path.write_text(done.stdout)

    def make(self, path, how):
        """The first drawn table that can run: sends may need more room than there is."""
        for _ in range(MOST_DRAWN):
            path.write_text(Draw(*how).text())
            done = subprocess.run([self.program, "check", path], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode == 0:
                self.drawn += 1
                return
            if done.returncode != 1:
                raise Failure(f"schedule check {path}: status {done.returncode}: {done.stderr}")
            self.refused += 1
        raise Failure(f"none of {MOST_DRAWN} tables for {path.name} can run: {done.stderr}")


def in_processes(runs, count):
    """`count` of the runs with a rank for each of 2 and 4 processes, and as many with several."""
    chosen = []
    for processes in (2, 4):
        for several in (False, True):
            fitting = [run for run in runs
                       if run["pp"] > 1 and run["pp"] * run["tp"] * run["dp"] % processes == 0
                       and (run["pp"] * run["tp"] * run["dp"] > processes) == several]
            chosen += [{**run, "processes": processes}
                       for run in fitting[::max(1, len(fitting) // count)][:count]]
    return chosen


def check_control(trainer, tables):
    """Without exactness the order of a table does show, or equal bits would prove nothing."""
    run = {"schedule": BY_CHANCE[0], "pp": 2, "virtual": 1, "batch": 32, "dp": 1, "micro": 1}
    for arch, flags in ARCHS.items():
        flags = [*flags, "--exact", "off", "--global-batch-size", "32", "--micro-batch-size", "1"]
        off = [trainer.run([*flags, *more]) for more in
               ([], ["--pp", "2", "--pp-schedule", str(tables.of(run))])]
        difference = first_difference(off[1], off[0])
        if not difference:
            raise Failure(f"{arch} with --exact off: pp 2 has the bits of pp 1 too, so that equal "
                          f"bits prove nothing")
        print(f"{arch} with --exact off: pp 2 differs from pp 1 at {difference.partition(':')[0]}")


def compare(gpt_train, folder, jobs, quick, part):
    """A covering part of all that pipelines can choose, against one rank; of it part[0] of part[1]."""
    width, steps = (QUICK_WIDTH, QUICK_STEPS) if quick else (WIDTH, STEPS)
    trainer = Trainer(gpt_train, folder, [*MODEL, "--n-embd", str(width)], steps)
    program = gpt_train.parent / "schedule"
    tables = Tables(program, trainer.folder)
    check_control(trainer, tables)
    covering = Covering(choices(program, quick), possible, 2 if quick else 3)
    runs = list(covering.runs)
    odd = [{**run, "batch": ODD, "micro": 1} for run in runs if run["dp"] == 1 and run["pp"] > 1]
    runs += [run for run in odd if possible(run)][::10]
    if shutil.which("mpirun") and (gpt_train.parent.parent / "libweft_mpi.so").exists():
        runs += in_processes(covering.runs, 1 if quick else 15)
    else:
        print("SKIPPED: runs in several processes, since there is no mpirun or no libweft_mpi.so")
    runs = list(in_turn(runs))[part[0] - 1::part[1]]
    runs = [{**run, "table": str(tables.of(run))} for run in runs]
    print(f"{covering.met} of every {'two' if quick else 'three'} values of as many choices meet, "
          f"{covering.left_out} cannot; {tables.drawn} tables were made by chance, and "
          f"{tables.refused} refused that need more room for messages than there is; part {part[0]} of {part[1]} runs")
    compare_choices(trainer, jobs, runs, numbers,
                    lambda run: (layout(run), run.get("processes", 0)))
    passed = collections.Counter((run["schedule"], run["pp"]) for run in runs)
    print(f"{'equal runs':12}" + "".join(f"{f'pp {pp}':>8}" for pp in CHOICES["pp"]))
    for schedule in choices(program)["schedule"]:
        print(f"{schedule:12}" + "".join(f"{passed[schedule, pp]:>8}" for pp in CHOICES["pp"]))
    print("in processes: " + ", ".join(
        f"{count} in {processes}" for processes, count in
        collections.Counter(run.get("processes", 0) for run in runs).items() if processes))
