#!/usr/bin/env python3
"""generation.py BUILD FOLDER [--prompts N] [--only PART] [--keep DIR] [--llama-bench PATH] - gpt_generate on a real model, by hand.

    layouts   N prompts (1000) on every way to run: tp, dp, batches, chunks, threads: one SHA of texts and
              log probabilities; prompts in random order, and each text as one prompt, which no cache helps: the
              same. With --keep DIR what is done stays there, and a run that was stopped resumes
    greedy    100 prompts against transformers: the same ids, up to where its two best are closer than 1e-3
    samplers  what is kept of 10,000 rows, and its probabilities, against transformers' processors: 1e-6
    logits    of N positions (1000 x 1000) of a small model, which is trained for it, and of 2,048 of FOLDER's, the
              trainer's and the generator's on six layouts, all equal by memcmp; --keep DIR as above
    perplexity  gpt_eval's nats a token beside transformers', in windows and with a stride
    speed     tokens a second of one text beside torch's, and, with --llama-bench PATH, that of llama.cpp, alternating
              and with a plain read of memory by as many threads

FOLDER is one of Hugging Face with a tokenizer, BUILD a build with tests. What needs torch and transformers
(greedy, samplers, perplexity, speed) is left out where they are not, and says so.
"""
import sys

sys.path.pop(0)  # its tokenizers.py is not the package of that name

import argparse
import hashlib
import json
import math
import pathlib
import random
import re
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STARTS = ["The capital of", "Once upon a time", "In the beginning", "Water boils at", "def main(", "Dear", "The three",
          "It was a dark", "To make bread you", "My favourite", "1, 2, 3,", "Q: What is", "Le chat est", "The law of"]
TOKENS = 4  # that are generated of a prompt
WORDS = "France light seven river music under theorem small because of her and x = 3; Berlin, when 42 the old".split()


def prompts_of(count):
    draw = random.Random(11)
    return [f"{draw.choice(STARTS)} {' '.join(draw.choices(WORDS, k=draw.randrange(0, 6)))}".strip()
            for _ in range(count)]


