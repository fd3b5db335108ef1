#!/usr/bin/env python3
"""
planning.py GPT_TRAIN [--check] - the tables of docs/planning.md: published runs beside what gpt_train --plan --machine
says of them, with one machine file for each kind of device and nothing that is set for a row.

Writes them into the page, between the two lines that name this script; --check only looks whether
they are there, and exits with 1 where the page says something else than the plans.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import planned_page

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/planning.md"
BEGIN, END = "<!-- begin: scripts/pages/planning.py -->\n", "<!-- end: scripts/pages/planning.py -->\n"
GIB = 2.0 ** 30
TITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
FOUNDRY = "llm-foundry, scripts/train/benchmarking/README.md"
MEGATRON = "Megatron-LM, README.md, images/model_table.png (H100)"
LLAMA3 = "The Llama 3 Herd of Models, as glennklockwood.com/garden/llama-3.1 has its table"
MEGASCALE = "MegaScale (arXiv 2402.15627), tables 1 and 2"
ZERO_BUBBLE = "Zero Bubble Pipeline Parallelism (arXiv 2401.10241), tables 3 and 4"
SMALL = "--recompute attention"  # torchtitan's selective checkpointing has no flag that is just the same


def gpt(width, heads, layers, vocabulary, seq):
    return (f"--arch gpt2 --n-embd {width} --n-head {heads} --n-layer {layers} --vocab-size {vocabulary} "
            f"--seq-len {seq}")


def mpt(size, seq):
    """MPT of llm-foundry's yamls: four times as wide inside, 50,368 words, a tied head."""
    width, heads, layers = {"7b": (4096, 32, 32), "13b": (5120, 40, 40), "30b": (7168, 56, 48),
                            "70b": (8192, 64, 80)}[size]
    return gpt(width, heads, layers, 50368, seq)


def foundry(device, size, gpus, micro, accumulate, again, tokens):
    flags = (f"{mpt(size, 2048)} --dp {gpus} --micro-batch-size {micro} "
             f"--global-batch-size {gpus * micro * accumulate} {'--recompute block' if again else ''}")
    return {"name": f"MPT {size}, FSDP{', blocks recomputed' if again else ''}", "machine": device, "gpus": gpus,
            "tokens": tokens, "flags": flags, "source": FOUNDRY}


def megatron(name, heads, width, layers, tp, pp, batch, teraflops):
    flags = (f"{gpt(width, heads, layers, 131072, 4096)} --dp 48 --tp {tp} --pp {pp} --strategy zero1 "
             f"--micro-batch-size 1 --global-batch-size {batch} {'--sequence-parallel' if tp > 1 else ''}")
    return {"name": f"GPT {name}, tp {tp} pp {pp} dp 48", "machine": "h100", "gpus": 48 * tp * pp,
            "teraflops": teraflops, "flags": flags, "source": MEGATRON}


def llama3(dp, teraflops):
    return {"name": f"Llama 3 405B, tp 8 pp 16 dp {dp}", "machine": "h100", "gpus": 128 * dp,
            "teraflops": teraflops, "source": LLAMA3,
            "flags": f"--model llama-3.1-405b --seq-len 8192 --tp 8 --pp 16 --dp {dp} --sequence-parallel "
                     "--strategy shard_grad_op --micro-batch-size 1 --global-batch-size 2048"}


def titan(name, tokens, memory, keeps, grows, flags):
    """keeps: GiB that torchtitan reserves, which is what it prints (its metrics.py): its allocations of three steps, one after
    the other, on a model of PyTorch's allocator; grows: with segments that grow."""
    return {"name": name, "machine": "h100-500w", "tokens": tokens, "memory": memory, "flags": flags,
            "keeps": lambda flags, plan: keeps, "grows": grows, "source": TITAN}


