#!/usr/bin/env python3
"""
make_pretrained.py - a tiny model of each family as transformers save them, and what they compute.

    python3 -m venv /tmp/reference && /tmp/reference/bin/pip install torch transformers safetensors
    /tmp/reference/bin/python tests/reference/make_pretrained.py

writes, beside this file,

    hf_gpt2/    config.json, model.safetensors (fp32)
    hf_llama/   config.json, model.safetensors.index.json and its files (bf16)
    hf_llama31/, hf_mistral/, hf_qwen2/, hf_qwen3/, hf_smollm3/,
    hf_granite/, hf_gemma/, hf_olmo2/, hf_phi3/, hf_mistral_layers/,
    hf_phi35/, hf_ministral/, hf_olmo3/, hf_gemma2/, hf_gemma3/,
    hf_glm4/, hf_stablelm/, hf_cohere/, hf_phi/,
    hf_gpt_neox/, hf_llama4/                     what each has beside a Llama's

and in each logits.safetensors: tokens [batch, seq] i32 and logits [batch, seq, vocab] f32, computed
in fp32 from the weights in the files.

(.. make_pretrained.py NAME.. makes those alone.)

    .. make_pretrained.py --check FOLDER OTHER

loads FOLDER with transformers, and says whether every tensor has the very bytes of OTHER's, and
whether the logits are the same.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

BATCH, SEQ, SEED = 2, 12, 20251121


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_head=3, n_embd=24, n_inner=80, vocab_size=257, n_positions=32,
        layer_norm_epsilon=1e-5, bos_token_id=0, eos_token_id=0))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
        intermediate_size=48, vocab_size=256, max_position_embeddings=32, rms_norm_eps=1e-6,
        rope_theta=50000.0, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0))


def llama31():
    """Frequencies scaled as Llama 3.1's: with 8 positions at first it bites within the 12 tokens of the test."""
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
        intermediate_size=48, vocab_size=256, max_position_embeddings=64, rms_norm_eps=1e-5,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=[0, 3], head_dim=12,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8}))


def mistral():
    """Heads of their own size; its window is longer than the test."""
    return transformers.MistralForCausalLM(transformers.MistralConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
        head_dim=6, intermediate_size=48, vocab_size=256, max_position_embeddings=64,
        rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=24, bos_token_id=0,
        eos_token_id=0))


def mistral_layers():
    """A Mistral with layer_types, which AutoModel takes for a Ministral: two of its layers have a window of 5."""
    return transformers.MinistralForCausalLM(transformers.MinistralConfig(
        num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, hidden_size=16,
        head_dim=8, intermediate_size=24, vocab_size=256, max_position_embeddings=64,
        rms_norm_eps=1e-5, tie_word_embeddings=True, sliding_window=5, bos_token_id=0,
        eos_token_id=0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]))


def qwen2():
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, hidden_size=48,
        intermediate_size=40, vocab_size=256, max_position_embeddings=32, rms_norm_eps=1e-6,
        tie_word_embeddings=True, use_sliding_window=False, bos_token_id=0, eos_token_id=0))


def qwen3():
    """Norms of queries and keys, heads of their own size; 6 heads and 3 key-value heads divide by nothing."""
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3, hidden_size=40,
        head_dim=10, intermediate_size=56, vocab_size=256, max_position_embeddings=32,
        rms_norm_eps=1e-6, tie_word_embeddings=True, use_sliding_window=False, bos_token_id=0,
        eos_token_id=0))


SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
         "intermediate_size": 48, "vocab_size": 256, "max_position_embeddings": 32, "bos_token_id": 0,
         "eos_token_id": 0, "pad_token_id": None}


def smollm3():
    """Its second layer has no positions."""
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(
        **SMALL, no_rope_layer_interval=2, no_rope_layers=[1, 0], tie_word_embeddings=True))


def granite():
    """All four multipliers, none of which is a power of two."""
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(
        **SMALL, embedding_multiplier=3.7, attention_multiplier=0.21, residual_multiplier=0.37,
        logits_scaling=1.9, tie_word_embeddings=True))


def gemma():
    """Gains of 1 + w, a gate of gelu, an embedding times the root of the width; one key-value head."""
    return transformers.GemmaForCausalLM(transformers.GemmaConfig(
        **{**SMALL, "num_key_value_heads": 1}, head_dim=10, hidden_act="gelu_pytorch_tanh"))


def olmo2():
    """Norms behind attention and MLP; one of all queries, one of all keys."""
    return transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**SMALL))


def phi3():
    """Queries, keys and values in one tensor, gate and up in another."""
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(**SMALL, sliding_window=24))


def phi35():
    """Half of a head turns, by factors of its own for each pair, those of long texts: the test is one."""
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(
        **SMALL, original_max_position_embeddings=8, rope_parameters={
            "rope_type": "longrope", "rope_theta": 500.0, "partial_rotary_factor": 0.5,
            "short_factor": [1.0, 1.3], "long_factor": [1.5, 4.25],
            "original_max_position_embeddings": 8}))


LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
TURNS = {"rope_type": "default", "rope_theta": 500.0}
PART = {**TURNS, "partial_rotary_factor": 0.5}
SQUARE = {k: v for k, v in SMALL.items() if k != "num_key_value_heads"}


def ministral():
    """A window of 5 in the first and the last of three layers."""
    return transformers.MinistralForCausalLM(transformers.MinistralConfig(
        **{**SMALL, "num_hidden_layers": 3}, head_dim=6, sliding_window=5, layer_types=LAYERS))


