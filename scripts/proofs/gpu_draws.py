"""
gpu_draws.py - the runs that gpu_choices.py makes: choices of numbers and layouts, which of them go together, what they are as
flags, and draws in which every two values of two choices meet.
"""
import itertools
import random

from training_runs import HYBRID, POST_NORM, SHOWN, UNGROUPED

EXPERTS = "--n-expert 4 --moe-ffn 16"
# What changes a run's numbers.
NUMBERS = {
    "shape": ("--n-head 4 --n-embd 32", "--n-head 4 --n-embd 64 --head-dim 24", "--n-head 6 --n-embd 48", "--n-head 4 --n-embd 40",
              "--n-head 2 --n-embd 64 --head-dim 64"),
    "vocabulary": (257, 264),
    "length": (16, 24, 40, 72),
    "batch": (4, 6),
    "arch": ("--arch gpt2", "--arch llama", *(f"--arch {name} --n-kv-head 2 {SHOWN.get(name, '')}".strip()
                                              for name in ("llama", "gemma2", "qwen3", "olmo2", "olmo3", "gemma3_text", "glm4", "cohere", "phi", "gpt_neox")),
             "--arch llama --n-kv-head 1",
             "--arch llama --n-kv-head 2 --attention-sinks on --sliding-window 9", "--arch smollm3 --n-kv-head 2 --rope-skip 2",
             f"--arch mixtral {EXPERTS}", f"--arch qwen3_moe --n-kv-head 2 {EXPERTS} --moe-top-k 2 --moe-balance bias",
             f"--arch llama4_text --n-kv-head 2 --sliding-window 9 {EXPERTS} --moe-shared 24",
             f"--arch mixtral {EXPERTS} --moe-expert-capacity-factor 0.7 --moe-balance sequence --moe-sequence-weight 0.1 --moe-z-weight 0.1",
             f"--arch qwen2_moe --n-kv-head 2 {EXPERTS} --moe-top-k 3 --moe-shared 20 --moe-balance global --moe-global-weight 0.1"),
    "documents": ("", "--documents mask"),
    "data": ("documents", "masked"),
    "dtype": ("", "--dtype bf16", "--dtype bf16 --param-dtype fp32", "--param-dtype bf16", "--dtype bf16 --fp32-residual-connection",
              "--dtype bf16 --compute fp32"),
    "dropout": ("", "--dropout 0.1"),
    "optimizer": ("adamw", "adamw8bit", "sgd", "muon", "lion", "lion8bit", "adafactor", "adafactor --beta1 0"),
    "groups": ("", "--param-groups embed:lr=0.5,wd=0;block.*.attn:lr=0.3", "--ema 0.9", "--clip-grad 0.01"),
    "adapter": ("", "", "", "--lora-rank 4", "--lora-rank 3 --lora-targets all-linear --lora-dropout 0.2",
                "--lora-rank 4 --lora-targets all-linear --base-dtype nf4", "--lora-rank 2 --lora-targets q,experts", "--freeze embed,block.0.attn"),
    "loss": ("", "--label-smoothing 0.1 --z-loss 0.01"),
    "steps": ("", "", "--skip-steps loss>5.55", "--eval-interval 2 --eval-iters 2", "--rampup-batch-size 2,2,6"),
    "exact": ("", "", "--exact-tp 2", "--exact-tp 1", "--exact off"),
    "cudnn": (0, 91900, 92501),
}
# What does not.
LAYOUT = {
    "capability": (80, 90, 100),
    "cores": ("", "mma", "wgmma", "persistent"),
    "queue": ("", "eager"),
    "tp": (1, 1, 2, 4),
    "dp": (1, 2, 2, 3, 4),
    "pp": ("1", "2", "2 --pp-schedule zb-h1", "2 --pp-schedule interleaved", "2 --pp-schedule dualpipe-v --pp-send split",
           "2 --pp-schedule v-half", "4 --pp-schedule gpipe"),
    "cp": ("1", "2 --cp-form heads", "2 --cp-form gather"),
    "ep": ("", "dp", "all"),
    "etp": (False, True),
    "strategy": (*UNGROUPED, *HYBRID),
    "accumulate": ("auto", "local", "reduced", "group:2"),
    "micro": (0, 1, 2),
    "recompute": ("none", "block", "attention", "stage"),
    "sequence": (False, True),
    "beside": (False, True),
    "graph": ("", "on", "on", "on", "off"),
    "transport": ("threads", "nccl", "nccl 1MiB"),
    "devices": (1, 2, 8),
    "units": ("", "--wrap-type attention --prefetch 0", "--wrap-type mlp --prefetch 3", "--reshard-after-forward always", "--reshard-after-forward never"),
    "memory": ("", "--offload optimizer", "--offload activations", "--tiled-mlp 16", "--redundancy buddy"),
    "digest": (True, False),  # without, steps of graphs are launched before the one before them is finished
    "checkpoint": ("", "saved", "resumed", "saved --async-save on", "saved --checkpoint full"),
}
CHOICES = NUMBERS | LAYOUT