def megascale(system, gpus, thousands):
    """175B on Ampere GPUs, in stages of two layers, 6,144 sequences a step; ZeRO-2."""
    flags = (f"{gpt(12288, 128, 96, 64000, 2048)} --tp 8 --pp 8 --pp-schedule interleaved --pp-virtual 6 --dp {gpus // 64} "
             "--sequence-parallel --strategy shard_grad_op --micro-batch-size 1 --global-batch-size 6144")
    return {"name": f"{system} 175B, tp 8 pp 8 dp {gpus // 64}", "machine": "a100", "gpus": gpus,
            "tokens": 1000 * thousands / gpus, "flags": flags, "source": MEGASCALE}


def zero_bubble(size, schedule, gpus, micros, samples, memory):
    """A pipeline alone; the vocabulary is GPT-2's, which the source does not name. ZB-1p and ZB-2p are searched for there, and handmade here."""
    width, heads, layers, micro = {"1.5B": (2304, 24, 22, 6), "28.3B": (6144, 48, 62, 1)}[size]
    name = {"1f1b": "1F1B", "zb-h1": "ZB-1p", "zb-h2": "ZB-2p"}[schedule]
    flags = (f"{gpt(width, heads, layers, 50304, 1024)} --pp {gpus} --pp-schedule {schedule} --micro-batch-size {micro} "
             f"--global-batch-size {micro * micros}")
    return {"name": f"GPT {size}, pp {gpus}, {name}", "machine": "a100", "gpus": gpus, "tokens": 1024 * samples,
            "memory": memory * 1e9 / GIB, "flags": flags, "keeps": megatron_keeps, "source": ZERO_BUBBLE}


def megatron_keeps(flags, _):
    """GiB of a stage of blocks alone where a block keeps s b h (34 + 5 a s / h) bytes of a micro-batch, scores of attention among
    them (Reducing Activation Recomputation, arXiv 2205.05198, equation 1). A parameter takes 16 bytes: the system runs in fp16
    (its examples/pretrain_zero_bubble.sh), for which Megatron sums gradients in fp16 (arguments.py: in fp32 for bf16 alone), and floats
    of them are there while the optimizer steps alone, when no activations are (optimizer.py). As many micro-batches are kept
    as the schedule allows: 1F1B's second stage p - 1, ZB-1p p, ZB-2p 2 p."""
    pp, micro, schedule = flag(flags, "--pp"), flag(flags, "--micro-batch-size"), flags.split()[flags.split().index("--pp-schedule") + 1]
    width, heads, layers, seq = (flag(flags, name) for name in ("--n-embd", "--n-head", "--n-layer", "--seq-len"))
    blocks = (layers + 2) / pp  # both ends have one fewer
    kept = {"1f1b": pp - 1, "zb-h1": pp, "zb-h2": 2 * pp}[schedule]
    block = seq * micro * width * (34 + 5 * heads * seq / width)
    return blocks * (16 * 12 * width ** 2 + kept * block) / GIB


