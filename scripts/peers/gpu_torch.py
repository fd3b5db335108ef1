#!/usr/bin/env python3
"""
gpu_torch.py LAYERS HEADS WIDTH BATCH DTYPE - PyTorch's speed with a GPT-2 on this GPU, for gpu_check.py:
compiled, the attention that it chooses, fused AdamW, sequences of 1024. DTYPE: bf16, by autocast over fp32 parameters;
tf32, fp32 whose products round their factors; fp32.
Prints {"version", "tokens_per_s"} as JSON.
"""
import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as missing:
    print(f"no torch: {missing}")
    sys.exit(0)

VOCABULARY, LENGTH, STEPS, WARM_UP = 50304, 1024, 14, 4


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def main():
    layers, heads, width, batch = (int(word) for word in sys.argv[1:5])
    dtype = sys.argv[5]
    torch.set_float32_matmul_precision("highest" if dtype == "fp32" else "high")
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = GPT(layers, heads, width)
        tokens = torch.randint(VOCABULARY, (batch, LENGTH + 1))
    step_of = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    times = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = step_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    rate = batch * LENGTH / statistics.median(times[WARM_UP:])
    print(json.dumps({"version": torch.__version__, "tokens_per_s": rate}))


if __name__ == "__main__":
    main()
