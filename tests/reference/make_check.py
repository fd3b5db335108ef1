#!/usr/bin/env python3
"""
make_check.py - batches, losses and gradients of transformers' own, for tests/apps/test_check.sh: writes check_gpt2.safetensors and
check_qwen3.safetensors for the models of hf_gpt2 and hf_qwen3, and check_batch.safetensors. Needs torch and transformers.
"""
import pathlib

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
SEQUENCES, TOKENS = 4, 20

generator = torch.Generator().manual_seed(5)
batch = {"input_ids": torch.randint(0, 256, (SEQUENCES, TOKENS), generator=generator)}
batch["labels"] = batch["input_ids"].clone()
for row in range(SEQUENCES):
    batch["labels"][row, :3 * row] = -100
save_file({k: v.int() for k, v in batch.items()}, HERE / "check_batch.safetensors")
for name in ("gpt2", "qwen3"):
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / f"hf_{name}", dtype=torch.float32, attn_implementation="eager").eval()
    logits = model(input_ids=batch["input_ids"]).logits
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:], ignore_index=-100, reduction="none")
    loss = losses.sum() / (batch["labels"][:, 1:] != -100).sum()
    loss.backward()
    save_file({n: p.grad for n, p in model.named_parameters()} | {"loss": loss.detach().reshape(1), "token_losses": losses.detach()},
              HERE / f"check_{name}.safetensors")
