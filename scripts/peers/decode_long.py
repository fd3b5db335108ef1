#!/usr/bin/env python3
"""
decode_long.py [--weft BUILD] [--tokens N] [--new N] [--threads N] - decoding after a long prompt, beside llama.cpp.

A Llama of 4 layers, width 512, 8 heads and 2 of keys, which has learnt some text for a few steps so that its bytes are letters, reads a prompt of 32,768
tokens and goes on for 128, in f32 with a cache of f32: gpt_generate, and llama.cpp through llama-cpp-python (pip install llama-cpp-python) of the same
weights as a GGUF file, with flash attention and without, each in this one run. Tokens a second are those after the first one, so that loading and
the prompt do not count. Printed are the rates, in how many tokens both agree, and Weft's rate over llama.cpp's better one: at least 1 is wanted.
Status 1 where it is less, 2 where llama_cpp is not there.
"""
import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.pop(0)  # scripts beside this one have the names of packages
WORDS = "the river went on to the sea and a boat came with the evening wind from the town to the old mill on the hill ".encode()


def make(build, work, longest, threads):
    """The checkpoint, its folder and its file."""
    (work / "text").write_bytes(WORDS * 200)
    common = ["--threads-per-rank", str(threads)]
    subprocess.run([build / "apps/gpt_train", "--data", work / "text", "--arch", "llama", "--n-embd", "512", "--n-head", "8", "--n-kv-head", "2",
                    "--n-layer", "4", "--ffn", "1024", "--positions", str(longest), "--seq-len", "64", "--global-batch-size", "2", "--steps", "12",
                    "--lr", "1e-3", "--warmup-steps", "0", "--eval-interval", "0", "--save", work / "run", *common], check=True, capture_output=True)
    subprocess.run([build / "apps/gpt_export", work / "run", "--gguf", work / "model.gguf", "--gguf-type", "f32", "--tokenizer", "none"],
                   check=True, capture_output=True)


def ours(build, work, prompt, new, threads):
    """The tokens that come, and how many a second after the first one."""
    (work / "prompt.jsonl").write_text(json.dumps({"ids": prompt}) + "\n")
    child = subprocess.Popen([build / "apps/gpt_generate", work / "run", "--tokenizer", "bytes", "--prompts", work / "prompt.jsonl", "--ignore-eos",
                              "--max-new-tokens", str(new), "--threads-per-rank", str(threads), "--dtype", "fp32"], stdout=subprocess.PIPE, bufsize=0)
    said, times = b"", []
    while chunk := os.read(child.stdout.fileno(), 1 << 20):
        said += chunk
        times.append((time.monotonic(), len(said)))
    if child.wait():
        sys.exit("decode_long.py: gpt_generate failed")
    text = said.rstrip(b"\n")
    shown = [(t, n) for t, n in times if n <= len(text)]
    # a prompt of the file is printed in front of the text, with the first token
    (start, before), (end, after) = shown[0], shown[-1]
    return list(text[-new:]), (after - before) / (end - start)


class LlamaCpp:
    def __init__(self, path, longest, threads, flash):
        import llama_cpp as c
        self.c, self.quiet = c, c.llama_log_callback(lambda level, text, data: None)
        c.llama_log_set(self.quiet, ctypes.c_void_p(0))
        c.llama_backend_init()
        model, context = c.llama_model_default_params(), c.llama_context_default_params()
        none = (c.llama_model_kv_override * 2)()
        none[0].tag, none[0].key = 3, b"tokenizer.ggml.model"  # a text
        none[0].value.val_str = b"no_vocab"
        model.kv_overrides = none
        self.model = c.llama_model_load_from_file(str(path).encode(), model)
        context.n_ctx, context.n_batch, context.n_ubatch = longest, 512, 512
        context.n_threads = context.n_threads_batch = threads
        context.type_k = context.type_v = 0  # f32
        context.flash_attn_type = c.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else c.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = c.llama_init_from_model(self.model, context)

    def take(self, ids):
        for at in range(0, len(ids), 512):
            part = (ctypes.c_int32 * len(ids[at:at + 512]))(*ids[at:at + 512])
            if self.c.llama_decode(self.context, self.c.llama_batch_get_one(part, len(part))):
                sys.exit("decode_long.py: llama_decode failed")
        logits = self.c.llama_get_logits_ith(self.context, -1)
        return max(range(256), key=lambda i: logits[i])

    def run(self, prompt, new):
        ids = [self.take(prompt)]
        start = time.monotonic()
        while len(ids) < new:
            ids.append(self.take(ids[-1:]))
        return ids, (new - 1) / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    o = parser.parse_args()
    try:
        import llama_cpp  # noqa: F401
    except ImportError as missing:
        print(f"decode_long.py: {missing}: pip install llama-cpp-python", file=sys.stderr)
        return 2
    prompt, longest = list((WORDS * (o.tokens // len(WORDS) + 1))[:o.tokens]), -(-(o.tokens + o.new) // 256) * 256
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        make(o.weft.resolve(), work, longest, o.threads)
        ids, rate = ours(o.weft.resolve(), work, prompt, o.new, o.threads)
        print(f"weft                    {rate:8.2f} tokens a second after {o.tokens} tokens, {o.threads} threads", flush=True)
        best = 0
        for flash in (True, False):
            theirs, speed = LlamaCpp(work / "model.gguf", longest, o.threads, flash).run(prompt, o.new)
            best = max(best, speed)
            print(f"llama.cpp{', flash' if flash else '       '}        {speed:8.2f}; {sum(a == b for a, b in zip(ids, theirs))} of {o.new} tokens are the same",
                  flush=True)
    print(f"ratio {rate / best:.2f}", flush=True)
    return 1 if rate < best else 0


if __name__ == "__main__":
    sys.exit(main())
