#!/usr/bin/env python3
"""
gpu_decode.py [BUILD] - tokens/s of generation on this GPU, for gpu_check.py: models of random weights, greedily, as
gpt_generate and as transformers' generate (eager) has them, in fp32 and bf16, for one text and for 32 at once. What 160
tokens take more than 32 do is divided by 128, so starting and loading do not count. One line of JSON for each.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

sys.path.pop(0)  # transformers would take the tokenizers.py beside this for its package
MODELS = {"smollm2-135m": (30, 9, 3, 576, 1536, 49152), "llama-3.2-1b": (16, 32, 8, 2048, 8192, 128256)}
SHORT, LONG, PROMPT = 32, 160, list(range(1, 17))


def weft(build, model, texts, dtype):
    """Seconds of a pass of the model."""
    prompts = model.parent / "prompts"
    prompts.write_text((json.dumps({"ids": PROMPT}) + "\n") * texts)
    best = {}
    for _ in range(2):
        for tokens in (SHORT, LONG):
            start = time.perf_counter()
            subprocess.run([build / "apps/gpt_generate", model, "--tokenizer", "bytes", "--prompts", prompts, "--ignore-eos", "--json",
                            "--dtype", dtype, "--device", "cuda", "--batch-size", str(texts), "--max-new-tokens", str(tokens)],
                           check=True, stdout=subprocess.DEVNULL)
            best[tokens] = min(best.get(tokens, 1e9), time.perf_counter() - start)
    return (best[LONG] - best[SHORT]) / (LONG - SHORT)


def peer(shape, texts, dtype):
    """The same of transformers; None where it is not here."""
    try:
        import torch
        import transformers
    except ImportError:
        return None
    layers, heads, kv_heads, width, hidden, vocabulary = shape
    config = transformers.LlamaConfig(num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=width,
                                      intermediate_size=hidden, vocab_size=vocabulary, tie_word_embeddings=True)
    torch.manual_seed(1)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16 if dtype == "bf16" else torch.float32)
        model = transformers.LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
        ids = torch.tensor([PROMPT] * texts)
    best = {}
    for _ in range(2):
        for tokens in (SHORT, LONG):
            torch.cuda.synchronize()
            start = time.perf_counter()
            with torch.no_grad():
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                               pad_token_id=0)
            torch.cuda.synchronize()
            best[tokens] = min(best.get(tokens, 1e9), time.perf_counter() - start)
    return (best[LONG] - best[SHORT]) / (LONG - SHORT)


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    os.environ.setdefault("WEFT_PLUGINS", str(build))
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_text("On it goes.\n" * 4000)
        for name, shape in MODELS.items():
            model = pathlib.Path(folder) / name
            subprocess.run([build / "apps/gpt_train", "--data", text, "--model", name, "--vocab-size", str(shape[5]), "--seq-len", "256",
                            "--global-batch-size", "1", "--steps", "1", "--eval-interval", "0", "--optimizer", "sgd", "--dtype", "bf16",
                            "--device", "cuda", "--save", model], check=True, capture_output=True)
            for dtype in ("fp32", "bf16"):
                for texts in (1, 32):
                    ours, theirs = weft(build, model, texts, dtype), peer(shape, texts, dtype)
                    print(json.dumps({"model": name, "dtype": dtype, "texts": texts, "tokens_per_s": texts / ours,
                                      "peer_tokens_per_s": theirs and texts / theirs}), flush=True)


if __name__ == "__main__":
    main()
