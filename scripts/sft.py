#!/usr/bin/env python3
"""
sft.py BUILD MODEL - is fine-tuning on conversations right? Weft against transformers, on the same ids and masks.

200 made conversations of unequal length go through gpt_data chat and pack. Then

  tokens   the losses of all trained tokens, of each conversation alone, are those of transformers, within 1e-5 in norm
  windows  the loss of every packed window, as gpt_train has it with --documents mask, is the mean of those
           of its conversations alone: of transformers, and of Weft
  layouts  one digest on twelve layouts and micro-batch sizes, of a small model with the same vocabulary

MODEL is a folder of Hugging Face with a tokenizer and a chat template that Weft knows, BUILD one of Weft. It needs
torch and transformers. Status 1: something is wrong, 2: something is missing.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

sys.path.pop(0)  # scripts beside this one have the names of packages
if len(sys.argv) != 3:
    sys.exit(__doc__)
try:
    import torch
    import transformers
except ImportError as missing:
    print(f"sft.py: {missing}: pip install torch transformers", file=sys.stderr)
    sys.exit(2)

APPS, MODEL = pathlib.Path(sys.argv[1]).resolve() / "apps", pathlib.Path(sys.argv[2]).resolve()
CHATS, WINDOW = 200, 256
WORDS = "the a river stone old green runs under light seven open quiet house who never sings and then".split()
LAYOUTS = ["", "--micro-batch-size 1", "--micro-batch-size 2", "--micro-batch-size 4", "--tp 2", "--tp 4 --sequence-parallel",
           "--dp 2", "--dp 2 --tp 2 --micro-batch-size 1", "--dp 4 --micro-batch-size 2", "--pp 2 --micro-batch-size 2",
           "--pp 2 --tp 2 --sequence-parallel --micro-batch-size 1", "--pp 2 --dp 2 --micro-batch-size 1 --recompute block"]


def run(program, *arguments):
    done = subprocess.run([str(APPS / program), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"sft.py: {program}: {done.stderr.strip()}")
    return done.stdout


def documents(prefix):
    index, data = (pathlib.Path(f"{prefix}.{end}").read_bytes() for end in ("idx", "bin"))
    form = {1: "B", 4: "i", 8: "H"}[index[17]]
    count, at = struct.unpack_from("<Q", index, 18)[0], 0
    values = struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data)
    for n in struct.unpack_from(f"<{count}i", index, 34):
        yield list(values[at:at + n])
        at += n


def conversations(path):
    draw = random.Random(7)
    text = lambda most: " ".join(draw.choices(WORDS, k=draw.randrange(1, most)))
    with open(path, "w") as file:
        for _ in range(CHATS):
            turns = []
            for _ in range(draw.randrange(1, 4)):
                turns += [{"role": "user", "content": text(9)}, {"role": "assistant", "content": text(14)}]
            file.write(json.dumps({"messages": turns}) + "\n")


def wefts(folder, chats):
    """The losses of all tokens but the first of each conversation."""
    with open(folder / "ids.jsonl", "w") as file:
        file.writelines(json.dumps({"ids": ids}) + "\n" for ids in chats)
    told = run("gpt_generate", MODEL, "--prompts", folder / "ids.jsonl", "--json", "--echo", "--logprobs", 0,
               "--max-new-tokens", 1)
    return [[-x for x in json.loads(line)["prompt_logprobs"]] for line in told.splitlines()]


def theirs(chats):
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    for ids in chats:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1].double()
        yield torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none").tolist()


def window_losses(folder, windows):
    """A step for each window, whose rate moves no weight; windows come in an order of their own."""
    log = folder / "log.jsonl"
    run("gpt_train", "--init-from", MODEL, "--data", folder / "packed.idx", "--documents", "mask", "--seq-len", WINDOW,
        "--global-batch-size", 1, "--steps", windows, "--val-fraction", 0, "--eval-interval", 0, "--optimizer", "sgd",
        "--beta1", 0, "--weight-decay", 0, "--lr", 1e-30, "--warmup-steps", 0, "--log-jsonl", log)
    return sorted(json.loads(line)["loss"] for line in open(log) if '"loss"' in line)


def means(packed, marks, losses):
    """The mean loss of what is trained of each window; losses: of a conversation's ids."""
    at, sums = 0, {}
    for ids, one in zip(packed, marks):
        sums.setdefault(at // WINDOW, [])
        if any(one):
            sums[at // WINDOW] += [x for x, m in zip(losses[tuple(ids)], one[1:]) if m]
        at += len(ids)
    return sorted(sum(x) / len(x) for x in sums.values() if x)


def furthest(a, b):
    if len(a) != len(b):
        sys.exit(f"sft.py: {len(a)} numbers beside {len(b)}")
    return max(abs(x - y) / max(abs(y), 1e-3) for x, y in zip(a, b))


def digests(folder, vocabulary):
    found = set()
    for layout in LAYOUTS:
        log = folder / "layout.jsonl"
        run("gpt_train", "--arch", "llama", "--n-layer", 2, "--n-head", 4, "--n-embd", 16, "--vocab-size", vocabulary, "--data",
            folder / "packed.idx", "--documents", "mask", "--seq-len", WINDOW, "--global-batch-size", 8, "--steps", 2,
            "--eval-interval", 0, "--digest", "--threads-per-rank", 1, "--log-jsonl", log, *layout.split())
        rows = [json.loads(line) for line in open(log)]
        found.add(tuple((row["loss_bits"], row["digest"]) for row in rows if "loss_bits" in row))
        log.unlink()
    return len(found)


def main():
    wrong = 0

    def check(name, good, told):
        nonlocal wrong
        wrong += not good
        print(("ok    " if good else "FALSE ") + f"{name}: {told}", flush=True)

    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        conversations(folder / "chats.jsonl")
        print(run("gpt_data", "chat", folder / "chats.jsonl", "--tokenizer", MODEL, "--output", folder / "chats").strip())
        print(run("gpt_data", "pack", folder / "chats", "--seq-len", WINDOW, "--output", folder / "packed").strip(), flush=True)
        chats, trained = (list(documents(folder / name)) for name in ("chats", "chats.loss"))
        packed, marks = (list(documents(folder / name)) for name in ("packed", "packed.loss"))
        mine, wanted = wefts(folder, chats), list(theirs(chats))
        pairs = [(x, y) for a, b, m in zip(mine, wanted, trained) for x, y, t in zip(a, b, m[1:]) if t]
        away = (sum((x - y) ** 2 for x, y in pairs) / sum(y ** 2 for _, y in pairs)) ** 0.5
        worst = max(abs(x - y) for x, y in pairs)
        check("tokens", away <= 1e-5, f"{len(pairs)} losses, {away:.1e} away in norm, one by at most {worst:.1e}")
        windows = window_losses(folder, -(-sum(map(len, packed)) // WINDOW) - 1)
        for name, losses in (("transformers", wanted), ("Weft alone", mine)):
            of = {tuple(ids): x for ids, x in zip(chats, losses)}
            away = furthest(windows, means(packed, marks, of))
            check(f"windows beside {name}", away <= 1e-5, f"{len(windows)} losses, at most {away:.1e} away")
        count = digests(folder, json.loads((MODEL / "config.json").read_text())["vocab_size"])
        check("layouts", count == 1, f"{len(LAYOUTS)} of them have {count} digest(s)")
    return wrong


sys.exit(1 if main() else 0)