ROWS = [
    llama3(64, 430), llama3(128, 400),
    {**titan("Llama 3.1 8B, FSDP, compiled", 6667, 77.0, 76.82, 75.30,
             f"--model llama-3.1-8b --seq-len 8192 --dp 8 --micro-batch-size 2 --global-batch-size 16 {SMALL}"),
     "gpus": 8},
    {**titan("the same on 128", 6514, 62.0, 61.83, 61.08,
             f"--model llama-3.1-8b --seq-len 8192 --dp 128 --micro-batch-size 2 --global-batch-size 256 {SMALL}"),
     "gpus": 128},
    {**titan("Llama 3.1 8B, FSDP, blocks recomputed, one sequence of 32,768 (fp8)", 3890, 83.9, 83.68, 83.64,
             "--model llama-3.1-8b --seq-len 32768 --dp 8 --micro-batch-size 1 --global-batch-size 8 --recompute block"),
     "gpus": 8},
    {**titan("Llama 3.1 70B, tp 8 dp 32 (fp8)", 829, 71.9, 72.01, 67.62,
             "--model llama-3.1-70b --seq-len 8192 --tp 8 --dp 32 --sequence-parallel --micro-batch-size 16 "
             "--global-batch-size 512 --recompute block"), "gpus": 256},
    {**titan("Llama 3.1 405B, tp 8 pp 8 dp 8, 1f1b (fp8)", 100, 82.5, 81.81, 74.79,
             "--model llama-3.1-405b --seq-len 8192 --tp 8 --pp 8 --dp 8 --sequence-parallel "
             "--micro-batch-size 4 --global-batch-size 256 --recompute block"), "gpus": 512},
    {**titan("the same, interleaved (fp8)", 128, 72.7, 70.22, 64.93,
             "--model llama-3.1-405b --seq-len 8192 --tp 8 --pp 8 --dp 8 --sequence-parallel --pp-schedule "
             "interleaved --micro-batch-size 4 --global-batch-size 256 --recompute block"), "gpus": 512},
    {**titan("the same, 1f1b, one sequence of 32,768 (fp8)", 76, 75.3, 81.81, 74.65,
             "--model llama-3.1-405b --seq-len 32768 --tp 8 --pp 8 --dp 8 --sequence-parallel "
             "--micro-batch-size 1 --global-batch-size 64 --recompute block"), "gpus": 512},
    foundry("h100", "7b", 8, 6, 1, False, 10643), foundry("h100", "13b", 8, 2, 1, False, 4792),
    foundry("h100", "13b", 64, 2, 1, False, 4800), foundry("h100", "30b", 16, 10, 3, True, 2263),
    foundry("h100", "70b", 64, 8, 4, True, 1039), foundry("a100", "13b", 8, 2, 3, False, 2262),
    foundry("a100", "30b", 8, 3, 21, True, 916), foundry("a100", "70b", 64, 8, 4, True, 410),
    megatron("1.7B", 16, 2048, 24, 1, 1, 192, 408.8), megatron("7.1B", 32, 4096, 30, 2, 1, 192, 465.9),
    megatron("16B", 48, 6144, 32, 4, 1, 192, 489.1), megatron("32B", 56, 7168, 48, 8, 1, 192, 459.6),
    megatron("70B", 64, 8192, 84, 8, 2, 384, 419.7), megatron("177B", 96, 12288, 96, 8, 6, 1152, 432.8),
    megatron("314B", 128, 16384, 96, 8, 8, 1536, 474.4), megatron("462B", 144, 18432, 112, 8, 16, 3072, 459.9),
    megascale("Megatron-LM", 3072, 433.6), megascale("MegaScale", 3072, 531.9),
    megascale("Megatron-LM", 12288, 1466.8), megascale("MegaScale", 12288, 1984.0),
    zero_bubble("1.5B", "1f1b", 8, 24, 11.8, 30), zero_bubble("1.5B", "zb-h1", 8, 24, 12.9, 32),
    zero_bubble("1.5B", "zb-h2", 8, 24, 14.5, 59), zero_bubble("28.3B", "1f1b", 32, 96, .76, 43),
    zero_bubble("28.3B", "zb-h1", 32, 96, .87, 44), zero_bubble("28.3B", "zb-h2", 32, 96, .99, 74),
]

# The same model in three ways on four devices; nothing else is changed.
WAYS = {"naive model parallelism": "--pp 4 --pp-schedule naive", "DDP": "--dp 4 --strategy no_shard",
        "FSDP": "--dp 4"}
FINE_TUNES = {"TinyLlama 1.1B, 2048 tokens": "--model tinyllama-1.1b --seq-len 2048",
              "Llama 2 13B, 2048 tokens": "--model llama-2-13b --seq-len 2048"}


