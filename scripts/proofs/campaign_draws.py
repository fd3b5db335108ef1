"""campaign_draws.py - small models, meshes and modes of saving for campaign.py, by chance."""

from training_runs import UNGROUPED

BASE = ["--n-head", "4", "--seq-len", "16", "--warmup-steps", "2", "--eval-interval", "0", "--threads-per-rank", "1",
        "--device", "cpu"]
STRATEGIES = (*UNGROUPED, "hybrid_shard")


def model_of(random_, steps):
    """Flags that decide a run's numbers."""
    layers = random_.choice((1, 2))
    flags = [*BASE, "--arch", random_.choice(("gpt2", "gpt2", "llama")), "--n-layer", layers, "--n-embd",
             random_.choice((16, 32)), "--global-batch-size", random_.choice((4, 8)), "--steps", steps, "--dropout",
             random_.choice((0, 0.1)), "--dtype", random_.choice(("fp32", "fp32", "bf16"))]
    if random_.random() < 0.25:
        flags[flags.index("--arch") + 1] = "llama"
        flags += ["--n-expert", 8, "--moe-top-k", 2, "--moe-ffn", 16, "--moe-balance", random_.choice(("none", "bias", "global")),
                  "--moe-expert-capacity-factor", random_.choice((0, 1))]
    adapted = random_.random() < 0.15
    if adapted:
        flags += ["--lora-rank", 2]
    else:
        flags += ["--optimizer", random_.choice(("adamw", "adamw", "adamw", "sgd", "muon"))]
    return [str(flag) for flag in flags]


def value_of(flags, name):
    """The value of a flag."""
    return flags[flags.index(name) + 1] if name in flags else None


def mesh_of(random_, model, most=4, least=1):
    """A mesh of some ranks, and how many it has."""
    pp = random_.choice((1, 1, 1, 2)) if value_of(model, "--n-layer") == "2" else 1
    tp, dp = random_.choice((1, 1, 2, 4)), random_.choice((1, 2, 2, 4))
    if not least <= pp * tp * dp <= most:
        return mesh_of(random_, model, most, least)
    flags = ["--tp", tp, "--dp", dp]
    if pp > 1:
        flags += ["--pp", pp, "--micro-batch-size", 1]
    if dp > 1:
        strategy = random_.choice(STRATEGIES if dp == 4 else STRATEGIES[:-1])
        flags += ["--strategy", strategy]
        if strategy == "hybrid_shard":
            flags += ["--dp-replicate", 2]
    if tp > 1 and random_.random() < 0.3:
        flags.append("--sequence-parallel")
    if dp > 1 and value_of(model, "--n-expert") and random_.random() < 0.7:
        flags += ["--ep", 2 * tp, "--moe-dispatch", random_.choice(("gather", "exchange"))]
    return [str(flag) for flag in flags], pp * tp * dp


def saving_of(random_, interval=1):
    """How checkpoints are saved."""
    flags = ["--checkpoint", random_.choice(("sharded", "sharded", "full", "local")), "--async-save",
             random_.choice(("off", "off", "on")), "--keep", random_.choice((2, 2, 3)), "--save-interval", interval]
    return [str(flag) for flag in flags]
