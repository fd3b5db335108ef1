#!/usr/bin/env python3
"""
finetuning_methods.py BUILD TEXT - all of a model, LoRA and QLoRA on one task, beside each other: validation losses and memory.

The model is a Llama of 0.9 million parameters that learns the bytes of TEXT (English prose; scripts/corpus.sh makes some) for 600
steps here. The task is another text: questions of sums, and a pirate's answers, of which a tenth is held out. Every way has the rate
that is best for it of three. Some minutes on two cores.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

if len(sys.argv) != 3:
    sys.exit(__doc__.strip())
APPS = pathlib.Path(sys.argv[1]).resolve() / "apps"
LORA = "--lora-rank 8 --lora-alpha 16 --lora-targets all-linear"
WAYS = {"all of it": "", "all of it, moments in 8 bits": "--optimizer adamw8bit", "LoRA, rank 8, all linears": LORA,
        "QLoRA, rank 8, all linears": f"{LORA} --base-dtype nf4"}
RATES = ("1e-3", "3e-3", "1e-2")


def run(folder, program, flags):
    done = subprocess.run([APPS / program, *flags.split()], capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        sys.exit(f"finetuning_methods.py: {program} {flags}: {done.stderr}")
    return done.stdout


def train(folder, flags, log):
    """Validation losses, and the memory that tensors took."""
    run(folder, "gpt_train", f"--seq-len 64 --global-batch-size 16 --eval-iters 0 --log-jsonl {log} --report-json {log}.report {flags}")
    rows = [json.loads(line) for line in open(folder / log, encoding="utf-8")]
    memory = json.load(open(folder / f"{log}.report", encoding="utf-8"))["memory"]["peak"]
    return [row["val_loss"] for row in rows if row.get("val_loss") is not None], memory


def task(path):
    draw = random.Random(3)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(4000):
            a, b = draw.randrange(100), draw.randrange(100)
            file.write(f"What is {a} plus {b}? Aye, that be {a + b}, captain!\n")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "prose.txt").write_bytes(pathlib.Path(sys.argv[2]).read_bytes()[:4_000_000])
        task(folder / "task.txt")
        train(folder, "--data prose.txt --arch llama --n-layer 4 --n-head 8 --n-embd 128 --steps 600 --lr 3e-3 --eval-interval 600 --save learnt",
              "prose")
        run(folder, "gpt_export", "learnt base")
        before = train(folder, "--init-from base --data task.txt --val-fraction 0.1 --steps 1 --lr 1e-30 --min-lr 1e-30 --warmup-steps 0 "
                               "--weight-decay 0 --eval-interval 1", "before")[0][-1]
        print(f"| as it was | {before:.4f} | | |", flush=True)
        for i, (way, flags) in enumerate(WAYS.items()):
            found = {}
            for rate in RATES:
                losses, memory = train(folder, f"--init-from base --data task.txt --val-fraction 0.1 --steps 200 --lr {rate} "
                                               f"--eval-interval 200 {flags}", f"way{i}-{rate}")
                found[rate] = losses[-1]
            best = min(found, key=found.get)
            print(f"| {way} | {found[best]:.4f} | {best} | {memory / 2 ** 20:.1f} |", flush=True)


main()
