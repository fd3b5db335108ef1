#!/usr/bin/env python3
"""
diffusion.py - docs/examples/diffusion.c beside the same model, losses and optimizer in PyTorch:
from the same weights and batches, 50 steps of losses, of the added loss of balance, and the
moving averages at the end.

    scripts/peers/diffusion.py build-examples/diffusion build/libweft.so
    scripts/peers/diffusion.py --optimizer adafactor build-examples/diffusion build/libweft.so

--optimizer trains with one of Weft's own instead of the example's: adafactor beside that of transformers. Needs torch, numpy and safetensors,
and transformers for adafactor. Weights begin as those of a checkpoint after a step of a rate that moves nothing.
"""
import argparse
import ctypes
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors import safe_open
from torch.nn import functional as F

STEPS, BATCH, SIDE, WIDTH, HEADS, LEVELS = 50, 8, 8, 32, 4, 100
DATA = 2  # WF_RANDOM_DATA


class Batches:
    """The batches of read_pictures, by the library's random numbers."""

    def __init__(self, library, purpose):
        self.weft = ctypes.CDLL(library)
        self.weft.wf_random_key.restype = ctypes.c_uint64
        self.weft.wf_random_key.argtypes = [ctypes.c_uint64, ctypes.c_uint32]
        self.weft.wf_random_below.restype = ctypes.c_uint64
        self.weft.wf_random_below.argtypes = [ctypes.c_uint64] * 4
        self.key = self.weft.wf_random_key(7, purpose)

    def below(self, step, at, n):
        return self.weft.wf_random_below(self.key, step, at, n)

    def sequence(self, step, first):
        level = self.below(step, first, LEVELS)
        word = [self.below(step, first + 1, 2), 2 + self.below(step, first + 2, SIDE),
                10 + self.below(step, first + 3, 6), 16 + self.below(step, first + 4, 8)]
        angle = level * numpy.float32(0.001) ** (numpy.arange(WIDTH // 2) / (WIDTH / 2))
        features = numpy.concatenate([numpy.sin(angle), numpy.cos(angle)])
        drawn = [self.below(step, first + 8 + p, 1 << 20) for p in range(SIDE * SIDE)]
        noise = (numpy.array(drawn) / (1 << 19) * 1.7320508 - 1.7320508).reshape(SIDE, SIDE)
        clear = math.cos(1.5 * level / LEVELS)
        picture = numpy.full((SIDE, SIDE), -0.5)
        at = word[1] - 2
        picture[(slice(None), at) if word[0] else at] = 0.25 * (word[2] - 9)
        return clear * picture + math.sqrt(1 - clear * clear) * noise, noise, word, features

    def batch(self, step):
        rows = [self.sequence(step, 256 * i) for i in range(BATCH)]
        seen, noise, word, level = (numpy.stack(column) for column in zip(*rows))
        real = torch.float64
        return (torch.tensor(seen, dtype=real), torch.tensor(noise, dtype=real),
                torch.tensor(word), torch.tensor(level, dtype=real))


class Model:
    """The forward pass, on named parameters."""

    def __init__(self, weights):
        self.p = weights
        self.balance = []

    def linear(self, x, path):
        return F.linear(x, self.p[path + ".weight"], self.p.get(path + ".bias"))

    def norm(self, x, path):
        return F.layer_norm(x, (WIDTH,), self.p[path + ".gain"], self.p[path + ".bias"], 1e-5)

    def attend(self, q, k, v):
        def heads(t):
            return t.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        return F.scaled_dot_product_attention(heads(q), heads(k), heads(v)).transpose(1, 2).flatten(2)

    def mlp(self, x, path):
        return self.linear(F.gelu(self.linear(x, path + ".up"), approximate="tanh"), path + ".down")

    def experts(self, x, path):
        gate = torch.sigmoid(self.linear(x, path + ".gate"))
        mean = gate.mean(1)
        self.balance.append((mean ** 2 + (1 - mean) ** 2).mean())
        return self.mlp(x, path + ".a") * gate + self.mlp(x, path + ".b") * (1 - gate)

    def block(self, x, prompt, path):
        y, at = self.norm(x, path + ".norm1"), path + ".attn.qkv."
        x = x + self.linear(self.attend(*(self.linear(y, at + n) for n in "qkv")), path + ".attn.out")
        y, at = self.norm(x, path + ".norm2"), path + ".cross."
        y = self.attend(self.linear(y, at + "q"), self.linear(prompt, at + "kv.k"), self.linear(prompt, at + "kv.v"))
        x = x + self.linear(y, at + "out")
        return x + self.experts(self.norm(x, path + ".norm3"), path + ".mlp")

    def loss(self, seen, noise, word, level):
        def conv(x, path):
            return F.conv2d(x, self.p[path + ".weight"], self.p[path + ".bias"], padding=1)

        self.balance = []
        x = F.gelu(conv(seen[:, None], "stem"), approximate="tanh").flatten(2).transpose(1, 2)
        x = x + self.p["position.table"] + self.linear(level, "level")[:, None]
        prompt = F.embedding(word, self.p["words.table"])
        for block in ("block0", "block1"):
            x = self.block(x, prompt, block)
        x = self.norm(x, "norm").transpose(1, 2).unflatten(2, (SIDE, SIDE))
        return ((conv(x, "out")[:, 0] - noise) ** 2).mean(), sum(self.balance)


def rate(step):
    """Warm-up over 5 steps, stable, and a line to 0 over the last 10."""
    return 3e-3 * min(step / 5, 1, (STEPS - step) / 10)


class Steady(torch.optim.Optimizer):
    """The optimizer of the example."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                m, v = state["m"], state["v"]
                m.mul_(0.9).add_(p.grad, alpha=0.1)
                torch.maximum(v, 0.99 * v + 0.01 * p.grad ** 2, out=v)
                p -= group["lr"] * (m / (v.sqrt() + 1e-2) + group["weight_decay"] * p)


def adafactor(groups):
    sys.path.pop(0)  # whose tokenizers.py is another one
    from transformers.optimization import Adafactor
    return Adafactor(groups, lr=1, relative_step=False, warmup_init=False)


OPTIMIZERS = {"steady": (lambda groups: Steady(groups, {"lr": 1}), []),
              "adafactor": (adafactor, ["--optimizer", "adafactor", "--beta1", "0"])}


def groups_of(weights):
    """A group for each parameter, with the example's factors of the rate and decays."""
    return [{"params": [p], "factor": 0.5 if path.startswith("out.") else 1,
             "weight_decay": 0.01 if p.ndim > 1 and not path.startswith("words.") else 0}
            for path, p in weights.items()]


def update(weights, optimizer, averages, step):
    """Clipping, a step at the rate of each group, and the moving average."""
    norm = math.sqrt(sum(float((p.grad ** 2).sum()) for p in weights.values()))
    for p in weights.values():
        p.grad *= min(1, 1 / (norm + 1e-6))
    for group in optimizer.param_groups:
        group["lr"] = rate(step) * group["factor"]
    optimizer.step()
    for path, p in weights.items():
        averages[path].mul_(0.9).add_(p.detach(), alpha=0.1)


def saved(folder, step):
    with safe_open(folder / f"step-{step:08}" / "rank-00000.safetensors", "pt") as f:
        return {name: f.get_tensor(name).double() for name in f.keys()}


def run(program, *flags):
    subprocess.run([program, *flags], check=True, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="steady")
    parser.add_argument("--data-purpose", type=int, default=DATA)
    args = parser.parse_args()
    program = str(pathlib.Path(args.program).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(program, "--lr", "1e-30", "--steps", "1", "--warmup-steps", "0", "--lr-decay-steps", "1", "--save", name + "/zero")
        make, flags = OPTIMIZERS[args.optimizer]
        run(program, *flags, "--log-jsonl", name + "/log.jsonl", "--save", name + "/end")
        first, last = saved(folder / "zero", 1), saved(folder / "end", STEPS)
        rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()[1:]]
    weights = {n: t.clone().requires_grad_() for n, t in first.items() if not n.endswith((".m", ".v", ".s", ".ema"))}
    optimizer = make(groups_of(weights))
    averages = {n: t.detach().clone() for n, t in weights.items()}
    batches, model, worst = Batches(args.library, args.data_purpose), Model(weights), 0
    for step in range(1, STEPS + 1):
        loss, balance = model.loss(*batches.batch(step))
        for p in weights.values():
            p.grad = None
        (loss + 0.01 * balance).backward()
        update(weights, optimizer, averages, step)
        row = rows[step - 1]
        off = max(abs(row["loss"] - loss.item()) / loss.item(),
                  abs(row["losses"]["balance"] - balance.item()) / balance.item())
        worst = max(worst, off)
        if step == 1 or step % 10 == 0:
            print(f"step {step}: loss {row['loss']:.7f} and {loss.item():.7f}, largest relative difference {worst:.1e}")
    far = max(float((last[n + ".ema"] - t).abs().max()) for n, t in averages.items())
    print(f"moving averages of weights: largest difference {far:.1e}")
    return worst > 1e-5 or far > 1e-5


if __name__ == "__main__":
    sys.exit(main())
