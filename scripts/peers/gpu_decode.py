#!/usr/bin/env python3
"""
gpu_decode.py [BUILD] - tokens/s of generation on this GPU, for gpu_check.py: models of random weights, greedily, in fp32 and bf16, for one text and
for 32 at once, as gpt_generate has them, also with linears in 4 bits (nf4), and beside it, each in a column that says what is missing where it is not
found: transformers' generate (eager), llama.cpp (llama-batched-bench, or for one text llama-bench, built with CUDA: in the folder $LLAMA_CPP, in its bin
or build/bin, or on PATH) and vLLM. What 160 tokens take more than 32 do is divided by 128, so starting and loading do not count; llama.cpp times its
tokens itself. One line of JSON for each.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

sys.path.pop(0)  # transformers would take the tokenizers.py beside this for its package
MODELS = {"smollm2-135m": (30, 9, 3, 576, 1536, 49152), "llama-3.2-1b": (16, 32, 8, 2048, 8192, 128256)}
SHORT, LONG, PROMPT, TEXTS = 32, 160, list(range(1, 17)), (1, 32)


class NotFound(Exception):
    """A peer that is not here; its text says what is missing."""


def seconds(generate):
    """Of a pass of the model; generate(n) makes n tokens of each text."""
    best = {}
    for _ in range(2):
        for tokens in (SHORT, LONG):
            start = time.perf_counter()
            generate(tokens)
            best[tokens] = min(best.get(tokens, 1e9), time.perf_counter() - start)
    return (best[LONG] - best[SHORT]) / (LONG - SHORT)


def weft(build, model, texts, dtype, *more):
    prompts = model.parent / "prompts"
    prompts.write_text((json.dumps({"ids": PROMPT}) + "\n") * texts)
    return texts / seconds(lambda tokens: subprocess.run(
        [build / "apps/gpt_generate", model, "--tokenizer", "bytes", "--prompts", prompts, "--ignore-eos", "--json", "--dtype", dtype,
         "--device", "cuda", "--batch-size", str(texts), "--max-new-tokens", str(tokens), *more], check=True, stdout=subprocess.DEVNULL))


def export(build, *words):
    subprocess.run([build / "apps/gpt_export", *words], check=True, capture_output=True)


def exported(build, model, dtype):
    """The model's folder, whose numbers are of a type."""
    folder = model.parent / f"{model.name}-{dtype}"
    if not folder.exists():
        export(build, model, folder, "--dtype", {"fp32": "f32"}.get(dtype, dtype))
    return folder


class Transformers:
    name = "transformers"

    def __init__(self, build, model, shape):
        self.shape = shape

    def rate(self, texts, dtype):
        try:
            import torch
            import transformers
        except ImportError as missing:
            raise NotFound(str(missing)) from None
        layers, heads, kv_heads, width, hidden, vocabulary = self.shape
        config = transformers.LlamaConfig(num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=width,
                                          intermediate_size=hidden, vocab_size=vocabulary, tie_word_embeddings=True)
        torch.manual_seed(1)
        with torch.device("cuda"):
            torch.set_default_dtype(torch.bfloat16 if dtype == "bf16" else torch.float32)
            model = transformers.LlamaForCausalLM(config).eval()
            torch.set_default_dtype(torch.float32)
            ids = torch.tensor([PROMPT] * texts)

        def generate(tokens):
            with torch.no_grad():
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                               pad_token_id=0)
            torch.cuda.synchronize()
        torch.cuda.synchronize()
        return texts / seconds(generate)


