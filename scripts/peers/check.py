#!/usr/bin/env python3
"""
check.py [--weft BUILD] [--keep DIR] [--only WORD] [--gloo] [--hooks] - `weft check` beside PyTorch: right dumps and faults.

Tiny models of transformers with random weights (GPT-2, a Llama with grouped queries, Qwen 3 with norms of queries and
keys) make a training step, and weft_hooks writes it down.

  right   plain, masked, packed, clipped and accumulated steps, in fp32 and under bf16 autocast, of mixtures with the
          choices of their routers: all of them are equal;
          with --gloo also DDP, FSDP2 and tensor parallelism of torch on 2 and 4 processes; with --hooks
          transformers' Trainer, torch's checkpoint wrappers and torchtitan (accelerate, torchtitan)
  wrong   faults that trainers have shipped, put in one at a time, those of mixtures in fp32 and in bf16: each is found,
          alone, and its cause is named

It needs torch, transformers and safetensors in the Python that runs it, and a build of Weft. Status 1: something is
wrong, 2: something is missing.
"""
import argparse
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from check_steps import ROOT, Step, make, run, torch, transformers, weft_hooks
from check_faults import ALL, FAULTS
from check_mixtures import MIXTURES


def right_steps():
    """Steps that are right, each as (name, step)."""
    for family in ALL + MIXTURES:
        for kind in ("plain", "masked", "packed"):
            for bf16 in (False, True):
                yield f"{family} {kind} {'bf16' if bf16 else 'fp32'}", Step(family, kind, bf16).backward()
        step = Step(family, "masked").backward().update()
        yield f"{family} update", step
        step = Step(family, "masked").backward()
        step.scale("", 0.25 / (step.norm() + 1e-6))
        step.flags = ["--clip", "0.25"]
        yield f"{family} clipped", step
        yield f"{family} micro-batches", micro_batches(Step(family, "masked"))


def micro_batches(step):
    counted = (step.seen["labels"][:, 1:] != -100).sum()
    for k in range(4):
        part = {n: t[2 * k:2 * k + 2] for n, t in step.seen.items()}
        (step.losses(part)[0].sum() / counted).backward()
    step.dump |= weft_hooks.gradients(step.model)
    return step


def show(report):
    return "; ".join(f"[{f['id']}] {f['what']} -- {f['cause']} ({f['where']})" for f in report["findings"]) or \
        report.get("error", "nothing is found") + f" worst {max((p['error'] for p in report.get('parameters', [])), default=0)}"


def try_fault(row, family, bf16, gpt_check, folder):
    """What is wrong with what is said of a fault; None: nothing."""
    name, _, kind, ids, cause, flags, function = row
    step = Step(family, kind, bf16)
    function(step)
    step.flags += flags
    report = step.check(gpt_check, folder)
    found = [f for f in report["findings"] if f["id"] not in ("loss", "token-losses")]
    if report.get("equal") or "error" in report or not found:
        return "is not found: " + show(report)
    if {f["id"] for f in found} - ids or not all(re.search(cause, f["cause"]) for f in found):
        return "is called: " + show(report)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=str(ROOT / "build"))
    parser.add_argument("--keep", help="leave the files there")
    parser.add_argument("--only", default="", help="what has this word in its name")
    parser.add_argument("--gloo", action="store_true", help="several processes, too")
    parser.add_argument("--hooks", action="store_true", help="trainers whose models have other names, too")
    args = parser.parse_args()
    gpt_check = pathlib.Path(args.weft) / "apps" / "gpt_check"
    if not gpt_check.exists():
        print(f"check.py: {gpt_check} is missing: scripts/build.sh", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    wrong = rights = alarms = named = tried = 0
    with tempfile.TemporaryDirectory() as temporary:
        base = pathlib.Path(args.keep or temporary)
        for name, step in right_steps():
            if args.only not in name:
                continue
            (base / "right").mkdir(parents=True, exist_ok=True)
            for old in (base / "right").iterdir():
                old.unlink()
            report = step.check(gpt_check, base / "right")
            rights += 1
            if not report.get("equal"):
                alarms += 1
                print(f"FALSE ALARM {name}: {show(report)}", flush=True)
        for row in FAULTS:
            if args.only not in row[0]:
                continue
            said = []
            mixture = all(family in MIXTURES for family in row[1])
            for family, bf16 in itertools.product(row[1], (False, True) if mixture else (False,)):
                folder = base / "wrong"
                folder.mkdir(parents=True, exist_ok=True)
                for old in folder.iterdir():
                    old.unlink()
                said.append((f"{family}{' in bf16' if bf16 else ''}", try_fault(row, family, bf16, gpt_check, folder)))
            tried += 1
            named += all(s is None for _, s in said)
            for family, text in said:
                if text:
                    print(f"WRONG {row[0]} of {family} {text}", flush=True)
        if args.gloo:
            several, bad = gloo(args, gpt_check, base)
            rights, alarms = rights + several, alarms + bad
        if args.hooks:
            several, bad = hooks(gpt_check, base)
            rights, alarms = rights + several, alarms + bad
    print(f"{rights} right dumps, {alarms} false alarms; {tried} faults, {named} named with their cause")
    wrong = alarms + tried - named
    return 1 if wrong else 0


def gloo(args, gpt_check, base):
    """Dumps of DDP, FSDP2 and tensor parallelism, by processes of torchrun."""
    count = bad = 0
    for way, ranks in (("ddp", 2), ("fsdp2", 2), ("fsdp2", 4), ("tp", 2), ("tp", 4)):
        for family in ("llama", "qwen3") if way == "tp" and ranks == 2 else ("mha",) if way == "tp" else ("llama", "qwen3", "qwen3_moe"):
            folder = base / f"{way}{ranks}-{family}"
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port",
                       "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
                       str(ROOT / "scripts" / "peers" / "check_ranks.py"), way, family, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            model = base / family
            if not model.exists():
                make(family).save_pretrained(model)
            count += 1
            report = run(gpt_check, model, folder, []) if done.returncode == 0 else \
                {"findings": [], "error": done.stderr[-600:]}
            if not report.get("equal"):
                bad += 1
                print(f"FALSE ALARM {way} {ranks} {family}: {show(report)}", flush=True)
    return count, bad


def hooks(gpt_check, base):
    """Dumps of trainers as they are, by check_hooks.py; torch's norm of a large tensor is 0.015 % off on the CPU, and torchtitan clips by it."""
    ways = {"trainer": [], "wrapped": [], "torchtitan": ["--clip", "1", "--tolerance", "3e-4"]}
    bad = 0
    for way, flags in ways.items():
        folder = base / f"hooks-{way}"
        folder.mkdir(parents=True)
        done = subprocess.run([sys.executable, str(ROOT / "scripts" / "peers" / "check_hooks.py"), way, str(folder)], capture_output=True,
                              text=True, timeout=600, check=False)
        report = run(gpt_check, folder / "model", folder / "dump", flags) if done.returncode == 0 else \
            {"findings": [], "error": done.stderr[-600:]}
        if not report.get("equal"):
            bad += 1
            print(f"FALSE ALARM {way}: {show(report)}", flush=True)
    return len(ways), bad


if __name__ == "__main__":
    sys.exit(main())
