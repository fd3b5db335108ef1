#!/usr/bin/env python3
"""
sft.py BUILD MODEL [--only PART] - is fine-tuning on conversations right? Weft against transformers, on the same ids and masks.

200 made conversations of unequal length go through gpt_data chat and pack. Then

  tokens   the losses of all trained tokens, of each conversation alone, are those of transformers, within 1e-5 in norm
  windows  the loss of every packed window, as gpt_train has it with --documents mask, is the mean of those
           of its conversations alone: of transformers, and of Weft
  layouts  one digest of that small model: micro-batches 1 to 16 on dp 1 to 8, and some of tp and pp
  trl      6 steps of TRL's SFTTrainer on 64 of them, of a small model with the same vocabulary, whose batches are padded and
           accumulated, and of gpt_train on the packed windows: every loss within 1e-5, relatively

MODEL is a folder of Hugging Face with a tokenizer and a chat template that Weft knows, BUILD one of Weft. It needs
torch and transformers, and trl for its part. Status 1: something is wrong, 2: something is missing, and the other parts are right.
"""
import hashlib
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

sys.path.pop(0)  # scripts beside this one have the names of packages
PARTS = ("tokens", "windows", "layouts", "trl")
if len(sys.argv) not in (3, 5) or len(sys.argv) == 5 and (sys.argv[3] != "--only" or sys.argv[4] not in PARTS):
    sys.exit(__doc__)
try:
    import torch
    import transformers
except ImportError as missing:
    print(f"sft.py: {missing}: pip install torch transformers", file=sys.stderr)
    sys.exit(2)

WANTED = sys.argv[4:] or PARTS
APPS, MODEL = pathlib.Path(sys.argv[1]).resolve() / "apps", pathlib.Path(sys.argv[2]).resolve()
CHATS, FEW, WINDOW = 200, 64, 256
STEPS, LR = 6, 1e-3
WORDS = "the a river stone old green runs under light seven open quiet house who never sings and then".split()
LAYOUTS = [f"--dp {dp} --micro-batch-size {micro}" for dp in (1, 2, 4, 8) for micro in (1, 2, 4, 8, 16) if dp * micro <= 16]
LAYOUTS += ["--tp 2", "--tp 4 --sequence-parallel", "--dp 2 --tp 2 --micro-batch-size 1", "--pp 2 --micro-batch-size 2",
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


def conversations(path, count):
    draw = random.Random(7)
    text = lambda most: " ".join(draw.choices(WORDS, k=draw.randrange(1, most)))
    with open(path, "w") as file:
        for _ in range(count):
            turns = []
            for _ in range(draw.randrange(1, 4)):
                turns += [{"role": "user", "content": text(9)}, {"role": "assistant", "content": text(14)}]
            file.write(json.dumps({"messages": turns}) + "\n")


def data_of(folder, count):
    """(ids, mask) of conversations, (ids, mask) of them in windows, and how many windows."""
    conversations(folder / "chats.jsonl", count)
    print(run("gpt_data", "chat", folder / "chats.jsonl", "--tokenizer", MODEL, "--output", folder / "chats").strip())
    print(run("gpt_data", "pack", folder / "chats", "--seq-len", WINDOW, "--output", folder / "packed").strip(), flush=True)
    found = [list(documents(folder / name)) for name in ("chats", "chats.loss", "packed", "packed.loss")]
    return *found, -(-sum(map(len, found[2])) // WINDOW) - 1


def wefts(folder, chats):
    """The losses of all tokens but the first of each conversation."""
    with open(folder / "ids.jsonl", "w") as file:
        file.writelines(json.dumps({"ids": ids}) + "\n" for ids in chats)
    reported = run("gpt_generate", MODEL, "--prompts", folder / "ids.jsonl", "--json", "--echo", "--logprobs", 0,
               "--max-new-tokens", 1)
    return [[-x for x in json.loads(line)["prompt_logprobs"]] for line in reported.splitlines()]


def theirs(chats):
    """The same by transformers; what is computed is kept in BUILD/sft, so a run that was stopped resumes."""
    kept = APPS.parent / "sft" / (hashlib.sha256(f"{MODEL} {transformers.__version__} {chats}".encode()).hexdigest()[:16] + ".jsonl")
    kept.parent.mkdir(exist_ok=True)
    losses = [json.loads(line) for line in open(kept)] if kept.exists() else []
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    with open(kept, "a") as file, torch.no_grad():
        for ids in chats[len(losses):]:
            logits = model(torch.tensor([ids])).logits[0, :-1].double()
            losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none").tolist())
            file.write(json.dumps(losses[-1]) + "\n")
            file.flush()
    return losses


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
            folder / "packed.idx", "--documents", "mask", "--seq-len", WINDOW, "--global-batch-size", 16, "--steps", 2,
            "--eval-interval", 0, "--digest", "--threads-per-rank", 1, "--log-jsonl", log, *layout.split())
        rows = [json.loads(line) for line in open(log)]
        found.add(tuple((row["loss_bits"], row["digest"]) for row in rows if "loss_bits" in row))
        log.unlink()
    return len(found)


def small_model(folder, vocabulary):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=vocabulary, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=WINDOW)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def trl_losses(folder, chats, trained):
    """All conversations in each step, in accumulated batches of 8 that are padded; None: there is no trl."""
    try:
        import datasets
        import trl
    except ImportError as missing:
        print(f"sft.py: no TRL: {missing}: pip install trl", file=sys.stderr)
        return None
    transformers.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    rows = [{"input_ids": ids, "labels": [x if m else -100 for x, m in zip(ids, marks)]} for ids, marks in zip(chats, trained)]
    options = trl.SFTConfig(output_dir=str(folder / "trl"), per_device_train_batch_size=8, gradient_accumulation_steps=len(rows) // 8,
                            max_steps=STEPS, learning_rate=LR, lr_scheduler_type="constant", weight_decay=0, max_grad_norm=0,
                            adam_beta2=0.95, logging_steps=1, report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True,
                            bf16=False, dataset_kwargs={"skip_prepare_dataset": True}, gradient_checkpointing=False)
    trainer = trl.SFTTrainer(model=transformers.LlamaForCausalLM.from_pretrained(folder / "small"), args=options,
                             train_dataset=datasets.Dataset.from_list(rows),
                             processing_class=transformers.AutoTokenizer.from_pretrained(MODEL))
    losses = []
    accumulated = trainer.compute_loss

    def noted(*arguments, **named):
        loss = accumulated(*arguments, **named)
        losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
        return loss

    trainer.compute_loss = noted  # the log rounds to four digits
    trainer.train()
    each = len(rows) // 8
    return [sum(losses[i:i + each]) for i in range(0, len(losses), each)]