def mixture(run):
    """Whether a run's model has experts; where that is open, any value will do."""
    return "--n-expert" in run.get("arch", "--n-expert")


def adapted(run):
    """Whether a part of the model alone is trained; where that is open, all is."""
    return run.get("adapter", "") != ""


def possible(run):
    """Whether the values of a run, some of which may be open, are worth a run: most of what is refused is drawn seldom elsewhere."""
    tp, dp, pp, cp = run.get("tp", 2), run.get("dp", 2), run.get("pp", "1"), run.get("cp", "1")
    ranks = run.get("tp", 1) * run.get("dp", 1) * int(pp[0]) * int(cp[0])
    if ranks > 4 or (run.get("strategy", "") in HYBRID and dp not in (2, 4)) or (
            run.get("transport", "threads") != "threads" and (pp != "1" or run.get("devices", 8) < ranks)):
        return False
    if run.get("queue") and run.get("transport", "threads") != "threads":  # an emulated NCCL that runs at once waits for its peers
        return False
    if run.get("sequence") and (cp == "2 --cp-form heads" or "split" in pp):
        return False
    if ("split" in pp and tp == 1) or ("offload activations" in run.get("memory", "") and pp != "1") or (
            adapted(run) and "--param-groups" in run.get("groups", "")) or (run.get("accumulate", "") != "reduced" and dp == 3):
        return False
    if run.get("accumulate") == "group:2" and (run.get("micro", 1) != 1 or run.get("ep") == "dp" or run.get("batch", 8) % (2 * run.get("dp", 1))):
        return False
    if "tiled" in run.get("memory", "") and (run.get("length", 16) != 16 or "lora-dropout" in run.get("adapter", "") or cp != "1"):
        return False
    if (run.get("sequence") or run.get("beside") or run.get("etp")) and tp == 1:
        return False
    if (run.get("ep") or run.get("etp") or "experts" in run.get("adapter", "")) and not mixture(run):
        return False
    if run.get("graph") == "on" and (pp != "1" or "offload" in run.get("memory", "") or run.get("data") == "masked" or run.get("documents")):
        return False
    if run.get("cudnn", 0) and "bf16" not in run.get("dtype", "--dtype bf16"):
        return False
    if run.get("cores") and (run.get("capability", 90) != 90 and run["cores"] != "mma"):
        return False
    if "-tp" in run.get("exact", "") and run.get("tp", 1) > int(run["exact"][-1]):
        return False
    if "rampup" in run.get("steps", "") and (dp > 2 or pp != "1" or cp != "1" or run.get("micro", 1) == 2 or run.get("data") == "masked" or
                                             run.get("documents") or run.get("accumulate") == "group:2"):
        return False
    if "residual" in run.get("dtype", "") and run.get("arch", "a b").split()[1] in POST_NORM:
        return False
    if run.get("batch", 8) // run.get("dp", 1) < (run.get("micro") or 1) or (run.get("micro") == 2 and run.get("batch", 8) % (2 * run.get("dp", 1))):
        return False
    if (run.get("recompute") == "stage" and pp == "1") or "offload activations" in run.get("memory", "") and run.get("recompute", "block") != "block":
        return False
    if (run.get("memory") == "--redundancy buddy" and (dp == 1 or run.get("strategy", "") in ("no_shard", *HYBRID))) or ("bias" in run.get("arch", "") and adapted(run)):
        return False
    return not ("--n-expert" in run.get("arch", "") and ("tiled" in run.get("memory", "") or "mlp" in run.get("units", "")))


