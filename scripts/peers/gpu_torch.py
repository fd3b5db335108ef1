#!/usr/bin/env python3
"""
gpu_torch.py JSON - PyTorch's speed in training a model on this GPU, for gpu_check.py: compiled, the attention that it
chooses, fused AdamW over fp32 parameters, gradients clipped. JSON is an object of

    arch      gpt2 (LayerNorm, GELU, learned positions) or llama (RMSNorm, SwiGLU, RoPE, grouped queries)
    layers, heads, kv_heads, width, ffn, vocabulary, length, tied
    micro, micros  sequences of a micro-batch, and how many of them are a step
    dtype     bf16, by autocast; tf32, fp32 whose products round their factors; fp32
    steps, kernels  steps that are measured, and whether one is profiled: milliseconds by kind of kernel
    device    cuda; cpu, not compiled, to try this program

Prints {"version", "tokens_per_s", "ms", "kernels"} as JSON.
"""
import json
import re
import statistics
import sys
import time

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as missing:
    print(f"no torch: {missing}")
    sys.exit(0)

WARM_UP = 4
# Kinds of kernels by their names, the first that fits: inductor's name what they compute.
KINDS = [("products", r"gemm|cutlass|nvjet|xmma|wgmma|matmul"), ("attention", r"flash|fmha|sdpa|attention"),
         ("updates", r"multi_tensor|adam|lpnorm|foreach"), ("loss", r"log_softmax|nll_loss|cross_entropy|logsumexp"),
         ("copies", r"memcpy|memset|copy"), ("norms and the rest", r"")]


def kind_of(kernel):
    return next(kind for kind, pattern in KINDS if re.search(pattern, kernel.lower()))


def rotated(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head = c["heads"], c["kv_heads"], c["width"] // c["heads"]
        self.rope = c["arch"] == "llama"
        bias = not self.rope
        self.qkv = nn.Linear(c["width"], (self.heads + 2 * self.kv_heads) * self.head, bias=bias)
        self.out = nn.Linear(c["width"], c["width"], bias=bias)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        sizes = [self.heads * self.head, self.kv_heads * self.head, self.kv_heads * self.head]
        q, k, v = (t.view(batch, length, -1, self.head).transpose(1, 2) for t in self.qkv(x).split(sizes, dim=2))
        if self.rope:
            q, k = rotated(q, cos, sin).to(v.dtype), rotated(k, cos, sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        llama = c["arch"] == "llama"
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.norm1, self.norm2, self.attention = norm(c["width"]), norm(c["width"]), Attention(c)
        self.gate = nn.Linear(c["width"], c["ffn"], bias=False) if llama else None
        self.up, self.down = nn.Linear(c["width"], c["ffn"], bias=not llama), nn.Linear(c["ffn"], c["width"], bias=not llama)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        h = self.norm2(x)
        h = F.silu(self.gate(h)) * self.up(h) if self.gate is not None else F.gelu(self.up(h), approximate="tanh")
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        llama = c["arch"] == "llama"
        self.tokens = nn.Embedding(c["vocabulary"], c["width"])
        self.positions = None if llama else nn.Embedding(c["length"], c["width"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["width"]) if llama else nn.LayerNorm(c["width"])
        self.head = None if c["tied"] else nn.Linear(c["width"], c["vocabulary"], bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        half = c["width"] // c["heads"] // 2
        angle = torch.arange(c["length"])[:, None] * 500000.0 ** (-torch.arange(half) / half)[None, :]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        weight = self.tokens.weight if self.head is None else self.head.weight
        logits = F.linear(self.norm(x), weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


class Trainer:
    def __init__(self, c):
        self.c, self.gpu = c, c["device"] == "cuda"
        with torch.device(c["device"]):
            self.model = Model(c)
            self.tokens = torch.randint(c["vocabulary"], (c["micro"], c["length"] + 1))
        self.forward = torch.compile(self.model) if self.gpu else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def wait(self):
        if self.gpu:
            torch.cuda.synchronize()

    def step(self):
        for _ in range(self.c["micros"]):
            with torch.autocast(self.c["device"], dtype=torch.bfloat16, enabled=self.c["dtype"] == "bf16"):
                loss = self.forward(self.tokens[:, :-1], self.tokens[:, 1:])
            (loss / self.c["micros"]).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def seconds(self):
        self.wait()
        start = time.perf_counter()
        self.step()
        self.wait()
        return time.perf_counter() - start

    def kernels(self):
        """Milliseconds of a step by kind of kernel."""
        activity = torch.profiler.ProfilerActivity
        kinds = dict.fromkeys((kind for kind, _ in KINDS), 0.0)
        with torch.profiler.profile(activities=[activity.CUDA if self.gpu else activity.CPU]) as profile:
            self.step()
            self.wait()
        for event in profile.key_averages():
            kinds[kind_of(event.key)] += (event.self_device_time_total if self.gpu else event.self_cpu_time_total) / 1e3
        return kinds


def main():
    c = {"kv_heads": None, "tied": True, "micros": 1, "dtype": "bf16", "steps": 10, "kernels": False, "device": "cuda",
         **json.loads(sys.argv[1])}
    c["kv_heads"] = c["kv_heads"] or c["heads"]
    torch.set_float32_matmul_precision("highest" if c["dtype"] == "fp32" else "high")
    torch.manual_seed(1)
    trainer = Trainer(c)
    for _ in range(min(WARM_UP, c["steps"])):
        trainer.step()
    took = statistics.median(trainer.seconds() for _ in range(c["steps"]))
    print(json.dumps({"version": torch.__version__, "tokens_per_s": c["micro"] * c["micros"] * c["length"] / took, "ms": 1e3 * took,
                      "kernels": trainer.kernels() if c["kernels"] else None}))


if __name__ == "__main__":
    main()
