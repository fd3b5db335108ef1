#!/usr/bin/env python3
"""
torch_gpt.py weights|train JOB - Weft's GPT-2 in PyTorch, for compare_torch.py; JOB is JSON.

    weights   writes the initial weights to JOB["weights"] (safetensors)
    train     trains as one rank of JOB["ranks"], and writes a JSON row per step to JOB["log"],
              then one about the process

Both sides begin with the same weights and see the same sequences, because Weft's random numbers
are functions of position: element i of a parameter follows from (seed, path, i), the position of a
sequence in the text from (seed, step, number in the batch). They are computed here anew.
"""
import json
import math
import pathlib
import resource
import sys
import time

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

import numpy as np

INIT, DATA = 0, 2  # purposes of random numbers, core/numerics/random.h
DEVIATION = np.float32(0.02)
BLOCKS_AT_ONCE = 1 << 15  # of four numbers; what they take fits in cache
MASK = (1 << 64) - 1
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def mix64(x):
    """core/numerics/bits.h"""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def random_key(seed, purpose):
    """core/numerics/random.c"""
    return mix64((mix64(seed) + purpose) & MASK)


def path_stream(path):
    """core/numerics/digest.c: the random stream of a parameter."""
    value = 0
    for byte in path.encode():
        value = mix64(value ^ byte)
    return mix64(value)


def philox(key, stream, index):
    """Four arrays of 32-bit words (in 64 bits): Philox4x32-10 of counters (index, stream)."""
    c = [index & LOW, index >> HALF, np.full_like(index, stream & int(LOW)),
         np.full_like(index, stream >> 32)]
    k0, k1 = key & int(LOW), key >> 32
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> HALF ^ c[1] ^ np.uint64(k0), b & LOW,
             a >> HALF ^ c[3] ^ np.uint64(k1), a & LOW]
        k0, k1 = k0 + 0x9E3779B9 & int(LOW), k1 + 0xBB67AE85 & int(LOW)
    return c


