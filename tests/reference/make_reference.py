#!/usr/bin/env python3
"""
make_reference.py - a tiny GPT-2 and a tiny Llama of Hugging Face, with what they compute.

    python3 -m venv /tmp/reference && /tmp/reference/bin/pip install torch transformers safetensors
    /tmp/reference/bin/python tests/reference/make_reference.py

writes gpt2.safetensors and llama.safetensors beside this file. Each holds, under Weft's names:

    <name>         a parameter, fp32; a linear's weight is [out, in]
    grad.<name>    its gradient of the first step, before clipping
    tokens         [batch, seq] i32        targets  [batch, seq] i32, the token after each
    logits         [batch, seq, vocab], of the first step
    losses         [steps], mean cross-entropy before each update; every step sees the same batch
    grad_norms     [steps], before clipping

and in __metadata__ the model's sizes and the optimizer's settings, as strings.

Everything is computed in double from fp32 weights and rounded once, so a difference from these
files is the reader's own. The names are proved right here as well: `check` rebuilds the logits
from the renamed tensors in a few plain lines.
"""
import math
import pathlib

import torch
import transformers
from safetensors.torch import save_file

LAYERS, HEADS, KV_HEADS, WIDTH, FFN, VOCAB, POSITIONS = 2, 4, 2, 32, 64, 256, 64
BATCH, SEQ, STEPS, SEED = 4, 32, 10, 20240607
NORM_EPS, THETA = 1e-5, 10000.0
LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_inner=4 * WIDTH, vocab_size=VOCAB,
        n_positions=POSITIONS, activation_function="gelu_new", layer_norm_epsilon=NORM_EPS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=True,
        bos_token_id=0, eos_token_id=0, attn_implementation="eager"))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        hidden_size=WIDTH, intermediate_size=FFN, vocab_size=VOCAB,
        max_position_embeddings=POSITIONS, rms_norm_eps=NORM_EPS, rope_theta=THETA,
        hidden_act="silu", attention_bias=False, mlp_bias=False, attention_dropout=0.0,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, attn_implementation="eager"))


def gpt2_names(of):
    """Weft's names of a GPT-2: `of` maps a Hugging Face name to a tensor (weight or gradient)."""
    out = {"embed.table": of("transformer.wte.weight"),
           "position.table": of("transformer.wpe.weight"),
           "norm.gain": of("transformer.ln_f.weight"), "norm.bias": of("transformer.ln_f.bias")}
    for n in range(LAYERS):
        theirs, ours = f"transformer.h.{n}", f"block.{n}"
        # Conv1D keeps [in, out], with query, key and value side by side in the columns.
        for x, weight, bias in zip("qkv", of(f"{theirs}.attn.c_attn.weight").chunk(3, dim=1),
                                   of(f"{theirs}.attn.c_attn.bias").chunk(3)):
            out[f"{ours}.attn.{x}.weight"], out[f"{ours}.attn.{x}.bias"] = weight.t(), bias
        for x, y in (("attn.out", "attn.c_proj"), ("mlp.up", "mlp.c_fc"),
                     ("mlp.down", "mlp.c_proj")):
            out[f"{ours}.{x}.weight"] = of(f"{theirs}.{y}.weight").t()
            out[f"{ours}.{x}.bias"] = of(f"{theirs}.{y}.bias")
        for x, y in (("norm1", "ln_1"), ("norm2", "ln_2")):
            out[f"{ours}.{x}.gain"] = of(f"{theirs}.{y}.weight")
            out[f"{ours}.{x}.bias"] = of(f"{theirs}.{y}.bias")
    return out


def llama_names(of):
    """Weft's names of a Llama, as gpt2_names."""
    out = {"embed.table": of("model.embed_tokens.weight"), "norm.gain": of("model.norm.weight"),
           "head.weight": of("lm_head.weight")}
    for n in range(LAYERS):
        for x, y in (("norm1.gain", "input_layernorm"), ("attn.q.weight", "self_attn.q_proj"),
                     ("attn.k.weight", "self_attn.k_proj"), ("attn.v.weight", "self_attn.v_proj"),
                     ("attn.out.weight", "self_attn.o_proj"),
                     ("norm2.gain", "post_attention_layernorm"),
                     ("mlp.gate.weight", "mlp.gate_proj"), ("mlp.up.weight", "mlp.up_proj"),
                     ("mlp.down.weight", "mlp.down_proj")):
            out[f"block.{n}.{x}"] = of(f"model.layers.{n}.{y}.weight")
    return out


