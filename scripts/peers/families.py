#!/usr/bin/env python3
"""
families.py [--weft BUILD] [--keep DIR] [FAMILY...] - families of models against transformers.

For each family of nn/models/gpt/families.def, and for some of what it may have beside (phi3/longrope), a
tiny model of random weights, with sizes that nothing divides and settings that matter within its few tokens, is made
by transformers. Then

  logits     of Weft on nine layouts are within 2e-5 of the largest one, and what Weft saves of it has
             every tensor byte for byte (tests/nn/test_pretrained.c)
  export     what gpt_export writes gives transformers the same logits, difference 0
  gradients  of every parameter are within 1e-4 of theirs in norm: they are read off one step of SGD
  layouts    tp 1, 2, 4, 8 x dp 1, 2 x sequence parallelism, two pipelines and recomputation have the loss
             bits and digest of one rank
  refusals   each key that has to say what Weft computes, changed alone, is refused by its name
  texts      where RoPE is another in long texts: greedy texts that become long are theirs

It needs torch and transformers, in the Python that runs it, and a build of Weft. Status 1: something
is wrong, 2: something is missing.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = ROOT / "parallel" / "models" / "gpt" / "hf_config.def"
KNOWN = ROOT / "nn" / "models" / "gpt" / "families.def"
BATCH, TOKENS, SEED = 4, 24, 20251123
RATE = 1000  # of the step that shows gradients: an update is far larger than the weight's rounding

sys.path.pop(0)  # this folder has a tokenizers.py, and transformers mean the package of that name
try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"families.py: {missing}: pip install torch transformers safetensors", file=sys.stderr)
    sys.exit(2)

COMMON = {"vocab_size": 300, "hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 3,
          "num_attention_heads": 6, "num_key_value_heads": 3, "max_position_embeddings": 64,
          "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 1.5, "beta_slow": 0.2}
LONGROPE = {"rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.1, 1.3, 1.7],
            "long_factor": [1.2, 2.0, 3.5, 9.25], "original_max_position_embeddings": 16}
FAMILIES = {
    "gpt2": {"n_layer": 3, "n_head": 5, "n_embd": 40, "n_inner": 72, "vocab_size": 300,
             "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0},
    "llama": {**COMMON, "hidden_size": 48, "head_dim": 10, "rope_parameters": LLAMA3, "attention_bias": True,
              "mlp_bias": True, "tie_word_embeddings": True},
    "mistral": {**COMMON, "head_dim": 6, "sliding_window": 7, "tie_word_embeddings": False},
    "qwen2": {**COMMON, "hidden_size": 48, "tie_word_embeddings": True, "use_sliding_window": True,
              "sliding_window": 5, "max_window_layers": 1},
    "qwen3": {**COMMON, "head_dim": 10, "attention_bias": True, "tie_word_embeddings": False,
              "use_sliding_window": True, "sliding_window": 9, "rope_parameters": YARN,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "smollm3": {**COMMON, "hidden_size": 48, "num_hidden_layers": 5, "no_rope_layer_interval": 2,
                "no_rope_layers": [1, 0, 1, 0, 1], "tie_word_embeddings": True},
    "granite": {**COMMON, "hidden_size": 48, "embedding_multiplier": 3.7, "attention_multiplier": 0.21,
                "residual_multiplier": 0.37, "logits_scaling": 1.9, "tie_word_embeddings": True},
    "gemma": {**COMMON, "head_dim": 10, "hidden_act": "gelu_pytorch_tanh"},
    "olmo2": {**COMMON, "hidden_size": 48, "attention_bias": True, "tie_word_embeddings": False},
    "mixtral": {**COMMON, "hidden_size": 48, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 9,
                "tie_word_embeddings": False},
    "qwen3_moe": {**COMMON, "head_dim": 10, "moe_intermediate_size": 20, "num_experts": 7, "num_experts_per_tok": 3,
                  "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                  "tie_word_embeddings": False},
    "qwen2_moe": {**COMMON, "hidden_size": 48, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28,
                  "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": True, "decoder_sparse_step": 1,
                  "mlp_only_layers": [], "tie_word_embeddings": False},
    "qwen3_moe/dense": {**COMMON, "num_hidden_layers": 4, "moe_intermediate_size": 20, "num_experts": 7,
                        "num_experts_per_tok": 3, "norm_topk_prob": False, "decoder_sparse_step": 1,
                        "mlp_only_layers": [0, 2], "hidden_size": 48, "tie_word_embeddings": False},
    "qwen2_moe/step": {**COMMON, "hidden_size": 48, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28,
                       "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": False, "decoder_sparse_step": 2,
                       "mlp_only_layers": [], "tie_word_embeddings": False},
    "granitemoe": {**COMMON, "hidden_size": 48, "num_local_experts": 5, "num_experts_per_tok": 2,
                   "embedding_multiplier": 3.7, "attention_multiplier": 0.21, "residual_multiplier": 0.37,
                   "logits_scaling": 1.9, "attention_bias": True, "tie_word_embeddings": True},
    "granitemoeshared": {**COMMON, "hidden_size": 48, "num_local_experts": 6, "num_experts_per_tok": 3,
                         "embedding_multiplier": 3.7, "attention_multiplier": 0.21, "residual_multiplier": 0.37,
                         "logits_scaling": 1.9, "shared_intermediate_size": 28, "tie_word_embeddings": False},
    "olmoe": {**COMMON, "hidden_size": 48, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": False,
              "tie_word_embeddings": False},
    "phi3": {**COMMON, "hidden_size": 48, "sliding_window": 11, "tie_word_embeddings": False},
    "llama/longrope": {**COMMON, "hidden_size": 48, "rope_parameters": {**LONGROPE, "factor": 4.0}},
    "llama/dynamic": {**COMMON, "hidden_size": 48, "max_position_embeddings": 16, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0}},
    "qwen2/layers": {**COMMON, "hidden_size": 48, "num_hidden_layers": 5, "use_sliding_window": True,
                     "sliding_window": 5, "layer_types": [f"{kind}_attention" for kind in (
                         "sliding", "full", "sliding", "sliding", "full")]},
    "phi3/longrope": {**COMMON, "hidden_size": 48, "original_max_position_embeddings": 16, "rope_parameters": LONGROPE,
                      "tie_word_embeddings": False},
    "phi3/short": {**COMMON, "hidden_size": 48, "original_max_position_embeddings": 32,
                   "rope_parameters": {**LONGROPE, "original_max_position_embeddings": 32}},
    "ministral": {**COMMON, "head_dim": 6, "sliding_window": 5, "num_hidden_layers": 4, "tie_word_embeddings": False,
                  "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "full", "sliding")]},
    "olmo3": {**COMMON, "hidden_size": 48, "num_hidden_layers": 4, "sliding_window": 7, "tie_word_embeddings": False,
              "rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}},
    "gemma2": {**COMMON, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 10, "sliding_window": 6,
               "attn_logit_softcapping": 1.3, "final_logit_softcapping": 2.1, "query_pre_attn_scalar": 14},
    "gemma3_text": {**COMMON, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 10, "num_hidden_layers": 4, "sliding_window": 6,
                    "query_pre_attn_scalar": 14, "layer_types": [f"{kind}_attention" for kind in (
                        "sliding", "sliding", "full", "sliding")],
                    "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 900.0},
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}},
    "llama4_text": {**COMMON, "head_dim": 10, "num_hidden_layers": 4, "intermediate_size": 24, "intermediate_size_mlp": 56,
                    "num_local_experts": 5, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
                    "no_rope_layer_interval": 2, "attention_chunk_size": 7, "floor_scale": 5, "attn_scale": 0.7,
                    "tie_word_embeddings": False, "rope_parameters": LLAMA3},
    "llama4_text/layers": {**COMMON, "head_dim": 10, "num_hidden_layers": 5, "intermediate_size": 24, "intermediate_size_mlp": 56,
                           "num_local_experts": 6, "num_experts_per_tok": 1, "moe_layers": [0, 3],
                           "no_rope_layers": [1, 1, 0, 1, 1], "attention_chunk_size": 6, "use_qk_norm": False,
                           "tie_word_embeddings": True,
                           "layer_types": [f"{kind}_attention" for kind in ("chunked", "full", "full", "chunked", "full")]},
    "glm4": {**COMMON, "head_dim": 12, "tie_word_embeddings": False,
             "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}},
    "stablelm": {**COMMON, "hidden_size": 48, "use_qkv_bias": True, "tie_word_embeddings": False,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.25}},
    "stablelm/parallel": {**COMMON, "hidden_size": 48, "use_parallel_residual": True, "tie_word_embeddings": True},
    "cohere": {**COMMON, "hidden_size": 48, "logit_scale": 0.3, "rope_parameters": {
        "rope_type": "default", "rope_theta": 700.0}},
    "phi": {**COMMON, "hidden_size": 48, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}},
    "gpt_neox": {**{k: v for k, v in COMMON.items() if k != "num_key_value_heads"}, "hidden_size": 48,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.25}},
    "gpt_neox/serial": {**{k: v for k, v in COMMON.items() if k != "num_key_value_heads"}, "hidden_size": 60,
                        "hidden_act": "gelu_new", "attention_bias": False, "use_parallel_residual": False,
                        "tie_word_embeddings": True, "rope_parameters": {
                            "rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.8}},
    "phi3/partial": {**COMMON, "hidden_size": 60, "original_max_position_embeddings": 16, "tie_word_embeddings": True,
                     "rope_parameters": {**LONGROPE, "partial_rotary_factor": 0.8}},
}
OTHERS = [["--strategy", "no_shard", "--tp", 2, "--dp", 2, "--recompute", "attention"],
          ["--pp", 2, "--tp", 2, "--micro-batch-size", 2, "--recompute", "block"],
          ["--pp", 3, "--pp-schedule", "zb-h1", "--dp", 2, "--micro-batch-size", 1]]


class Failure(Exception):
    pass


def run(*command, status=0):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != status:
        raise Failure(f"{' '.join(map(str, command))}: exit status {done.returncode}, not {status}\n"
                      f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def load(folder):
    mixture = {"experts_implementation": "eager"} if "experts" in (folder / "config.json").read_text() else {}
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **mixture).eval()


def of_file(weights, name):
    """A parameter of transformers' class as the file has it: experts are a tensor each there."""
    if name == "lm_head.weight" and "embed_out.weight" in weights:
        name = "embed_out.weight"
    if name in weights:
        return weights[name]
    name = name.replace(".mlp.", ".block_sparse_moe.") if not any(".mlp." in k for k in weights) else name
    if name in weights:
        return weights[name]
    for ours, theirs in (".experts.gate_up_proj", ".input_linear.weight"), (".experts.down_proj", ".output_linear.weight"), (
            ".router.weight", ".router.layer.weight"):
        if name.endswith(ours) and name.replace(ours, theirs) in weights:
            return weights[name.replace(ours, theirs)]
    above, _, matrix = name.rpartition(".")
    kinds = {"gate_up_proj": (("gate_proj", "w1"), ("up_proj", "w3")), "down_proj": (("down_proj", "w2"),)}[matrix]
    count = 1 + max(int(m.group(1)) for k in weights if (m := re.match(rf"{re.escape(above)}\.(\d+)\.", k)))
    parts = [[next(weights[f"{above}.{e}.{word}.weight"] for word in words if f"{above}.{e}.{word}.weight" in weights)
              for words in kinds] for e in range(count)]
    return torch.stack([torch.cat(p) for p in parts])


