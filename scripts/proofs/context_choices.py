"""
context_choices.py - the part of exactness.py that compares ranks which split the tokens of a sequence (--cp).
"""
import collections

from training_runs import Covering, Trainer, compare_choices

STEPS = 2
MODEL = ["--n-layer", "1", "--n-embd", "24", "--n-head", "12", "--vocab-size", "257", "--global-batch-size", "2", "--lr",
         "3e-3", "--eval-interval", "0", "--digest"]
LONGEST = 8192
CHOICES = {
    "cp": (2, 4, 8),
    "tp": (1, 2, 4),
    "dp": (1, 2),
    "pp": (1, 2),
    "length": (2048, 4096, 4097, LONGEST),
    "arch": ("gpt2", "llama"),
    "kv": (1, 3, 12),
    "window": (0, 700),
    "dtype": ("", "--dtype bf16"),
    "strategy": ("no_shard", "zero1", "full_shard"),
    "recompute": ("none", "block"),
    "dropout": (0, 0.1),
}


def possible(run):
    """Each rank has a query head and a chunk of tokens, and there are not too many ranks for a test."""
    cp, length = run.get("cp", 2), run.get("length", LONGEST)
    if cp * run.get("tp", 1) > 8 or cp * run.get("tp", 1) * run.get("dp", 1) * run.get("pp", 1) > 16:
        return False
    if run.get("arch") == "gpt2" and (run.get("kv", 12) != 12 or run.get("window", 0)):
        return False
    return cp <= length // 1024


def number_flags(run):
    """Flags that change a run's numbers."""
    kv = [] if run["arch"] == "gpt2" else ["--n-kv-head", str(run["kv"])]
    return ["--arch", run["arch"], *kv, "--seq-len", str(run["length"]), *(["--sliding-window", str(run["window"])] if run["window"] else []),
            *run["dtype"].split(), "--dropout", str(run["dropout"])]


def layout_flags(run):
    """Flags that do not."""
    return ["--cp", str(run["cp"]), "--tp", str(run["tp"]), "--dp", str(run["dp"]), "--pp", str(run["pp"]),
            "--micro-batch-size", "1", "--strategy", run["strategy"], "--recompute", run["recompute"],
            "--threads-per-rank", "1"]


def compare(program, folder, jobs, quick):
    """A covering part of the choices against one rank: of every three values, with quick a few runs of the shortest lengths."""
    runs = Covering(CHOICES, possible, 2 if quick else 3).runs
    if quick:
        runs = [run for run in runs if run["length"] <= 4097][::3]
    trainer = Trainer(program, folder, MODEL, STEPS)
    compare_choices(trainer, jobs, runs, number_flags, lambda run: (layout_flags(run), 0))
    for layout, count in sorted(collections.Counter((run["cp"], run["tp"]) for run in runs).items()):
        print(f"cp {layout[0]} x tp {layout[1]}: {count} equal runs")
