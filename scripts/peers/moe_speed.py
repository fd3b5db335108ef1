#!/usr/bin/env python3
"""
moe_speed.py BUILD [ROUNDS] - the speed of a mixture's step, of gpt_train beside a dense model, beside itself without leaves, and beside
transformers in torch, alternating.

The mixture has 64 experts of 256 features, of which a token chooses 8, in 2 layers of width 512; a step is 4 sequences of 1,024 random
tokens in fp32 on one thread, so that an expert has 128 tokens of a sequence on average. Each runs 1 and 4 steps as processes of their own,
ROUNDS (3) times, one after the other: a step takes a third of what the longer process has more of user time, which others on
the machine change little. The system's time is left out: it clears the memory of the first step, 0.1 s of it or 2 as it finds it.
Each round is printed, then medians of user time and of the clock's, by which an idle machine alone is judged, and by user time

  dense      of a dense model whose MLPs have 2,048 features, the products that a token's experts have: at least 0.85 is wanted
  leaves     of the mixture with --exact off, whose gradients are one chain over all sequences: at least 0.97 is wanted
  eager, grouped_mm   of transformers with this experts_implementation: at least 1 is wanted

each over the mixture's time. It needs torch, transformers and numpy; without them the first two are printed. Status 1 where one is less.
"""
import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

SCRIPT = pathlib.Path(__file__).resolve()
sys.path.pop(0)  # scripts beside this one have the names of packages
BATCH, LENGTH, STEPS, VOCABULARY = 4, 1024, (1, 4), 1024
WIDTH, LAYERS, HEADS, EXPERTS, CHOSEN, FEATURES = 512, 2, 8, 64, 8, 256
PEERS = ("eager", "grouped_mm")
WANTED = {"dense": 0.85, "leaves": 0.97} | dict.fromkeys(PEERS, 1.0)


def of_torch(implementation, ids, steps):
    """Some steps of transformers' mixture."""
    import numpy
    import torch
    import transformers
    torch.set_num_threads(1)
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS,
        head_dim=WIDTH // HEADS, num_experts=EXPERTS, num_experts_per_tok=CHOSEN, moe_intermediate_size=FEATURES, norm_topk_prob=True)
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation=implementation, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    windows = torch.from_numpy(numpy.fromfile(ids, numpy.uint16)[:BATCH * LENGTH].astype(numpy.int64)).view(BATCH, LENGTH)
    for _ in range(steps):
        loss = model(input_ids=windows, labels=windows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def seconds(command):
    """The user time and the clock's of a process."""
    begin = time.monotonic()
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env=os.environ | {"OMP_NUM_THREADS": "1"})
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"moe_speed.py: {command[0]}: {said.strip()[-400:]}")
    return usage.ru_utime, time.monotonic() - begin


def commands(build, ids):
    """A command of each, without its number of steps."""
    train = [build / "apps" / "gpt_train", "--data", ids, "--vocab-size", VOCABULARY, "--val-fraction", 0, "--eval-interval", 0,
             "--seq-len", LENGTH, "--global-batch-size", BATCH, "--threads-per-rank", 1, "--n-embd", WIDTH, "--n-layer", LAYERS,
             "--n-head", HEADS, "--steps"]
    mixture = ["--arch", "qwen3_moe", "--n-expert", EXPERTS, "--moe-top-k", CHOSEN, "--moe-ffn", FEATURES, "--moe-normalise", "on"]
    found = {"mixture": lambda n: [*train, n, *mixture],
             "dense": lambda n: [*train, n, "--arch", "qwen3", "--ffn", CHOSEN * FEATURES],
             "leaves": lambda n: [*train, n, *mixture, "--exact", "off"]}
    if all(importlib.util.find_spec(name) for name in ("torch", "transformers", "numpy")):
        found |= {peer: lambda n, peer=peer: [sys.executable, SCRIPT, "--torch", peer, ids, n] for peer in PEERS}
    return found


def main(build, rounds):
    import random
    with tempfile.TemporaryDirectory() as name:
        ids = pathlib.Path(name) / "ids.bin"
        draw = random.Random(1)
        ids.write_bytes(b"".join(draw.randrange(VOCABULARY).to_bytes(2, "little") for _ in range(BATCH * LENGTH + 1)))
        run = commands(build, ids)
        taken = {who: [] for who in run}
        for _ in range(rounds):
            for who, command in run.items():
                few, many = (seconds(command(n)) for n in STEPS)
                taken[who].append([(b - a) / (STEPS[1] - STEPS[0]) for a, b in zip(few, many)])
            print("round: " + ", ".join(f"{who} {times[-1][0]:.3f}" for who, times in taken.items()), flush=True)
    user, clock = ({who: statistics.median(t[i] for t in times) for who, times in taken.items()} for i in (0, 1))
    bad = 0
    for who, mine in user.items():
        ratio, wanted = mine / user["mixture"], WANTED.get(who, 0)
        bad |= ratio < wanted
        print(f"{who:10} {mine:7.3f} s a step, {clock[who]:7.3f} by the clock  {ratio:5.2f} and {clock[who] / clock['mixture']:5.2f} of the "
              f"mixture's{f', wanted {wanted}' if wanted else ''}{'  LESS' if ratio < wanted else ''}")
    return bad


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--torch":
        of_torch(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif len(sys.argv) in (2, 3):
        sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) == 3 else 3))
    else:
        sys.exit(__doc__)
