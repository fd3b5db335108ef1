#!/usr/bin/env python3
"""
lora_peft.py BUILD - are Weft's adapters PEFT's? A small random Llama is adapted by both, on the same ids.

  trained   as many parameters are trained as PEFT's print_trainable_parameters says
  losses    50 steps of AdamW from adapters that PEFT has written: every loss within 1e-5, relatively, on two layouts
  files     PEFT loads the adapters that Weft has trained: logits within 1e-4 of the largest of the merged model's
  merge     gpt_export --merge computes what PEFT's merge_and_unload does, within 1e-5 of the largest logit
  rslora, modules_to_save: as above, with a norm, the embedding and the head trained whole

BUILD is a folder of Weft. It needs torch, transformers and peft. Status 1: something is wrong, 2: something is missing.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.pop(0)  # scripts beside this one have the names of packages
if len(sys.argv) != 2:
    sys.exit(__doc__)
try:
    import numpy
    import peft
    import torch
    import transformers
except ImportError as missing:
    print(f"lora_peft.py: {missing}: pip install torch transformers peft", file=sys.stderr)
    sys.exit(2)

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
APPS = pathlib.Path(sys.argv[1]).resolve() / "apps"
VOCABULARY, LENGTH, BATCH, STEPS, LR, DECAY = 300, 32, 8, 50, 3e-3, 0.01
SIZES = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, initializer_range=0.1)
CASES = {
    "q,v": dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]),
    "all": dict(r=4, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "rslora": dict(r=6, lora_alpha=10, use_rslora=True, target_modules=["k_proj", "o_proj", "up_proj"]),
    "whole": dict(r=8, lora_alpha=8, target_modules=["q_proj", "down_proj"],
                  modules_to_save=["embed_tokens", "post_attention_layernorm", "lm_head"]),
}
LAYOUTS = [[], ["--tp", "4", "--dp", "2", "--sequence-parallel", "--micro-batch-size", "2"]]
failed = False


def run(program, *arguments):
    done = subprocess.run([str(APPS / program), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"lora_peft.py: {program}: {done.stderr.strip()}")
    return done.stdout


def tell(case, what, good, figures):
    global failed
    failed |= not good
    print(f"{case:8} {what:8} {'ok  ' if good else 'WRONG'} {figures}", flush=True)


def write_data(path, ids):
    head = numpy.zeros(256, numpy.int32)
    head[:3] = 20240520, 1, len(ids)
    path.write_bytes(head.tobytes() + ids.astype(numpy.uint16).tobytes())


def adapted(folder, case, seed):
    """PEFT's model, whose adapters do not begin as nothing."""
    model = peft.get_peft_model(transformers.LlamaForCausalLM.from_pretrained(folder),
                                peft.LoraConfig(task_type="CAUSAL_LM", **CASES[case]))
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.05)
    return model


def torch_losses(model, windows):
    x, y = windows[:, :-1], windows[:, 1:]
    optimizer = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.requires_grad and p.ndim > 1], "weight_decay": DECAY},
                                   {"params": [p for p in model.parameters() if p.requires_grad and p.ndim == 1], "weight_decay": 0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        logits = model(input_ids=x).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY).double(), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def weft_losses(work, base, case, layout, save):
    log = work / f"{case}.jsonl"
    run("gpt_train", "--init-from", base, "--lora-init", work / f"{case}.peft", "--data", work / "data.bin", "--val-fraction", 0,
        "--seq-len", LENGTH, "--global-batch-size", BATCH, "--steps", STEPS, "--lr", LR, "--min-lr", LR, "--warmup-steps", 0,
        "--weight-decay", DECAY, "--clip-grad", 0, "--eval-interval", 0, "--log-jsonl", log, "--save", save, *layout)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return [row["loss"] for row in rows if "step" in row and "loss" in row]


def trained_count(work, base, case):
    config = CASES[case]
    out = run("gpt_train", "--init-from", base, "--steps", 0, "--lora-rank", config["r"], "--lora-targets",
              ",".join(config["target_modules"]), *(["--modules-to-save", ",".join(config["modules_to_save"])]
                                                    if "modules_to_save" in config else []))
    line = next(line for line in out.splitlines() if line.startswith("adapters:"))
    return int(line.split(";")[1].split()[0])


def compare(work, case):
    base = work / "base"
    model = adapted(base, case, 5)
    model.save_pretrained(work / f"{case}.peft")
    count = model.get_nb_trainable_parameters()[0]
    ours = trained_count(work, base, case)
    tell(case, "trained", ours == count, f"{ours} parameters, PEFT {count}")

    losses = torch_losses(model, WINDOWS)
    for i, layout in enumerate(LAYOUTS):
        save = work / f"{case}.run{i}"
        mine = weft_losses(work, base, case, layout, save)
        worst = max(abs(a - b) / abs(b) for a, b in zip(mine, losses))
        tell(case, "losses", len(mine) == STEPS and worst <= 1e-5,
             f"{len(mine)} steps {' '.join(layout) or 'on one rank'}: {mine[0]:.6f} to {mine[-1]:.6f}, at most {worst:.1e} apart")

    run("gpt_export", work / f"{case}.run0", work / f"{case}.out")
    run("gpt_export", work / f"{case}.run0", work / f"{case}.merged", "--merge")
    ids = WINDOWS[:2, :-1]
    with torch.no_grad():
        back = peft.PeftModel.from_pretrained(transformers.LlamaForCausalLM.from_pretrained(base), work / f"{case}.out")
        there = back(input_ids=ids).logits
        merged = transformers.LlamaForCausalLM.from_pretrained(work / f"{case}.merged")(input_ids=ids).logits
        theirs = model(input_ids=ids).logits
        unloaded = back.merge_and_unload()(input_ids=ids).logits
    most = there.abs().max().item()
    off = (there - merged).abs().max().item() / most
    tell(case, "files", off <= 1e-4, f"PEFT's logits of our adapters and those of the merged model: {off:.1e} apart")
    off = (unloaded - merged).abs().max().item() / most
    tell(case, "merge", off <= 1e-5, f"PEFT's merge and ours: {off:.1e} apart")
    off = (there - theirs).abs().max().item() / most
    tell(case, "end", off <= 1e-2, f"after {STEPS} steps PEFT's logits of both models: {off:.1e} apart")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    torch.manual_seed(3)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).save_pretrained(folder / "base")
    IDS = numpy.random.default_rng(1).integers(0, VOCABULARY, BATCH * LENGTH + 1)
    write_data(folder / "data.bin", IDS)
    WINDOWS = torch.tensor(numpy.stack([IDS[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(BATCH)]))
    for each in CASES:
        compare(folder, each)
sys.exit(failed)
