"""
context_choices.py - the part of exactness.py that compares ranks which split the tokens of a sequence (--cp).
"""
import collections
import random
import struct

from training_runs import FAMILIES, MIXTURES, UNGROUPED, Covering, Failure, Trainer, compare_choices, first_difference

STEPS = 2
HEADS = 12
MODEL = ["--n-embd", "24", "--n-head", str(HEADS), "--vocab-size", "257", "--global-batch-size", "2", "--lr",
         "3e-3", "--eval-interval", "0", "--digest"]
LONGEST = 32768
SHORT = (1000, 1024)  # no rank of these has a chunk of its own
QUICK, ALL, LAYOUTS = 6, 600, 9
NUMBERS = ("length", "arch", "kv", "window", "sinks", "documents", "dtype", "dropout", "adapter", "experts")
EXPERTS = ("", "--n-expert 4 --moe-top-k 2", "--n-expert 8 --moe-top-k 1 --moe-shared 24 --moe-router sigmoid --moe-balance bias --moe-weigh-input on",
           "--n-expert 8 --moe-top-k 2 --moe-balance sequence --moe-sequence-weight 0.1 --moe-z-weight 0.1")
CHOICES = {
    "cp": (2, 4, 8),
    "form": ("auto", "heads", "gather"),
    "tp": (1, 2, 4),
    "sequence": (False, True),
    "dp": (1, 2),
    "pp": ("1", "2", "2 --pp-schedule zb-h1", "2 --pp-schedule gpipe"),
    "micro": (1, 2),
    "length": (2048, 4096, 4097, 8192, LONGEST),
    "arch": tuple(name for name in FAMILIES if name not in MIXTURES),
    "kv": (1, 3, HEADS),
    "window": ("", "--sliding-window 700", "--sliding-window 700 --window-chunks on --qk-l2-norm on",
               "--rope-skip 1 --query-temperature 0.3 --query-temperature-every 100"),
    "sinks": ("", "--attention-sinks on"),
    "documents": ("", "--documents mask"),
    "dtype": ("", "--dtype bf16"),
    "strategy": UNGROUPED,
    "recompute": ("none", "block", "attention"),
    "dropout": (0, 0.1),
    "adapter": ("", "--lora-rank 3 --lora-targets all-linear"),
    "experts": EXPERTS,
    "tile": ("", "--tiled-mlp 4097"),
    "processes": (0, 2),
}


def layout_fits(run):
    """Each rank has a chunk of tokens, and a query head where it takes some; there are not too many ranks for a test."""
    cp, tp, length = run.get("cp", 2), run.get("tp", 1), run.get("length", LONGEST)
    pp, form = int(run.get("pp", "1")[0]), run.get("form", "auto")
    if cp * tp * run.get("dp", 1) * pp > 16 or cp * (tp if run.get("sequence") else 1) > length // 1024:
        return False
    if run.get("micro", 1) * run.get("dp", 1) > 2 or (run.get("micro") == 2 and "-" in run.get("pp", "1")):
        return False
    if form == "heads" and (cp * tp > HEADS or run.get("sequence")):
        return False
    return not (run.get("sequence") and run.get("tp") == 1)


def possible(run):
    """Whether the values of a run, some of which may be open, go together."""
    arch, experts = run.get("arch", "llama"), run.get("experts", "")
    if not layout_fits(run):
        return False
    if arch == "gpt2" and run.get("kv", HEADS) != HEADS:
        return False
    if arch != "llama" and (run.get("window", "") or experts or run.get("length") == LONGEST):
        return False
    if run.get("length") == LONGEST and "sliding" not in run.get("window", "sliding"):
        return False  # it would take minutes
    if experts and (run.get("adapter", "") or (run.get("tile", "") and "--moe-shared" not in experts)):
        return False  # these have no MLP for tiles
    return not (run.get("adapter", "") and run.get("dropout", 0) and arch == "gpt2")