def initialise(model, generator):
    """Larger than a real start and nothing at zero or one, so that no gradient is idle."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() > 1:
                p.copy_(0.15 * noise)
            else:
                p.copy_(0.1 * noise + (0.0 if name.endswith("bias") else 1.0))


def plain_logits(w, tokens):
    """The model again, from Weft's names alone; it is a GPT-2 where there are biases."""
    is_gpt2 = "norm.bias" in w
    head_dim, (batch, seq) = WIDTH // HEADS, tokens.shape

    def norm(x, name):
        if is_gpt2:
            x = x - x.mean(-1, keepdim=True)
        x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + NORM_EPS) * w[f"{name}.gain"]
        return x + w[f"{name}.bias"] if is_gpt2 else x

    def linear(x, name):
        y = x @ w[f"{name}.weight"].t()
        return y + w[f"{name}.bias"] if is_gpt2 else y

    def rope(x):                                # rotates x[i] with x[i + head_dim / 2]
        half = head_dim // 2
        angle = torch.outer(torch.arange(seq).double(),
                            THETA ** (-torch.arange(half).double() / half))
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angle.cos() - b * angle.sin(),
                          b * angle.cos() + a * angle.sin()), -1)

    def heads(x, name):                         # [batch, heads, seq, head_dim]
        return linear(x, name).view(batch, seq, -1, head_dim).transpose(1, 2)

    def attention(x, name):
        q, k, v = (heads(x, f"{name}.{i}") for i in "qkv")
        if not is_gpt2:
            q, k = rope(q), rope(k)
            k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        score = q @ k.transpose(2, 3) / math.sqrt(head_dim)
        score = score.masked_fill(torch.ones(seq, seq).triu(1).bool(), -math.inf)
        y = (score.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, WIDTH)
        return linear(y, f"{name}.out")

    def mlp(x, name):
        up = linear(x, f"{name}.up")
        if is_gpt2:
            up = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up ** 3)))
        else:
            gate = linear(x, f"{name}.gate")
            up = gate / (1 + torch.exp(-gate)) * up
        return linear(up, f"{name}.down")

    x = w["embed.table"][tokens]
    if is_gpt2:
        x = x + w["position.table"][:seq]
    for n in range(LAYERS):
        x = x + attention(norm(x, f"block.{n}.norm1"), f"block.{n}.attn")
        x = x + mlp(norm(x, f"block.{n}.norm2"), f"block.{n}.mlp")
    return norm(x, "norm") @ w["embed.table" if is_gpt2 else "head.weight"].t()


def check(weights, gradients, tokens, targets, logits):
    """Logits and gradients from the renamed tensors, against those of Hugging Face."""
    w = {k: v.detach().clone().requires_grad_() for k, v in weights.items()}
    again = plain_logits(w, tokens)
    cross_entropy(again, targets).backward()
    # Hugging Face computes rotations and RMSNorm in fp32 whatever the model's type is.
    assert (again - logits).abs().max() < 1e-5, "logits of the renamed tensors differ"
    for k, v in w.items():
        error = (v.grad - gradients[k]).norm() / max(gradients[k].norm(), 1e-3)
        assert error < 1e-5, f"gradient of {k} differs by {error:.1e}"


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def train(model, tokens, targets):
    """AdamW; decay on matrices only. Gives the losses and the norms before clipping."""
    params = list(model.parameters())
    groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens).logits, targets)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(params, CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms


def make(arch, model, names, path):
    generator = torch.Generator().manual_seed(SEED)
    initialise(model, generator)
    model = model.double().train()
    text = torch.randint(VOCAB, (BATCH, SEQ + 1), generator=generator)
    tokens, targets = text[:, :-1], text[:, 1:]

    logits = model(tokens).logits
    cross_entropy(logits, targets).backward()
    params = dict(model.named_parameters())
    weights = names(lambda name: params[name].detach().clone())
    gradients = names(lambda name: params[name].grad.clone())
    assert sum(v.numel() for v in weights.values()) == sum(p.numel() for p in model.parameters())
    check(weights, gradients, tokens, targets, logits.detach())

    losses, norms = train(model, tokens, targets)
    tensors = {k: v for k, v in weights.items()}
    tensors.update({f"grad.{k}": v for k, v in gradients.items()})
    tensors.update(logits=logits.detach(), losses=torch.tensor(losses).double(),
                   grad_norms=torch.tensor(norms).double())
    tensors = {k: v.float().contiguous() for k, v in tensors.items()}
    tensors.update(tokens=tokens.int().contiguous(), targets=targets.int().contiguous())
    settings = dict(arch=arch, n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, vocab_size=VOCAB,
                    n_kv_head=HEADS if arch == "gpt2" else KV_HEADS,
                    ffn=4 * WIDTH if arch == "gpt2" else FFN, max_seq_len=POSITIONS,
                    norm_eps=NORM_EPS, rope_theta=THETA, tied=arch == "gpt2",
                    lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, weight_decay=DECAY,
                    clip_grad=CLIP, seed=SEED, torch=torch.__version__,
                    transformers=transformers.__version__)
    save_file(tensors, path, metadata={k: str(v) for k, v in settings.items()})
    print(f"{path.name}: {path.stat().st_size} bytes, loss {losses[0]:.6f} -> {losses[-1]:.6f}, "
          f"gradient norm {norms[0]:.4f} -> {norms[-1]:.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    here = pathlib.Path(__file__).resolve().parent
    make("gpt2", gpt2(), gpt2_names, here / "gpt2.safetensors")
    make("llama", llama(), llama_names, here / "llama.safetensors")