def make(family, folder):
    """The model's folder, and tokens [BATCH, TOKENS + 1] as the data that trains it in one step."""
    generator = torch.Generator().manual_seed(SEED)
    config = transformers.AutoConfig.for_model(family.split("/")[0], **FAMILIES[family])
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(0.2 * noise + (1.0 if p.dim() == 1 and not name.endswith("bias") else 0.0))
    model.save_pretrained(folder)
    stream = torch.randint(300, (BATCH * TOKENS + 1,), generator=generator)
    windows = torch.stack([stream[i * TOKENS:(i + 1) * TOKENS + 1] for i in range(BATCH)])
    with torch.no_grad():
        logits = load(folder)(windows[:, :-1]).logits
    save_file({"tokens": windows[:, :-1].int().contiguous(), "logits": logits.contiguous()},
              folder / "logits.safetensors")
    (folder.parent / "ids.bin").write_bytes(stream.numpy().astype("uint16").tobytes())
    return windows


def check_logits(build, folder):
    text = run(build / "tests" / "test_pretrained", folder)
    return float(re.search(r"transformers \.\.\.([0-9.e+-]+) \.\.", text).group(1))


def check_export(build, folder, windows):
    out = folder.parent / "exported"
    run(build / "apps" / "gpt_export", folder, out, "--ranks", 3)
    with torch.no_grad():
        apart = (load(out)(windows[:, :-1]).logits - load(folder)(windows[:, :-1]).logits).abs().max()
    ours, theirs = (json.loads((f / "config.json").read_text()) for f in (out, folder))
    if apart != 0 or ours["model_type"] != theirs["model_type"]:
        raise Failure(f"exported as {ours['model_type']}, its logits differ by {apart}")


