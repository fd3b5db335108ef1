#!/usr/bin/env python3
"""
bf16_accuracy.py [--weft BUILD] [--data TEXT] [--steps N] [gradients|curves] - what --dtype bf16 costs in accuracy.

  gradients  of small GPT-2 and Llama models of random weights, by Weft (--dtype bf16, and with --compute fp32) and by
             PyTorch under autocast to bf16: how far each is from PyTorch's in fp32, in norm. Autocast leaves the
             residual stream in fp32: with --fp32-residual-connection Weft's may not be farther than PyTorch's own
  curves     500 steps on a text, fp32 and bf16: the mean loss of the last 50 steps within 1 %

gradients needs torch and transformers, in the Python that runs it; both need a build of Weft. Status 1: something
is wrong, 2: something is missing.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH, TOKENS, SEED, RATE = 4, 96, 20261124, 1000.0
SIZES = {"vocab_size": 512, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
         "num_attention_heads": 6, "num_key_value_heads": 3, "max_position_embeddings": 128,
         "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
MODELS = {"gpt2": {"n_layer": 4, "n_head": 6, "n_embd": 192, "vocab_size": 512, "n_positions": 128,
                   "bos_token_id": 0, "eos_token_id": 0, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
          "llama": {**SIZES, "tie_word_embeddings": False}}
CURVES = {"gpt2": ["--arch", "gpt2"], "llama": ["--arch", "llama", "--n-kv-head", 2]}
WEFT = {"Weft bf16": ["--dtype", "bf16"],
        "Weft bf16, residual fp32": ["--dtype", "bf16", "--fp32-residual-connection"],
        "Weft bf16, products fp32": ["--dtype", "bf16", "--compute", "fp32"]}


class Failure(Exception):
    pass


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def weft_gradients(build, folder, before, flags):
    """Gradients, read off one step of SGD: an update is far larger than a weight's rounding."""
    from safetensors.torch import load_file

    work = folder.parent
    save, after = work / "stepped", work / "after"
    run("rm", "-rf", save, after)
    run(build / "apps" / "gpt_train", "--init-from", folder, "--data", work / "ids.bin", "--val-fraction", 0,
        "--eval-interval", 0, "--seq-len", TOKENS, "--global-batch-size", BATCH, "--threads-per-rank", 1,
        "--warmup-steps", 0, "--steps", 1, "--optimizer", "sgd", "--beta1", 0, "--lr", RATE, "--min-lr", RATE,
        "--weight-decay", 0, "--clip-grad", 0, "--save", save, *flags)
    run(build / "apps" / "gpt_export", save, after)
    stepped = load_file(after / "model.safetensors")
    return {name: (before[name].double() - stepped[name].double()) / RATE for name in before}


def torch_gradients(model, windows, autocast):
    import torch

    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(windows[:, :-1]).logits
    torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten()).backward()
    return {name: p.grad.double().clone() for name, p in model.named_parameters()}


def distances(gradients, right):
    """Over all parameters together, and the median parameter's: in norms of the right ones."""
    each = {n: ((gradients[n] - right[n]).norm() / right[n].norm()).item() for n in right}
    apart = sum(((gradients[n] - right[n]).norm() ** 2).item() for n in right) ** 0.5
    norm = sum((right[n].norm() ** 2).item() for n in right) ** 0.5
    return apart / norm, sorted(each.values())[len(each) // 2]


def check_gradients(build, family, work):
    import torch
    import transformers
    from safetensors.torch import load_file

    folder = work / family / "model"
    folder.parent.mkdir()
    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    config = transformers.AutoConfig.for_model(family, **MODELS[family])
    transformers.AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    stream = torch.randint(512, (BATCH * TOKENS + 1,), generator=generator)
    windows = torch.stack([stream[i * TOKENS:(i + 1) * TOKENS + 1] for i in range(BATCH)])
    (folder.parent / "ids.bin").write_bytes(stream.numpy().astype("uint16").tobytes())
    before = load_file(folder / "model.safetensors")
    right = torch_gradients(model, windows, False)
    rows = {"PyTorch autocast": distances(torch_gradients(model, windows, True), right)}
    for name, flags in WEFT.items():
        rows[name] = distances(weft_gradients(build, folder, before, flags), right)
    for name, (all_of_them, median) in rows.items():
        print(f"{family:6} {name:26} {all_of_them:.2e} of all gradients, {median:.2e} the median parameter's",
              flush=True)
    return rows["Weft bf16, residual fp32"][0] <= rows["PyTorch autocast"][0]


def check_curve(build, arch, work, data, steps):
    last = {}
    for dtype in "fp32", "bf16":
        log = work / f"{arch}_{dtype}.jsonl"
        run(build / "apps" / "gpt_train", *CURVES[arch], "--data", data, "--steps", steps, "--n-layer", 4, "--n-head",
            4, "--n-embd", 128, "--seq-len", 64, "--global-batch-size", 8, "--lr", 1e-3, "--eval-interval", 0,
            "--dtype", dtype, "--log-jsonl", log)
        losses = [json.loads(line)["loss"] for line in log.read_text().splitlines() if '"loss"' in line]
        last[dtype] = sum(losses[-50:]) / len(losses[-50:])
    apart = last["bf16"] / last["fp32"] - 1
    print(f"{arch:6} {steps} steps: loss {last['fp32']:.4f} in fp32, {last['bf16']:.4f} in bf16: {100 * apart:+.2f} %",
          flush=True)
    return abs(apart) <= 0.01


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build" / "corpus.txt")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("what", nargs="*", default=["gradients", "curves"])
    options = parser.parse_args()
    build, good = options.weft.resolve(), True
    sys.path.pop(0)  # this folder has a tokenizers.py, and transformers mean the package of that name
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        if "gradients" in options.what:
            try:
                import torch
                import transformers
            except ImportError as missing:
                print(f"bf16_accuracy.py: {missing}: pip install torch transformers safetensors", file=sys.stderr)
                return 2
            torch.set_num_threads(1)
            transformers.utils.logging.set_verbosity_error()
            good &= all([check_gradients(build, family, work) for family in MODELS])
        if "curves" in options.what:
            good &= all([check_curve(build, arch, work, options.data, options.steps) for arch in CURVES])
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as why:
        print(f"bf16_accuracy.py: {why}", file=sys.stderr)
        sys.exit(1)