def plan(gpt_train, machine, flags):
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run([gpt_train, "--plan", "--dtype", "bf16", "--steps", "2", "--eval-interval", "0",
                               "--machine", ROOT / f"docs/machines/{machine}.json", *flags.split(), "--json",
                               file.name], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{flags}: {done.stderr}")
        return json.load(open(file.name, encoding="utf-8"))


def per_token(p):
    """FLOPs of a token as sources count them that give FLOP/s: 6 a weight, 12 a layer, feature and token."""
    model = p["model"]
    return 6 * model["parameters"] + 12 * model["layers"] * model["width"] * p["batch"]["tokens"]


def flag(flags, name, standard=1):
    words = flags.split()
    return int(words[words.index(name) + 1]) if name in words else standard


def first_ranks(flags):
    """The last rank of the first stage, which holds most activations under 1f1b."""
    return flag(flags, "--tp") * flag(flags, "--dp") - 1


def percent(ours, published):
    return f"{100 * (ours / published - 1):+.0f} %"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def published_row(gpt_train, row, errors):
    flags = row["flags"]
    p = plan(gpt_train, row["machine"], f"{flags} --rank {first_ranks(flags)}")
    ours = p["batch"]["global"] * p["batch"]["tokens"] / p["plan"]["time"]["seconds"] / row["gpus"]
    published = row.get("tokens") or row["teraflops"] * 1e12 / per_token(p)
    memory, gib = row.get("memory"), p["memory"]["peak"] / GIB
    kept = row["keeps"](flags, p) if "keeps" in row else None
    if "grows" in row:
        errors["grows"].append(f"{row['grows']:.1f}")
    errors["time"].append(abs(ours / published - 1))
    if memory:
        errors["memory"].append(abs(gib / memory - 1))
        errors["kept"].append(abs((kept or gib) / memory - 1))
    return [row["name"], row["machine"], f"{row['gpus']:,}", f"{published:,.0f}", f"{ours:,.0f}",
            percent(ours, published), f"{memory:.1f}" if memory else "", f"{gib:.1f}",
            percent(gib, memory) if memory else "", f"{kept:.1f}" if kept else "", percent(kept, memory) if kept else "", str(1 + SOURCES.index(row["source"]))]


SOURCES = [LLAMA3, TITAN, FOUNDRY, MEGATRON, MEGASCALE, ZERO_BUBBLE]


def published(gpt_train):
    errors = {"time": [], "memory": [], "kept": [], "grows": []}
    rows = [published_row(gpt_train, row, errors) for row in ROWS]
    text = table(["run", "machine", "GPUs", "tokens/s a GPU, published", "Weft", "off by", "GiB, published",
                  "Weft", "off by", "as theirs keeps", "off by", "source"], rows)
    text += "".join(f"\n{i}. {source}" for i, source in enumerate(SOURCES, 1))
    return text + (f"\n\nThe median of {len(errors['time'])} times is off by "
                   f"{100 * statistics.median(errors['time']):.0f} %, that of {len(errors['memory'])} figures of "
                   f"memory by {100 * statistics.median(errors['memory']):.0f} %; as their systems keep activations and logits, by "
            f"{100 * statistics.median(errors['kept']):.0f} %, and {sum(e <= .05 for e in errors['kept'])} of these are within 5 %. "
            f"With segments that grow torchtitan's would be {', '.join(errors['grows'])} GiB.\n")


def ways(gpt_train):
    rows = []
    for model, flags in FINE_TUNES.items():
        for way, how in WAYS.items():
            p = plan(gpt_train, "a100", f"{flags} --micro-batch-size 1 --global-batch-size 16 {how}")
            time = p["plan"]["time"]
            busy = sum(seconds for term, seconds in time["path"].items()
                       if term in ("matrix products", "attention", "norms and other work element by element"))
            share = 1 - time["bubble"] if "naive" in way else busy / time["seconds"]
            rows.append([f"{model}, {way}", f"{100 * share:.0f} %", f"{time['seconds']:.3f}",
                         f"{p['memory']['peak'] / GIB:.1f}"])
    return table(["four A100, 16 sequences a step", "of the time a device computes", "s a step",
                  "GiB of the fullest rank"], rows)


def tables(gpt_train):
    return f"{BEGIN}\n{published(gpt_train)}\n{ways(gpt_train)}\n{END}"


if __name__ == "__main__":
    planned_page.main(__doc__, PAGE, BEGIN, END, tables)