def olmo3():
    """An Olmo 2 with windows, whose layers are not scaled as the others are."""
    return transformers.Olmo3ForCausalLM(transformers.Olmo3Config(
        **{**SMALL, "num_hidden_layers": 3}, sliding_window=5, layer_types=LAYERS, rope_parameters={
            "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 1.5,
                               "beta_slow": 0.2, "original_max_position_embeddings": 8},
            "sliding_attention": TURNS}))


def gemma2():
    """Soft caps of scores and logits that few escape."""
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **SMALL, head_dim=10, sliding_window=5, query_pre_attn_scalar=14, attn_logit_softcapping=1.3,
        final_logit_softcapping=2.1))


def gemma3():
    """Norms before and behind each branch, of each head's queries and keys, and two bases of rotation."""
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **{**SMALL, "num_hidden_layers": 3}, head_dim=10, sliding_window=5, layer_types=LAYERS,
        query_pre_attn_scalar=14, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 900.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}))


def glm4():
    """Half of a head turns, neighbours in pairs."""
    return transformers.Glm4ForCausalLM(transformers.Glm4Config(**SMALL, head_dim=8, rope_parameters=PART))


def stablelm():
    """LayerNorms around a gate; a quarter of a head turns."""
    return transformers.StableLmForCausalLM(transformers.StableLmConfig(
        **SMALL, use_qkv_bias=True, rope_parameters={**TURNS, "partial_rotary_factor": 0.25}))


def cohere():
    """One norm without a bias, whose result attention and MLP share."""
    return transformers.CohereForCausalLM(transformers.CohereConfig(**SMALL, logit_scale=0.3, rope_parameters=TURNS))


def phi():
    """Biases everywhere, the head's among them."""
    return transformers.PhiForCausalLM(transformers.PhiConfig(**SMALL, rope_parameters=PART))


def gpt_neox():
    """A head's queries, keys and values one behind the other in one tensor."""
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SQUARE, rope_parameters=PART))


def llama4():
    """Chunks of 5 tokens, every second layer without positions and with a temperature; every second one has experts."""
    return transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(
        **{**SMALL, "num_hidden_layers": 4, "intermediate_size": 24}, intermediate_size_mlp=40, head_dim=10, num_local_experts=5,
        num_experts_per_tok=1, interleave_moe_layer_step=2, no_rope_layer_interval=2, attention_chunk_size=5,
        floor_scale=3, attn_scale=0.7, rope_parameters=TURNS))


def initialise(model, generator):
    """Nothing at zero or one, so that every tensor counts."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(0.2 * noise + (1.0 if p.dim() == 1 and not name.endswith("bias") else 0.0))


def logits(folder, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(tokens.long()).logits


def make(name, model, dtype, shard):
    generator = torch.Generator().manual_seed(SEED)
    folder = pathlib.Path(__file__).resolve().parent / name
    initialise(model, generator)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name == "hf_mistral_layers":
        config = json.loads((folder / "config.json").read_text())
        config.update(model_type="mistral", architectures=["MistralForCausalLM"])
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokens = torch.randint(model.config.vocab_size, (BATCH, SEQ), generator=generator).int()
    save_file({"tokens": tokens, "logits": logits(folder, tokens).contiguous()},
              folder / "logits.safetensors")
    print(name, sorted((p.name, p.stat().st_size) for p in folder.iterdir()))


def tensors(folder):
    """name -> (dtype, shape, bytes) of all weights of a folder."""
    index = pathlib.Path(folder) / "model.safetensors.index.json"
    files = (sorted(set(json.loads(index.read_text())["weight_map"].values()))
             if index.exists() else ["model.safetensors"])
    out = {}
    for file in files:
        with safe_open(pathlib.Path(folder) / file, "pt") as f:
            for name in f.keys():
                t = f.get_tensor(name)
                out[name] = (t.dtype, tuple(t.shape), t.contiguous().view(torch.uint8).numpy().tobytes()
                             if t.dim() else bytes(t.view(torch.uint8).tolist()))
    return out


def check(folder, other):
    a, b = tensors(folder), tensors(other)
    wrong = sorted(set(a) ^ set(b)) + [k for k in sorted(set(a) & set(b)) if a[k] != b[k]]
    with safe_open(pathlib.Path(other) / "logits.safetensors", "pt") as f:
        distance = (logits(folder, f.get_tensor("tokens")) - f.get_tensor("logits")).abs().max()
    print(f"{len(a)} tensors, different: {wrong or 'none'}; logits differ by {distance:.1e}")
    return not wrong and distance == 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--check"]:
        sys.exit(not check(*sys.argv[2:4]))
    models = {"hf_gpt2": (gpt2, torch.float32, "5GB"), "hf_llama": (llama, torch.bfloat16, "20KB"),
              "hf_llama31": (llama31, torch.bfloat16, "5GB"),
              "hf_mistral": (mistral, torch.bfloat16, "5GB"),
              "hf_mistral_layers": (mistral_layers, torch.bfloat16, "5GB"),
              "hf_qwen2": (qwen2, torch.float32, "5GB"),
              "hf_qwen3": (qwen3, torch.float32, "5GB"),
              "hf_smollm3": (smollm3, torch.bfloat16, "5GB"),
              "hf_granite": (granite, torch.bfloat16, "5GB"),
              "hf_gemma": (gemma, torch.bfloat16, "5GB"),
              "hf_olmo2": (olmo2, torch.bfloat16, "5GB"),
              "hf_phi3": (phi3, torch.bfloat16, "5GB"),
              "hf_phi35": (phi35, torch.bfloat16, "5GB"),
              **{f"hf_{made.__name__}": (made, torch.bfloat16, "5GB") for made in (
                  ministral, olmo3, gemma2, gemma3, glm4, stablelm, cohere, phi, gpt_neox, llama4)}}
    for chosen in sys.argv[1:] or models:
        build, kind, shard = models[chosen]
        make(chosen, build(), kind, shard)