def generate(build, folder, prompts, *flags):
    """Lines of gpt_generate --json, and the seconds; a prompt is a text or a list of ids."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for prompt in prompts:
            file.write(json.dumps({"prompt" if isinstance(prompt, str) else "ids": prompt}) + "\n")
        file.flush()
        begin = time.monotonic()
        run = subprocess.run([build / "apps/gpt_generate", folder, "--prompts", file.name, "--json", *map(str, flags)],
                             stdout=subprocess.PIPE, check=True)
    return run.stdout, time.monotonic() - begin


WAYS = ["--tp 1 --batch-size 16", "--tp 2 --batch-size 16", "--tp 4 --batch-size 64", "--tp 8 --batch-size 32",
        "--dp 2 --batch-size 8", "--dp 2 --tp 2 --batch-size 3", "--batch-size 16 --prefill-chunk 1",
        "--batch-size 16 --prefill-chunk 7", "--batch-size 64 --prefill-chunk 64 --threads-per-rank 1", "--batch-size 1"]
DRAWN, LIKELIEST = "--temperature 0.9 --top-p 0.95 ", ""
SHARE = 125  # prompts of a run


class Shares:
    """Runs of SHARE prompts each, of which those that are done are kept."""

    def __init__(self, build, folder, prompts, keep):
        self.build, self.folder, self.keep = build, folder, keep
        self.shares = [prompts[i:i + SHARE] for i in range(0, len(prompts), SHARE)]

    def run(self, name, share, prompts, flags):
        """The lines that gpt_generate writes of these prompts."""
        kept = self.keep / (re.sub(r"[^\w.]+", "_", f"{name} {share}") + ".jsonl")
        if not kept.exists() or kept.read_bytes().count(b"\n") != len(prompts):
            out, _ = generate(self.build, self.folder, prompts, "--echo", "--logprobs", 1, *flags.split())
            part = kept.with_suffix(".part")
            part.write_bytes(out)
            part.rename(kept)
        return kept.read_bytes().splitlines(keepends=True)

    def way(self, sampling, way):
        return [self.run(sampling + way, i, prompts, f"--max-new-tokens {TOKENS} {sampling}{way}")
                for i, prompts in enumerate(self.shares)]

    def mixed(self, way):
        """The likeliest texts of prompts that come in random order, sorted back."""
        result = []
        for i, prompts in enumerate(self.shares):
            order = random.Random(i).sample(range(len(prompts)), len(prompts))
            lines = self.run("mixed " + way, i, [prompts[j] for j in order], f"--max-new-tokens {TOKENS} {way}")
            back = sorted(zip(order, lines))
            result.append([re.sub(rb'^{"prompt":\d+', b'{"prompt":%d' % j, line) for j, line in back])
        return result

    def at_once(self, texts, way):
        """Log probabilities of whole texts, computed as prompts in one chunk; and those that they had."""
        wrong = 0
        for i, lines in enumerate(texts):
            rows = [json.loads(line) for line in lines]
            again = self.run("at once " + way, i, [row["prompt_ids"] + row["ids"] for row in rows], f"--max-new-tokens 1 {way}")
            wrong += sum(json.loads(line)["prompt_logprobs"] != row["prompt_logprobs"] + row["logprobs"]
                         for line, row in zip(again, rows))
        return wrong


def layouts(build, folder, count, keep):
    with tempfile.TemporaryDirectory() as work:
        shares = Shares(build, folder, prompts_of(count), keep or pathlib.Path(work))
        shares.keep.mkdir(parents=True, exist_ok=True)
        first, same = shares.way(DRAWN, WAYS[0]), 0
        for way in WAYS:
            texts = shares.way(DRAWN, way)
            same += texts == first
            print(f"{way:55} {count:5} texts  {hashlib.sha256(b''.join(sum(texts, []))).hexdigest()[:16]}  "
                  f"{'same' if texts == first else 'OTHER'}", flush=True)
        order = shares.way(LIKELIEST, WAYS[0]) == shares.mixed("--tp 2 --batch-size 3")
        wrong = shares.at_once(first, "--tp 2 --batch-size 16")
    print(f"layouts: {same} of {len(WAYS)} layouts give one text with one set of log probabilities, prompts in random order "
          f"{'too' if order else 'DO NOT'}; {wrong} texts have others when they are prompts")
    return same == len(WAYS) and order and wrong == 0


def greedy(build, folder):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    out, _ = generate(build, folder, prompts_of(100), "--max-new-tokens", 24, "--echo", "--logprobs", 0)
    exact = near = wrong = tokens = 0
    for prompt, line in zip(prompts_of(100), out.decode().splitlines()):
        row = json.loads(line)
        assert row["prompt_ids"] == tokenizer(prompt)["input_ids"], prompt
        ids = row["prompt_ids"] + row["ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, len(row["prompt_ids"]) - 1:-1]
        top = logits.topk(2).values
        for i, token in enumerate(row["ids"]):
            tokens += 1
            if int(logits[i].argmax()) == token:
                continue
            if float(top[i, 0] - top[i, 1]) < 1e-3 and float(top[i, 0] - logits[i, token]) < 1e-3:
                near += 1
            else:
                wrong += 1
        exact += all(int(logits[i].argmax()) == t for i, t in enumerate(row["ids"]))
        worst = (torch.log_softmax(logits, -1)[range(len(row["ids"])), row["ids"]] - torch.tensor(row["logprobs"])).abs().max()
        if worst > 1e-3:
            wrong += 1
            print("log probabilities differ by", float(worst))
    print(f"greedy: {exact} of 100 texts are transformers', {near} of {tokens} tokens are near-ties, {wrong} wrong")
    return wrong == 0


def samplers(build):
    import torch
    from transformers import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
                              TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
    good, size = True, 997
    for temperature, top_k, top_p, min_p, repetition in [(1, 1, 1, 0, 1), (0.7, 40, 1, 0, 1), (1.2, 0, 0.9, 0, 1),
                                                         (1, 0, 1, 0.05, 1), (0.8, 50, 0.95, 0.02, 1.3)]:
        torch.manual_seed(3)
        rows = torch.randn(2000, size) * torch.linspace(0.1, 8, 2000)[:, None]
        ids = torch.randint(0, size, (2000, 8))
        steps = [RepetitionPenaltyLogitsProcessor(float(repetition)), TemperatureLogitsWarper(float(temperature))]
        steps += [TopKLogitsWarper(top_k)] if top_k else []
        steps += [TopPLogitsWarper(top_p)] if top_p < 1 else []
        steps += [MinPLogitsWarper(min_p)] if min_p else []
        want = torch.softmax(LogitsProcessorList(steps)(ids, rows.double()), -1)
        data = b"".join(struct.pack("<8i", *ids[r].tolist()) + rows[r].numpy().tobytes() for r in range(2000))
        run = subprocess.run([build / "tests/sample_rows", *map(str, (size, temperature, top_k, top_p, min_p, repetition))],
                             input=data, stdout=subprocess.PIPE, check=True)
        got = torch.frombuffer(bytearray(run.stdout), dtype=torch.float64).reshape(2000, size)
        sets = int(((got > 0) != (want > 0)).any(-1).sum())
        far = float((got - want).abs().max())
        good = good and sets == 0 and far < 1e-6
        print(f"samplers: temperature {temperature} top-k {top_k} top-p {top_p} min-p {min_p} repetition {repetition}: "
              f"2000 rows, {sets} other sets, probabilities within {far:.1e}", flush=True)
    return good


SLICE = 65536  # positions whose logits are in memory together
SMALL = "--arch llama --n-layer 3 --n-embd 48 --n-head 6 --n-kv-head 3 --seq-len 256 --global-batch-size 8 --steps 20 --lr 3e-3"


def alike(build, model, text, positions, kept):
    """Rows of logits that logits_alike compares, and how many are other; what it says is kept."""
    if not kept.exists():
        with tempfile.NamedTemporaryFile() as file:
            file.write(text)
            file.flush()
            run = subprocess.run([build / "tests/logits_alike", model, file.name, str(positions)], stdout=subprocess.PIPE, text=True)
        if run.returncode > 1 or "rows compared" not in run.stdout:
            raise SystemExit(f"logits_alike: status {run.returncode}\n{run.stdout}")
        kept.write_text(run.stdout)
    return map(int, re.search(r"(\d+) rows compared, (\d+) other", kept.read_text()).groups())


def logits(build, folder, positions, keep):
    sources = b"".join(path.read_bytes() for path in sorted(ROOT.glob("[a-z]*/**/*.[ch]")) if "build" not in path.parts[len(ROOT.parts)])
    with tempfile.TemporaryDirectory() as work:
        kept = keep or pathlib.Path(work)
        kept.mkdir(parents=True, exist_ok=True)
        corpus, small = kept / "sources.txt", kept / "small"
        if not (small / "step-00000020").exists():
            corpus.write_bytes(sources)
            subprocess.run([build / "apps/gpt_train", "--data", corpus, *SMALL.split(), "--save", small], check=True, stdout=subprocess.DEVNULL)
        compared = other = 0
        for i, at in enumerate(range(0, positions, SLICE)):
            text = sources[at % (len(sources) - SLICE):][:SLICE]
            rows, wrong = alike(build, small, text, min(SLICE, positions - at), kept / f"logits_{i}.txt")
            compared, other = compared + rows, other + wrong
        print(f"logits: {positions} positions of a small model: {compared} rows compared on six layouts, {other} other", flush=True)
        rows, wrong = alike(build, folder, sources, 2048, kept / "logits_folder.txt")
        print(f"logits: 2048 positions of {folder}: {rows} rows compared on six layouts, {wrong} other", flush=True)
    return other + wrong == 0


def perplexity(build, folder):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = (ROOT / "docs/architecture.md").read_text()[:12000]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    good = True
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        for length, stride in ((256, 256), (256, 64)):
            nats = count = after = begin = 0
            while after < len(ids) - 1:  # the last target that counted
                window = ids[begin:begin + length + 1]
                with torch.no_grad():
                    rows = torch.log_softmax(model(torch.tensor([window[:-1]])).logits[0].double(), -1)
                for i, token in enumerate(window[1:]):
                    if begin + 1 + i > after:
                        nats -= float(rows[i, token])
                        count += 1
                after = begin + len(window) - 1
                begin += stride
            run = subprocess.run([build / "apps/gpt_eval", "perplexity", folder, "--data", file.name, "--json", "--seq-length",
                                  str(length), "--stride", str(stride)], stdout=subprocess.PIPE, check=True)
            ours = json.loads(run.stdout)
            off = abs(ours["nats_per_token"] - nats / count)
            good = good and off < 1e-5 and ours["tokens"] == count
            print(f"perplexity: windows of {length}, stride {stride}: {count} tokens, {ours['nats_per_token']:.6f} nats a token, "
                  f"{off:.1e} from transformers'", flush=True)
    return good


SPEED_LENGTHS = (4, 132)  # tokens of a text; loading and the prompt cancel out


class WeftSpeed:
    """gpt_generate: the seconds of a short and of a long text."""

    def __init__(self, build, folder, *flags):
        self.build, self.folder, self.flags = build, folder, flags
        self.least = [1e9, 1e9]

    def run(self, threads):
        for i, n in enumerate(SPEED_LENGTHS):
            self.least[i] = min(self.least[i], generate(
                self.build, self.folder, ["The capital of France is"], "--max-new-tokens", n, "--ignore-eos",
                "--threads-per-rank", threads, *self.flags)[1])

    def rate(self):
        return (SPEED_LENGTHS[1] - SPEED_LENGTHS[0]) / (self.least[1] - self.least[0])


class TorchSpeed(WeftSpeed):
    def __init__(self, folder, dtype):
        import torch
        import transformers
        self.torch = torch
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        self.ids = transformers.AutoTokenizer.from_pretrained(folder)("The capital of France is", return_tensors="pt")
        self.least = [1e9, 1e9]

    def run(self, threads):
        self.torch.set_num_threads(threads)
        for i, n in enumerate(SPEED_LENGTHS):
            begin = time.monotonic()
            self.model.generate(**self.ids, max_new_tokens=n, min_new_tokens=n, do_sample=False)
            self.least[i] = min(self.least[i], time.monotonic() - begin)


class LlamaSpeed:
    """llama-bench with the GGUF that gpt_export writes, its matrices of the type that the folder has."""

    def __init__(self, bench, build, folder, dtype, work):
        self.bench, self.file, self.best = bench, work / f"{dtype}.gguf", 0
        if self.file.exists():
            return
        subprocess.run([build / "apps/gpt_export", folder, work / dtype, "--dtype", dtype], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([build / "apps/gpt_export", work / dtype, "--gguf", self.file], check=True, stdout=subprocess.DEVNULL)

    def run(self, threads):
        run = subprocess.run([self.bench, "-m", self.file, "-t", str(threads), "-p", "0", "-r", "1", "-o", "json",
                              "-n", str(SPEED_LENGTHS[1] - SPEED_LENGTHS[0])], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=True)
        self.best = max(self.best, json.loads(run.stdout)[0]["avg_ts"])

    def rate(self):
        return self.best


class ReadSpeed:
    """GB/s at which bench decode adds up memory that no cache holds."""

    def __init__(self, build):
        self.bench, self.best = build / "apps/bench", 0

    def run(self, threads):
        run = subprocess.run([self.bench, "decode", "--json", "--shapes", "1x576x1536", "--threads", str(threads), "--seconds", "0.5"],
                             stdout=subprocess.PIPE, check=True)
        self.best = max([self.best] + [row["read"] for row in map(json.loads, run.stdout.splitlines()) if "read" in row])

    def rate(self):
        return self.best


def speed(build, folder, bench, turns, counts):
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    with open(pathlib.Path(folder) / "model.safetensors", "rb") as file:
        tensors = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    numbers = sum(math.prod(t["shape"]) for n, t in tensors.items() if n != "__metadata__")
    if not config.get("tie_word_embeddings"):
        numbers -= config["vocab_size"] * config["hidden_size"]  # of the embedding a row is read
    with tempfile.TemporaryDirectory() as work:
        for threads in counts:
            peers = {"weft fp32": WeftSpeed(build, folder), "weft bf16": WeftSpeed(build, folder, "--dtype", "bf16"),
                     "torch fp32": TorchSpeed(folder, "float32"), "torch bf16": TorchSpeed(folder, "bfloat16"),
                     "a read, GB/s": ReadSpeed(build)}
            if bench:
                peers["llama.cpp fp32"] = LlamaSpeed(bench, build, folder, "f32", pathlib.Path(work))
                peers["llama.cpp bf16"] = LlamaSpeed(bench, build, folder, "bf16", pathlib.Path(work))
            for _ in range(turns):
                for peer in peers.values():
                    peer.run(threads)
            rate = {name: peer.rate() for name, peer in peers.items()}
            print(f"speed, {threads} thread{'s' * (threads > 1)}, tokens a second: "
                  + ", ".join(f"{name} {r:.1f}" for name, r in rate.items()), flush=True)
            for dtype, size in (("fp32", 4), ("bf16", 2)):
                ours, read = rate[f"weft {dtype}"], rate["a read, GB/s"]
                weights = ours * numbers * size / 1e9
                print(f"  {dtype}: {weights:.1f} GB/s of weights, {weights / read:.2f} of a read; " + ", ".join(
                    f"{ours / rate[f'{name} {dtype}']:.2f} x {name}" for name in ("torch", "llama.cpp")
                    if f"{name} {dtype}" in rate), flush=True)
            print(f"  bf16 {rate['weft bf16'] / rate['weft fp32']:.2f} x fp32", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--positions", type=int, default=1000000)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--llama-bench", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", choices=["layouts", "logits", "greedy", "samplers", "perplexity", "speed"])
    a = parser.parse_args()
    parts = {"layouts": lambda: layouts(a.build, a.folder, a.prompts, a.keep), "logits": lambda: logits(a.build, a.folder, a.positions, a.keep),
             "greedy": lambda: greedy(a.build, a.folder), "samplers": lambda: samplers(a.build),
             "perplexity": lambda: perplexity(a.build, a.folder),
             "speed": lambda: speed(a.build, a.folder, a.llama_bench, a.turns, a.threads)}
    good = True
    for name, part in parts.items():
        if a.only not in (None, name):
            continue
        try:
            good = part() and good
        except ModuleNotFoundError as missing:
            print(f"{name}: SKIPPED: {missing}: pip install torch transformers safetensors")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