class LlamaCpp:
    """Of a GGUF file that gpt_export writes, all of it on the GPU."""
    name = "llama.cpp"

    def __init__(self, build, model, shape):
        self.build, self.model = build, model

    def program(self, name):
        root = os.environ.get("LLAMA_CPP")
        folders = [str(pathlib.Path(root, part)) for part in ("", "bin", "build/bin")] if root else []
        return shutil.which(name, path=os.pathsep.join(filter(None, [*folders, os.environ.get("PATH")])))

    def file(self, dtype):
        file = self.model.parent / f"{self.model.name}-{dtype}.gguf"
        if not file.exists():
            export(self.build, exported(self.build, self.model, dtype), "--gguf", file, "--tokenizer", "none")
        return file

    def rate(self, texts, dtype):
        batched, one = self.program("llama-batched-bench"), self.program("llama-bench")
        if not batched and not (one and texts == 1):
            raise NotFound("llama-batched-bench" + (" or llama-bench" if texts == 1 else "") + ", whose folder LLAMA_CPP names")
        tokens, context = LONG - SHORT, texts * (len(PROMPT) + LONG)
        words = [batched, "-m", self.file(dtype), "-ngl", 999, "-c", context, "-npp", len(PROMPT), "-ntg", tokens, "-npl", texts,
                 "--output-format", "jsonl"] if batched else [one, "-m", self.file(dtype), "-ngl", 999, "-p", 0, "-n", tokens, "-o", "jsonl"]
        done = subprocess.run([str(word) for word in words], text=True, capture_output=True, check=True)
        rates = [float(found) for found in re.findall(r'"(?:speed_tg|avg_ts)": *([0-9.]+)', done.stdout + done.stderr)]
        if not rates:
            raise RuntimeError(f"{pathlib.Path(words[0]).name} names no tokens a second")
        return max(rates)


class Vllm:
    """In a process of its own, which gives the GPU's memory back."""
    name = "vLLM"

    def __init__(self, build, model, shape):
        layers, heads, kv_heads, width, hidden, vocabulary = shape
        self.folder = model.parent / f"{model.name}-vllm"
        self.folder.mkdir()
        (self.folder / "config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "hidden_size": width, "intermediate_size": hidden, "vocab_size": vocabulary,
            "tie_word_embeddings": True, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
            "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}))

    def rate(self, texts, dtype):
        done = subprocess.run([sys.executable, __file__, "--vllm", self.folder, dtype, str(texts)], text=True, capture_output=True)
        if done.returncode == 77:
            raise NotFound(done.stderr.strip().splitlines()[-1])
        done.check_returncode()
        return json.loads(done.stdout.splitlines()[-1])


def vllm_rate(folder, dtype, texts):
    """Prints tokens/s of weights that vLLM draws itself."""
    try:
        import vllm
    except ImportError as missing:
        print(missing, file=sys.stderr)
        return 77
    model = vllm.LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16" if dtype == "bf16" else "float32",
                     max_model_len=len(PROMPT) + LONG, max_num_seqs=texts, enable_prefix_caching=False)
    prompts = [{"prompt_token_ids": PROMPT}] * texts

    def generate(tokens):
        model.generate(prompts, vllm.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False), use_tqdm=False)
    print(json.dumps(texts / seconds(generate)))
    return 0


def asked(peer, texts, dtype):
    """A peer's tokens/s, or a text: not found, or how it failed."""
    try:
        return peer.rate(texts, dtype)
    except NotFound as missing:
        return f"not found: {missing}"
    except Exception as fault:  # of a peer's: the other columns are filled all the same
        said = (getattr(fault, "stderr", None) or str(fault)).strip()
        return f"failed: {said.splitlines()[-1][:120] if said else type(fault).__name__}"


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
            peers = [peer(build, model, shape) for peer in (Transformers, LlamaCpp, Vllm)]
            for dtype in ("fp32", "bf16"):
                for texts in TEXTS:
                    print(json.dumps({"model": name, "dtype": dtype, "texts": texts, "tokens_per_s": weft(build, model, texts, dtype),
                                      "nf4_tokens_per_s": weft(build, exported(build, model, dtype), texts, dtype, "--base-dtype", "nf4"),
                                      "peers": {peer.name: asked(peer, texts, dtype) for peer in peers}}), flush=True)


if __name__ == "__main__":
    sys.exit(vllm_rate(sys.argv[2], sys.argv[3], int(sys.argv[4])) if sys.argv[1:2] == ["--vllm"] else main())