def training(build, folder, *flags):
    return [build / "apps" / "gpt_train", "--init-from", folder, "--data", folder.parent / "ids.bin",
            "--val-fraction", 0, "--eval-interval", 0, "--seq-len", TOKENS, "--global-batch-size",
            BATCH, "--threads-per-rank", 1, "--warmup-steps", 0, *flags]


def check_gradients(build, folder, windows):
    """The largest distance of a gradient from theirs, in norms of theirs."""
    model, save = load(folder), folder.parent / "stepped"
    logits = model(windows[:, :-1]).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).backward()
    run(*training(build, folder, "--steps", 1, "--optimizer", "sgd", "--beta1", 0, "--lr", RATE,
                  "--min-lr", RATE, "--weight-decay", 0, "--clip-grad", 0, "--tp", 2, "--dp", 2,
                  "--save", save))
    run(build / "apps" / "gpt_export", save, folder.parent / "after")
    before = load_file(folder / "model.safetensors")
    after = load_file(folder.parent / "after" / "model.safetensors")
    worst = 0.0
    for name, p in model.named_parameters():
        ours = (of_file(before, name).double() - of_file(after, name).double()) / RATE
        distance = ((ours - p.grad.double()).norm() / p.grad.double().norm()).item()
        if not distance < 1e-4:
            raise Failure(f"the gradient of {name} is {distance:.1e} away")
        worst = max(worst, distance)
    return worst