def packed_losses(folder, windows):
    log = folder / "trl.jsonl"
    run("gpt_train", "--init-from", folder / "small", "--data", folder / "packed.idx", "--documents", "mask", "--seq-len", WINDOW,
        "--global-batch-size", windows, "--micro-batch-size", 1, "--steps", STEPS, "--val-fraction", 0, "--eval-interval", 0,
        "--weight-decay", 0, "--clip-grad", 0, "--lr", LR, "--min-lr", LR, "--warmup-steps", 0, "--log-jsonl", log)
    return [json.loads(line)["loss"] for line in open(log) if '"loss"' in line]


def main():
    wrong, missing = 0, False

    def check(name, good, reported):
        nonlocal wrong
        wrong += not good
        print(("ok    " if good else "FALSE ") + f"{name}: {reported}", flush=True)

    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        chats, trained, packed, marks, windows = data_of(folder, CHATS)
        vocabulary = json.loads((MODEL / "config.json").read_text())["vocab_size"]
        if set(WANTED) & {"tokens", "windows"}:
            wanted, mine = theirs(chats), wefts(folder, chats)
        if "tokens" in WANTED:
            pairs = [(x, y) for a, b, m in zip(mine, wanted, trained) for x, y, t in zip(a, b, m[1:]) if t]
            away = (sum((x - y) ** 2 for x, y in pairs) / sum(y ** 2 for _, y in pairs)) ** 0.5
            worst = max(abs(x - y) for x, y in pairs)
            check("tokens", away <= 1e-5, f"{len(pairs)} losses, {away:.1e} away in norm, one by at most {worst:.1e}")
        if "windows" in WANTED:
            whole = window_losses(folder, windows)
            for name, losses in (("transformers", wanted), ("Weft alone", mine)):
                of = {tuple(ids): x for ids, x in zip(chats, losses)}
                away = furthest(whole, means(packed, marks, of))
                check(f"windows beside {name}", away <= 1e-5, f"{len(whole)} losses, at most {away:.1e} away")
        if "layouts" in WANTED:
            count = digests(folder, vocabulary)
            check("layouts", count == 1, f"{len(LAYOUTS)} of them have {count} digest(s)")
        if "trl" in WANTED:
            small_model(folder / "small", vocabulary)
            chats, trained, _, _, windows = data_of(folder, FEW)
            wanted = trl_losses(folder, chats, trained)
            missing = wanted is None
            if not missing:
                losses = packed_losses(folder, windows)
                away = furthest(losses, wanted)
                check("trl", away <= 1e-5, f"{len(losses)} losses, {losses[0]:.6f} to {losses[-1]:.6f}, at most {away:.1e} away")
    return 1 if wrong else 2 if missing else 0


sys.exit(main())
