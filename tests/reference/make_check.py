#!/usr/bin/env python3
"""
make_check.py - batches, losses and gradients of transformers' own, for tests/apps/test_check.sh: writes check_gpt2.safetensors,
check_qwen3.safetensors and check_mixtral.safetensors for the models of hf_gpt2, hf_qwen3 and hf_mixtral, which it makes, and
check_batch.safetensors; check_mixtral_bf16.safetensors, under autocast, and check_mixtral_routed.safetensors, its batch with the choices
of its routers. Needs torch and transformers.
"""
import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "apps" / "python"))
import weft_hooks  # noqa: E402
SEQUENCES, TOKENS = 4, 20


def make_mixtral():
    """A mixture of experts, whose tensors have shapes that no two kinds share."""
    torch.manual_seed(11)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, hidden_size=16, intermediate_size=12, vocab_size=256,
        max_position_embeddings=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=True,
        bos_token_id=0, eos_token_id=0))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(HERE / "hf_mixtral")
    (HERE / "hf_mixtral" / "generation_config.json").unlink()


make_mixtral()
generator = torch.Generator().manual_seed(5)
batch = {"input_ids": torch.randint(0, 256, (SEQUENCES, TOKENS), generator=generator)}
batch["labels"] = batch["input_ids"].clone()
for row in range(SEQUENCES):
    batch["labels"][row, :3 * row] = -100
save_file({k: v.int() for k, v in batch.items()}, HERE / "check_batch.safetensors")
for name, bf16 in (("gpt2", False), ("qwen3", False), ("mixtral", False), ("mixtral", True)):
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / f"hf_{name}", dtype=torch.float32, attn_implementation="eager").eval()
    routes = weft_hooks.Routes(model)
    routes.begin()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = model(input_ids=batch["input_ids"]).logits.float()
    chosen = routes.end(SEQUENCES, TOKENS)
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:], ignore_index=-100, reduction="none")
    loss = losses.sum() / (batch["labels"][:, 1:] != -100).sum()
    loss.backward()
    save_file(weft_hooks.gradients(model) | {"loss": loss.detach().reshape(1), "token_losses": losses.detach()},
              HERE / f"check_{name}{'_bf16' if bf16 else ''}.safetensors")
    if bf16:
        save_file({k: v.int() for k, v in batch.items()} | {"routed_experts": chosen}, HERE / "check_mixtral_routed.safetensors")