def check_layouts(build, folder):
    flags = ["--steps", 3, "--lr", 0.01, "--min-lr", 0.001, "--digest"]
    layouts = [["--tp", tp, "--dp", dp, *parallel] for tp in (1, 2, 4, 8) for dp in (1, 2)
               for parallel in ([], ["--sequence-parallel"])]
    first = None
    for layout in layouts + OTHERS:
        log = folder.parent / "log.jsonl"
        log.unlink(missing_ok=True)
        run(*training(build, folder, *flags, *layout, "--log-jsonl", log))
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        steps = [(r["loss"], r["digest"]) for r in rows if "loss" in r]
        first = first or steps
        if len(steps) != 3 or steps != first:
            raise Failure(f"{layout}: {steps}, on one rank {first}")
    return len(layouts + OTHERS)


def musts(family):
    """(key, its positions, the words that will do) of the rows that are the family's."""
    text = re.sub(r"/\*.*?\*/", "", ROWS.read_text() + ROWS.with_name("hf_config_all.def").read_text(), flags=re.S)
    parent = dict(re.findall(r'^FAMILY\((\w+), "\w+", "(\w*)"', KNOWN.read_text(), re.M))
    chain = []
    while family:
        chain.append(family)
        family = parent[family]
    rows = {}
    for of in [*chain, "all"]:
        own = {}
        for kind, key, others, rest in re.findall(
                rf'^(\w+)\({of}, "([\w.]+)"(?:, "([\w. ]*)")?(.*)\)$', text, re.M):
            own.setdefault(key, (kind, [key, *others.split()], rest))
        rows = {**own, **rows}
    return [(key, paths, re.search(r'"([^"]*)"', rest).group(1).split(), kind)
            for key, (kind, paths, rest) in rows.items() if kind in ("MUST", "EACH")]