def normals(count, key, stream):
    """The first `count` normal numbers of a stream, in pairs by Box and Muller."""
    out = np.empty((count + 3) // 4 * 4, np.float32).reshape(-1, 4)
    for first in range(0, len(out), BLOCKS_AT_ONCE):
        some = out[first:first + BLOCKS_AT_ONCE]
        words = philox(key, stream, np.arange(first, first + len(some), dtype=np.uint64))
        for pair in (0, 2):
            radius = np.sqrt(-2 * np.log((words[pair] + 0.5) * 2.0**-32))
            angle = words[pair + 1] * (2 * math.pi * 2.0**-32)
            some[:, pair] = radius * np.cos(angle)
            some[:, pair + 1] = radius * np.sin(angle)
    return out.reshape(-1)[:count]


def write_weights(job):
    """Every matrix; what is not here begins as a norm's gain (1) or a bias (0)."""
    from safetensors.numpy import save_file

    width, key, weights = job["n_embd"], random_key(job["seed"], INIT), {}
    residual = DEVIATION / np.sqrt(np.float32(2 * job["n_layer"]))

    def matrix(path, rows, columns, deviation=DEVIATION):
        values = normals(rows * columns, key, path_stream(path)) * deviation
        return values.reshape(rows, columns)

    weights["embed.weight"] = matrix("embed.table", job["vocab_size"], width)
    weights["position.weight"] = matrix("position.table", job["seq_len"], width)
    for i in range(job["n_layer"]):
        block = f"block.{i}."
        weights[block + "qkv.weight"] = np.concatenate(
            [matrix(f"{block}attn.qkv.{part}.weight", width, width) for part in "qkv"])
        weights[block + "out.weight"] = matrix(block + "attn.out.weight", width, width,
                                               residual)
        weights[block + "up.weight"] = matrix(block + "mlp.up.weight", 4 * width, width)
        weights[block + "down.weight"] = matrix(block + "mlp.down.weight", width, 4 * width,
                                                residual)
    save_file(weights, job["weights"])


class Text:
    """nn/dataset/dataset.c, plain text: bytes of one file; where a sequence begins is random."""

    def __init__(self, job):
        self.bytes = np.fromfile(job["data"], np.uint8)
        self.length = job["seq_len"]
        self.key = random_key(job["seed"], DATA)

    def batch(self, step, first, count):
        """(tokens, targets) of `count` sequences of a step, from number `first` on."""
        words = philox(self.key, step, np.arange(first, first + count, dtype=np.uint64))
        starts = [(int(high) << 32 | int(low)) * (len(self.bytes) - self.length) >> 64
                  for low, high in zip(words[0], words[1])]
        rows = np.stack([self.bytes[at:at + self.length + 1] for at in starts]).astype(np.int64)
        return rows[:, :-1].copy(), rows[:, 1:].copy()


def learning_rate(job, step):
    """nn/optim/optimizer.c: a line up, then half a cosine down."""
    if step <= job["warmup_steps"]:
        return job["lr"] * step / job["warmup_steps"]
    at = (step - job["warmup_steps"]) / (job["steps"] - job["warmup_steps"])
    return job["min_lr"] + (job["lr"] - job["min_lr"]) * 0.5 * (1 + math.cos(math.pi * at))


def make_model(job):
    """GPT-2 as a module from (tokens, targets) to the loss, as fast as PyTorch has it."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    width, heads = job["n_embd"], job["n_head"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, _ = x.shape
            qkv = self.qkv(self.norm1(x)).view(batch, length, 3, heads, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(job["vocab_size"], width)
            self.position = nn.Embedding(job["seq_len"], width)
            self.block = nn.ModuleList(Block() for _ in range(job["n_layer"]))
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens, targets):
            x = self.embed(tokens) + self.position.weight
            for block in self.block:
                x = block(x)
            x, targets = self.norm(x).view(-1, width), targets.view(-1)
            if job["chunked_loss"]:
                return F.linear_cross_entropy(x, self.embed.weight, targets,
                                              options=torch.nn.LinearCrossEntropyOptions())
            return F.cross_entropy(F.linear(x, self.embed.weight), targets)

    with torch.device("meta"):
        model = GPT()
    return model.to_empty(device="cpu")


def load_weights(job, model):
    """The file's matrices; gains are 1 and biases 0."""
    import torch
    from safetensors.torch import load_file

    given = load_file(job["weights"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.copy_(given.pop(name))
            else:
                parameter.fill_(1 if name.endswith("weight") else 0)
    if given:
        raise ValueError(f"weights that the model has not: {', '.join(given)}")


def make_optimizer(job, model):
    """AdamW in one pass over each parameter; matrices decay."""
    import torch

    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.ndim == 2],
               "weight_decay": job["weight_decay"]},
              {"params": [p for p in parameters if p.ndim != 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(job["beta1"], job["beta2"]), eps=job["eps"],
                             fused=True)


def memory(field):
    """Resident bytes of this process: VmRSS now, VmHWM at most."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def forget_peak():
    """Compilation and warming up are not training's memory."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # the peak is then that of the whole run


def train(job):
    """All steps, with a row for each one: time, loss, norm of the gradient."""
    import torch
    import torch.distributed as dist

    rank, ranks = job["rank"], job["ranks"]
    torch.set_num_threads(job["threads"])
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{job['meeting']}", rank=rank,
                                world_size=ranks)
    base = memory("VmRSS")
    model = make_model(job)
    load_weights(job, model)
    optimizer = make_optimizer(job, model)
    call = model
    if ranks > 1:
        call = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True,
                                                         static_graph=True)
    if job["compiled"]:
        call = torch.compile(call)
    text, count = Text(job), job["global_batch_size"] // ranks
    log = open(job["log"], "w", encoding="utf-8", buffering=1)  # a line at once
    for step in range(1, job["steps"] + 1):
        if step == job["skip"] + 1:
            forget_peak()
        start = time.perf_counter()
        tokens, targets = map(torch.from_numpy, text.batch(step, rank * count, count))
        with torch.autocast("cpu", torch.bfloat16, enabled=job["autocast"]):
            loss = call(tokens, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip_grad"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(job, step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.detach().clone()
        ms = (time.perf_counter() - start) * 1e3
        if ranks > 1:  # the mean of all, which training itself has no use for
            dist.all_reduce(mean)
            mean /= ranks
        row = {"step": step, "loss": float(mean), "grad_norm": float(norm), "ms": ms}
        log.write(json.dumps(row) + "\n")
    row = {"base": base, "peak": memory("VmHWM"), "version": torch.__version__}
    log.write(json.dumps(row) + "\n")
    log.close()
    if ranks > 1:
        dist.destroy_process_group()


def main():
    """Runs the command."""
    command, job = sys.argv[1], json.loads(sys.argv[2])
    {"weights": write_weights, "train": train}[command](job)


if __name__ == "__main__":
    main()