def number_flags(run):
    """Flags that change a run's numbers."""
    family = FAMILIES[run["arch"]] if run["arch"] == "gpt2" else [*FAMILIES[run["arch"]], "--n-kv-head", str(run["kv"])]
    return [*family, "--n-layer", "2" if run["pp"][0] == "2" else "1", "--seq-len", str(run["length"]),
            *run["window"].split(), *run["sinks"].split(), *run["documents"].split(), *run["dtype"].split(), "--dropout", str(run["dropout"]), *run["adapter"].split(), *run["experts"].split()]


def layout_flags(run):
    """Flags that do not, and the number of processes."""
    flags = ["--cp", str(run["cp"]), "--cp-form", run["form"], "--tp", str(run["tp"]), "--dp", str(run["dp"]),
             "--pp", *run["pp"].split(), "--micro-batch-size", str(run["micro"]), "--strategy", run["strategy"],
             "--recompute", run["recompute"], *run["tile"].split(), "--threads-per-rank", "1", *(["--sequence-parallel"] if run["sequence"] else [])]
    return flags, run["processes"]


def write_documents(text, path):
    """Writes a text as Megatron's pair of files, in documents that begin at any token; returns the path."""
    data = text.read_bytes()
    source, starts = random.Random(5), [0]
    while starts[-1] < len(data):
        starts.append(min(len(data), starts[-1] + source.choice((1, 63, 64, 65, 700, 1555, 3000))))
    count = len(starts) - 1
    path.with_suffix(".bin").write_bytes(struct.pack(f"<{len(data)}H", *data))
    path.write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1)
                     + struct.pack(f"<{count}i", *(end - begin for begin, end in zip(starts, starts[1:])))
                     + struct.pack(f"<{count}q", *(2 * begin for begin in starts[:-1]))
                     + struct.pack(f"<{count + 1}q", *range(count + 1)))
    return path


def check_control(trainer):
    """Ranks that split a chunk say so, and have other bits: equal ones prove something."""
    for length in SHORT:
        flags = ["--arch", "llama", "--n-layer", "1", "--seq-len", str(length)]
        steps, said = trainer.run_with_errors([*flags, "--cp", "2"])
        if "not layout-exact" not in said:
            raise Failure(f"{length} tokens on --cp 2 do not say that they are not layout-exact:\n{said}")
        if not first_difference(steps, trainer.run(flags)):
            raise Failure(f"{length} tokens on --cp 2 have the bits of one rank, so that equal bits prove nothing")
        print(f"{length} tokens on --cp 2: not layout-exact, as it says")


def drawn(count):
    """Runs of values by chance, several layouts of what has one run of one rank."""
    source = random.Random(3)
    runs = []
    while len(runs) < count:
        kind = {name: source.choice(CHOICES[name]) for name in NUMBERS}
        layouts = [{name: source.choice(values) for name, values in CHOICES.items()} | kind for _ in range(200)]
        runs += [run for run in layouts if possible(run)][:LAYOUTS]
    return runs[:count]


def compare(program, folder, jobs, quick, part):
    """Runs in which every two values meet, and others by chance, against one rank; with quick a few short ones."""
    if quick:
        runs = [run for run in drawn(ALL) if run["length"] < 4096 and run["pp"] == "1" and not run["processes"]]
        runs = runs[::max(1, len(runs) // QUICK)][:QUICK]
    else:
        runs = Covering(CHOICES, possible, 2).runs
        runs += drawn(ALL - len(runs))
        runs = runs[len(runs) * (part[0] - 1) // part[1]:len(runs) * part[0] // part[1]]
    trainer = Trainer(program, folder, MODEL, STEPS)
    trainer.data = write_documents(trainer.data, trainer.folder / "documents.idx")
    check_control(trainer)
    compare_choices(trainer, jobs, runs, number_flags, layout_flags)
    for layout, count in sorted(collections.Counter((run["cp"], run["tp"], run["form"]) for run in runs).items()):
        print(f"cp {layout[0]} x tp {layout[1]}, {layout[2]}: {count} equal runs")