def other_value(words, kind):
    if kind == "EACH":
        return ["another"]
    if "true" in words or "false" in words:
        return "true" not in words
    return 0.37 if any(re.fullmatch(r"[0-9.]+", w) for w in words) else "another"


def check_refusals(build, family, folder):
    changed, count = folder.parent / "changed", 0
    changed.mkdir()
    for name in "model.safetensors", "logits.safetensors":
        os.link(folder / name, changed / name)
    for key, paths, words, kind in musts(family):
        for path in paths:
            config = json.loads((folder / "config.json").read_text())
            for here in paths:
                *above, name = here.split(".")
                inside = config
                for key in above:
                    inside = inside.get(key) or {}
                inside.pop(name, None)
            *above, name = path.split(".")
            inside = config
            for key in above:
                inside[key] = inside.get(key) or {}
                inside = inside[key]
            inside[name] = other_value(words, kind)
            (changed / "config.json").write_text(json.dumps(config))
            text = run(build / "apps" / "gpt_export", changed, folder.parent / "refused", status=2)
            if f'"{name}"' not in text and f'"{path}"' not in text:
                raise Failure(f"{path} = {inside[name]} is refused by another name: {text}")
            count += 1
    return count


def check_texts(build, folder, windows):
    """Greedy texts of prompts of 10 tokens, which become long ones, and of whole windows, which are; of bytes. (Transformers'
    cache of longrope beside Phi-3 keeps keys of the short text in a long one, which no forward pass over it has; of dynamic
    scaling it has each token's by the length of its text then, and so have Weft's.)"""
    path = folder.parent
    prompts = [row[:n].tolist() for row in windows for n in (10, TOKENS)]
    (path / "prompts.jsonl").write_text("".join(json.dumps({"ids": p}) + "\n" for p in prompts))
    for layout in ([], ["--tp", 2, "--batch-size", 3]):
        lines = run(build / "apps" / "gpt_generate", folder, "--tokenizer", "bytes", "--prompts", path / "prompts.jsonl",
                    "--json", "--ignore-eos", "--max-new-tokens", 12, *layout).splitlines()
        for prompt, line in zip(prompts, [line for line in lines if line.startswith("{")], strict=True):
            model = load(folder)  # frequencies of dynamic scaling stay from one text to the next
            theirs = model.generate(torch.tensor([prompt]), max_new_tokens=12, min_new_tokens=12, do_sample=False,
                                    use_cache=model.config.model_type == "phi3" or "dynamic" in folder.parts[-2],
                                    eos_token_id=None, suppress_tokens=[*range(256, 300)])[0][len(prompt):].tolist()
            if json.loads(line)["ids"] != theirs:
                raise Failure(f"after {len(prompt)} tokens comes {json.loads(line)['ids']}, not {theirs}")
    return len(prompts)


def check(build, family, path):
    folder = path / family / "model"
    folder.parent.mkdir(parents=True, exist_ok=True)
    windows = make(family, folder)
    reported = [f"logits {check_logits(build, folder):.1e}"]
    check_export(build, folder, windows)
    reported.append(f"gradients {check_gradients(build, folder, windows):.1e}")
    reported.append(f"{check_layouts(build, folder)} layouts alike")
    if "/" not in family:
        reported.append(f"{check_refusals(build, family, folder)} keys refused")
    if re.search("long_factor|dynamic", json.dumps(FAMILIES[family])):
        reported.append(f"{check_texts(build, folder, windows)} texts")
    print(f"{family:14} {'; '.join(reported)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("family", nargs="*", default=[])
    options = parser.parse_args()
    known = re.findall(r"^FAMILY\((\w+)", KNOWN.read_text(), re.M)
    wrong = [f for f in options.family if f not in FAMILIES] + [f for f in known if f not in FAMILIES]
    if wrong or not (options.weft / "tests" / "test_pretrained").exists():
        print(f"families.py: {wrong or options.weft}: no such family here, or no build",
              file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for family in options.family or FAMILIES:
            try:
                check(options.weft.resolve(), family, options.keep or pathlib.Path(temporary))
            except Failure as why:
                failed += 1
                print(f"{family:14} FAILED: {why}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