def number_flags(run):
    """The flags that change a run's numbers."""
    return [*run["arch"].split(), *run["shape"].split(), "--vocab-size", str(run["vocabulary"]), "--n-layer", "2", "--seq-len", str(run["length"]), "--global-batch-size", str(run["batch"]),
            *run["documents"].split(), *run["dtype"].split(), *run["dropout"].split(), "--optimizer", *run["optimizer"].split(), *run["groups"].split(),
            *run["adapter"].split(), *run["loss"].split(), *(run["steps"] + ("" if "eval" in run["steps"] else " --eval-interval 0")).split(),
            *run["exact"].split()]


def layout_flags(run):
    """The flags that do not."""
    tp, dp, cp = run["tp"], run["dp"], int(run["cp"][0])
    flags = ["--tp", tp, "--dp", dp, "--pp", *run["pp"].split(), "--cp", *run["cp"].split()[:3 if cp > 1 else 1], "--strategy", run["strategy"],
             "--accumulate", run["accumulate"], "--recompute", run["recompute"], *run["units"].split(), *run["memory"].split()]
    if run["strategy"] in HYBRID:
        flags += ["--dp-replicate", 2]
    if run["micro"]:
        flags += ["--micro-batch-size", run["micro"]]
    elif run["pp"] != "1":
        flags += ["--micro-batch-size", 1]
    if run["etp"]:
        flags += ["--etp", tp]
    if run["ep"]:
        flags += ["--ep", (1 if run["etp"] else tp) * dp if run["ep"] == "dp" else (1 if run["etp"] else tp)]
    if run["sequence"]:
        flags += ["--sequence-parallel"]
    if run["beside"]:
        flags += ["--tp-comm-overlap", "on", "--tp-comm-block", "1"]
    if run["graph"]:
        flags += ["--cuda-graph", run["graph"]]
    return [str(flag) for flag in flags]


def environment_of(run):
    """The GPUs that a run finds, in the environment."""
    found = {"WEFT_EMULATOR_CAPABILITY": str(run["capability"]), "WEFT_EMULATOR_DEVICES": str(run["devices"]),
             "WEFT_EMULATOR_MEMORY": str(32 << 30)}  # captured products of exact off have workspaces of their own
    if run["cores"]:
        found["WEFT_TENSOR_CORES"] = run["cores"]
    if run["queue"]:
        found["WEFT_EMULATOR"] = run["queue"]
    if run["cudnn"]:
        found["WEFT_EMULATOR_CUDNN"] = str(run["cudnn"])
    if " " in run["transport"]:
        found["WEFT_NCCL_WINDOW"] = run["transport"].split()[1]
    return found


def assembled(source):
    """A run by chance, or None where the values that it has leave no other."""
    run, names = {}, list(CHOICES)
    source.shuffle(names)
    for name in names:
        fitting = [value for value in CHOICES[name] if possible({**run, name: value})]
        if not fitting:
            return None
        run[name] = source.choice(fitting)
    return run


def draw(seed, count):
    """Runs by chance, each the one of several of which most pairs of values have met in none before."""
    source, met, runs = random.Random(seed), set(), []
    while len(runs) < count:
        candidates = [run for run in (assembled(source) for _ in range(6)) if run]
        if not candidates:
            continue
        pairs = [(set(itertools.combinations(sorted((name, str(value)) for name, value in run.items()), 2)), run) for run in candidates]
        new, run = max(pairs, key=lambda pair: len(pair[0] - met))
        met |= new
        runs.append(run)
    return runs
