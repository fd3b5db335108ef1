#!/usr/bin/env python3
"""
lora_peft.py BUILD [CASE] - are Weft's adapters PEFT's? A small random Llama is adapted by both, on the same ids.

  trained   as many parameters are trained as PEFT's print_trainable_parameters says
  losses    50 steps of AdamW from adapters that PEFT has written: every loss within 1e-5, relatively, on two layouts
  files     PEFT loads the adapters that Weft has trained: logits within 1e-4 of the largest of the merged model's
  merge     gpt_export --merge computes what PEFT's merge_and_unload does, within 1e-5 of the largest logit
  rslora, modules_to_save: as above, with a norm, the embedding and the head trained whole
  tied      as above, on a base whose head is its embedding: trained separately, as PEFT has it, or as one (ensure_weight_tying)
  experts   as above, of mixtures: their experts adapted ("target_parameters"), with attention and with the router trained whole

BUILD is a folder of Weft. It needs torch, transformers and peft. Status 1: something is wrong, 2: something is missing.
"""
import pathlib
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

import adapted_llama as llama
from adapted_llama import LAYOUTS, STEPS, TARGETS, run, report, report_losses

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
ONLY = sys.argv[2] if len(sys.argv) > 2 else ""
llama.needs()
import peft  # noqa: E402 - needs() says what is missing
import torch  # noqa: E402
import transformers  # noqa: E402

CASES = {
    "q,v": dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]),
    "all": dict(r=4, lora_alpha=4, target_modules=TARGETS),
    "rslora": dict(r=6, lora_alpha=10, use_rslora=True, target_modules=["k_proj", "o_proj", "up_proj"]),
    "whole": dict(r=8, lora_alpha=8, target_modules=["q_proj", "down_proj"],
                  modules_to_save=["embed_tokens", "post_attention_layernorm", "lm_head"]),
}
TIED = {
    "tied": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    "tied embedding": dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["embed_tokens"]),
    "tied head": dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["lm_head"]),
    "tied both": dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]),
    "tied as one": dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["embed_tokens"],
                        ensure_weight_tying=True),
}

BOTH = ["experts.gate_up_proj", "experts.down_proj"]
MIXTURES = {
    "mixtral": dict(r=4, lora_alpha=8, target_modules=[], target_parameters=BOTH),
    "qwen3_moe": dict(r=3, lora_alpha=2, use_rslora=True, target_modules=["q_proj", "v_proj"], target_parameters=BOTH),
    "qwen2_moe": dict(r=4, lora_alpha=4, target_modules=["o_proj"], target_parameters=BOTH),
    "olmoe": dict(r=2, lora_alpha=8, target_modules=["k_proj"], target_parameters=BOTH),
    "granitemoe": dict(r=4, lora_alpha=8, target_modules=["q_proj"], target_parameters=BOTH),
    "llama4_text": dict(r=3, lora_alpha=6, target_modules=["q_proj"], target_parameters=BOTH),
    "mixtral router": dict(r=4, lora_alpha=8, target_modules=[], target_parameters=BOTH, modules_to_save=["gate"]),
}
ALL = CASES | TIED | MIXTURES
SIZES_OF = {  # of mixtures, beside those of every model; in 50 steps no token has scores so near that rounding chooses its experts
    "mixtral": dict(num_local_experts=8, num_experts_per_tok=2, intermediate_size=48),
    "qwen3_moe": dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=48, head_dim=8, norm_topk_prob=True),
    "qwen2_moe": dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=32),
    "olmoe": dict(num_experts=6, num_experts_per_tok=2, intermediate_size=48),
    "granitemoe": dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=48),
    "llama4_text": dict(num_local_experts=4, intermediate_size=24, intermediate_size_mlp=48, interleave_moe_layer_step=1, head_dim=8,
                        attention_chunk_size=16),
}


def loaded(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager")


def adapted(folder, case, seed):
    """PEFT's model, whose adapters do not begin as nothing."""
    model = peft.get_peft_model(loaded(folder), peft.LoraConfig(task_type="CAUSAL_LM", **ALL[case]))
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.05)
    return model


def trained_count(work, base, case):
    config = ALL[case]
    apart = case in TIED and "modules_to_save" in config and "ensure_weight_tying" not in config
    targets = config["target_modules"] + ["experts"] * ("target_parameters" in config)
    out = run("gpt_train", "--init-from", base, "--steps", 0, "--lora-rank", config["r"], "--lora-targets",
              ",".join(targets), *(["--modules-to-save", ",".join(config["modules_to_save"])]
                                                    if "modules_to_save" in config else []),
              *(["--tie-embeddings", "off"] if apart else []))
    line = next(line for line in out.splitlines() if line.startswith("adapters:"))
    return int(line.split(";")[1].split()[0])


def compare(work, case):
    base = work / "base"
    work = work / case.replace(" ", "_")
    work.mkdir()
    for file in ("base", "data.bin"):
        (work / file).symlink_to(base.parent / file)
    model = adapted(base, case, 5)
    model.save_pretrained(work / f"{case}.peft")
    count = model.get_nb_trainable_parameters()[0]
    ours = trained_count(work, base, case)
    report(f"{case} trained", ours == count, f"{ours} parameters, PEFT {count}")

    losses = llama.torch_losses(model, WINDOWS)
    for i, layout in enumerate(LAYOUTS):
        report_losses(f"{case} losses", llama.weft_losses(work, "base", f"{case}.peft", f"{case}.run{i}", *layout), losses, 1e-5, layout)

    run("gpt_export", work / f"{case}.run0", work / f"{case}.out")
    run("gpt_export", work / f"{case}.run0", work / f"{case}.merged", "--merge")
    ids = WINDOWS[:2, :-1]
    with torch.no_grad():
        back = peft.PeftModel.from_pretrained(loaded(base), work / f"{case}.out")
        there = back(input_ids=ids).logits
        merged = loaded(work / f"{case}.merged")(input_ids=ids).logits
        theirs = model(input_ids=ids).logits
        unloaded = back.merge_and_unload()(input_ids=ids).logits
    most = there.abs().max().item()
    off = (there - merged).abs().max().item() / most
    report(f"{case} files", off <= 1e-4, f"PEFT's logits of our adapters and those of the merged model: {off:.1e} apart")
    off = (unloaded - merged).abs().max().item() / most
    report(f"{case} merge", off <= 1e-5, f"PEFT's merge and ours: {off:.1e} apart")
    off = (there - theirs).abs().max().item() / most
    report(f"{case} end", off <= 1e-2, f"after {STEPS} steps PEFT's logits of both models: {off:.1e} apart")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    MODELS = [("own", "llama", {}, CASES), ("tied", "llama", {"tie_word_embeddings": True}, TIED)]
    MODELS += [(case, case.split()[0], SIZES_OF[case.split()[0]], [case]) for case in MIXTURES]
    for below, family, sizes, cases in MODELS:
        chosen = [each for each in cases if ONLY in each]
        if chosen:
            (folder / below).mkdir()
            WINDOWS = llama.begin(folder / below, family, **sizes)
        for each in chosen:
            compare(folder / below, each)
sys.exit(llama.wrong)
