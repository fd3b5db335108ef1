#!/usr/bin/env python3
"""
gpu_choices.py [--runs N] [--seed N] [--jobs N] [--only N] [--plugins DIR] [BUILD] - gpt_train on emulated GPUs, whatever the
flags: runs of a tiny model in which every two values of two choices meet, of families, types, optimizers, adapters,
documents, layouts, graphs, transports and kinds of GPUs.

Each has to have the loss bits and the digest of one rank of an emulated GPU of capability 8.0 that runs op by op, whose losses
are near those of the CPU. Its plan has to say what the run reports, to the byte; what a run refuses, its plan refuses in the same words; a
checkpoint of it continues on one rank, or one of one rank on it, to the same digest. Nothing may hang.

A line for each run that fails, with the command; last come the refusals, each with a number of a run, and counts. Status 1 where
something failed. --only N repeats run N of this seed; --runs N takes the first N of them.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import threading

from context_choices import write_documents
from training_runs import HYBRID, POST_NORM, ROOT, SHOWN, UNGROUPED, write_text

STEPS = 4  # op by op, captured, replayed, replayed again
LIMIT = 400  # seconds for a run of a second or so: it hangs
MODEL = "--vocab-size 257 --lr 3e-3 --eval-interval 0 --threads-per-rank 1 --stall-timeout 120".split()
EXPERTS = "--n-expert 4 --moe-ffn 16"
# What changes a run's numbers.
NUMBERS = {
    "shape": ("--n-head 4 --n-embd 32", "--n-head 4 --n-embd 64 --head-dim 24", "--n-head 6 --n-embd 48", "--n-head 4 --n-embd 40"),
    "length": (16, 24, 40),
    "batch": (4, 6),
    "arch": ("--arch gpt2", "--arch llama", *(f"--arch {name} --n-kv-head 2 {SHOWN.get(name, '')}".strip()
                                              for name in ("llama", "gemma2", "qwen3", "olmo2", "olmo3", "gemma3_text", "glm4", "cohere", "phi", "gpt_neox")),
             "--arch llama --n-kv-head 2 --attention-sinks on --sliding-window 9", "--arch smollm3 --n-kv-head 2 --rope-skip 2",
             f"--arch mixtral {EXPERTS}", f"--arch qwen3_moe --n-kv-head 2 {EXPERTS} --moe-top-k 2 --moe-balance bias",
             f"--arch llama4_text --n-kv-head 2 --sliding-window 9 {EXPERTS} --moe-shared 24",
             f"--arch mixtral {EXPERTS} --moe-expert-capacity-factor 0.7 --moe-balance sequence --moe-sequence-weight 0.1 --moe-z-weight 0.1",
             f"--arch qwen2_moe --n-kv-head 2 {EXPERTS} --moe-top-k 3 --moe-shared 20 --moe-balance global --moe-global-weight 0.1"),
    "documents": ("", "--documents mask"),
    "data": ("documents", "masked"),
    "dtype": ("", "--dtype bf16", "--dtype bf16 --param-dtype fp32", "--param-dtype bf16", "--dtype bf16 --fp32-residual-connection",
              "--dtype bf16 --compute fp32"),
    "dropout": ("", "--dropout 0.1"),
    "optimizer": ("adamw", "adamw8bit", "sgd", "muon", "lion", "lion8bit", "adafactor"),
    "groups": ("", "--param-groups embed:lr=0.5,wd=0;block.*.attn:lr=0.3", "--ema 0.9", "--clip-grad 0.01"),
    "adapter": ("", "", "", "--lora-rank 4", "--lora-rank 3 --lora-targets all-linear --lora-dropout 0.2",
                "--lora-rank 4 --lora-targets all-linear --base-dtype nf4", "--lora-rank 2 --lora-targets q,experts", "--freeze embed,block.0.attn"),
    "loss": ("", "--label-smoothing 0.1 --z-loss 0.01"),
    "exact": ("", "--exact-tp 2", "--exact-tp 1"),
    "cudnn": (0, 91900, 92501),
}
# What does not.
LAYOUT = {
    "capability": (80, 90, 100),
    "cores": ("", "mma", "wgmma", "persistent"),
    "queue": ("", "eager"),
    "tp": (1, 1, 2, 4),
    "dp": (1, 2, 2, 3, 4),
    "pp": ("1", "2", "2 --pp-schedule zb-h1", "2 --pp-schedule interleaved", "2 --pp-schedule dualpipe-v --pp-send split"),
    "cp": ("1", "2 --cp-form heads", "2 --cp-form gather"),
    "ep": ("", "dp", "all"),
    "etp": (False, True),
    "strategy": (*UNGROUPED, *HYBRID),
    "accumulate": ("auto", "local", "reduced", "group:2"),
    "micro": (0, 1, 2),
    "recompute": ("none", "block", "attention", "stage"),
    "sequence": (False, True),
    "beside": (False, True),
    "graph": ("", "on", "on", "off"),
    "transport": ("threads", "nccl", "nccl 1MiB"),
    "devices": (1, 2, 8),
    "units": ("", "--wrap-type attention --prefetch 0", "--wrap-type mlp --prefetch 3", "--reshard-after-forward always", "--reshard-after-forward never"),
    "memory": ("", "--offload optimizer", "--offload activations", "--tiled-mlp 16", "--redundancy buddy"),
    "digest": (True, True, False),
    "checkpoint": ("", "saved", "resumed", "saved --async-save on", "saved --checkpoint full"),
}
CHOICES = NUMBERS | LAYOUT


def mixture(run):
    """Whether a run's model has experts; where that is open, any value will do."""
    return "--n-expert" in run.get("arch", "--n-expert")


def adapted(run):
    """Whether a part of the model alone is trained; where that is open, all is."""
    return run.get("adapter", "") != ""


def possible(run):
    """Whether the values of a run, some of which may be open, are worth a run: most of what is refused is drawn seldom elsewhere."""
    tp, dp, pp, cp = run.get("tp", 2), run.get("dp", 2), run.get("pp", "1"), run.get("cp", "1")
    ranks = run.get("tp", 1) * run.get("dp", 1) * int(pp[0]) * int(cp[0])
    if ranks > 4 or (run.get("strategy", "") in HYBRID and dp not in (2, 4)) or (
            run.get("transport", "threads") != "threads" and (pp != "1" or run.get("devices", 8) < ranks)):
        return False
    if run.get("queue") and run.get("transport", "threads") != "threads":  # an emulated NCCL that runs at once waits for its peers
        return False
    if run.get("sequence") and (cp == "2 --cp-form heads" or "split" in pp):
        return False
    if ("split" in pp and tp == 1) or ("offload activations" in run.get("memory", "") and pp != "1") or (
            adapted(run) and "--param-groups" in run.get("groups", "")) or (run.get("accumulate", "") != "reduced" and dp == 3):
        return False
    if run.get("accumulate") == "group:2" and (run.get("micro", 1) != 1 or run.get("ep") == "dp" or run.get("batch", 8) % (2 * run.get("dp", 1))):
        return False
    if "tiled" in run.get("memory", "") and (run.get("length", 16) != 16 or "lora-dropout" in run.get("adapter", "") or cp != "1"):
        return False
    if (run.get("sequence") or run.get("beside") or run.get("etp")) and tp == 1:
        return False
    if (run.get("ep") or run.get("etp") or "experts" in run.get("adapter", "")) and not mixture(run):
        return False
    if run.get("graph") == "on" and (pp != "1" or "offload" in run.get("memory", "") or run.get("data") == "masked" or run.get("documents")):
        return False
    if run.get("cudnn", 0) and "bf16" not in run.get("dtype", "--dtype bf16"):
        return False
    if run.get("cores") and (run.get("capability", 90) != 90 and run["cores"] != "mma"):
        return False
    if run.get("exact") and run.get("tp", 1) > int(run["exact"][-1]):
        return False
    if "residual" in run.get("dtype", "") and run.get("arch", "a b").split()[1] in POST_NORM:
        return False
    if run.get("batch", 8) // run.get("dp", 1) < (run.get("micro") or 1) or (run.get("micro") == 2 and run.get("batch", 8) % (2 * run.get("dp", 1))):
        return False
    if (run.get("recompute") == "stage" and pp == "1") or "offload activations" in run.get("memory", "") and run.get("recompute", "block") != "block":
        return False
    if (run.get("memory") == "--redundancy buddy" and (dp == 1 or run.get("strategy", "") in ("no_shard", *HYBRID))) or ("bias" in run.get("arch", "") and adapted(run)):
        return False
    return not ("--n-expert" in run.get("arch", "") and ("tiled" in run.get("memory", "") or "mlp" in run.get("units", "")))


def number_flags(run):
    """The flags that change a run's numbers."""
    return [*run["arch"].split(), *run["shape"].split(), "--n-layer", "2", "--seq-len", str(run["length"]), "--global-batch-size", str(run["batch"]),
            *run["documents"].split(), *run["dtype"].split(), *run["dropout"].split(), "--optimizer", run["optimizer"], *run["groups"].split(),
            *run["adapter"].split(), *run["loss"].split(), *run["exact"].split()]


def layout_flags(run):
    """The flags that do not."""
    tp, dp, cp = run["tp"], run["dp"], int(run["cp"][0])
    flags = ["--tp", tp, "--dp", dp, "--pp", *run["pp"].split(), "--cp", *run["cp"].split()[:3 if cp > 1 else 1], "--strategy", run["strategy"],
             "--accumulate", run["accumulate"], "--recompute", run["recompute"], *run["units"].split(), *run["memory"].split()]
    if run["strategy"] in HYBRID:
        flags += ["--dp-replicate", 2]
    if run["micro"]:
        flags += ["--micro-batch-size", run["micro"]]
    elif run["pp"] != "1":
        flags += ["--micro-batch-size", 1]
    if run["etp"]:
        flags += ["--etp", tp]
    if run["ep"]:
        flags += ["--ep", (1 if run["etp"] else tp) * dp if run["ep"] == "dp" else (1 if run["etp"] else tp)]
    if run["sequence"]:
        flags += ["--sequence-parallel"]
    if run["beside"]:
        flags += ["--tp-comm-overlap", "on", "--tp-comm-block", "1"]
    if run["graph"]:
        flags += ["--cuda-graph", run["graph"]]
    return [str(flag) for flag in flags]


def environment_of(run):
    """The GPUs that a run finds, in the environment."""
    found = {"WEFT_EMULATOR_CAPABILITY": str(run["capability"]), "WEFT_EMULATOR_DEVICES": str(run["devices"])}
    if run["cores"]:
        found["WEFT_TENSOR_CORES"] = run["cores"]
    if run["queue"]:
        found["WEFT_EMULATOR"] = run["queue"]
    if run["cudnn"]:
        found["WEFT_EMULATOR_CUDNN"] = str(run["cudnn"])
    if " " in run["transport"]:
        found["WEFT_NCCL_WINDOW"] = run["transport"].split()[1]
    return found


class Failed(Exception):
    """What is wrong with a run, with the command."""


class Refused(Exception):
    """What a run says that it does not do."""


def refusal(text):
    """What an error says, without the rank and the moment that a run adds."""
    line = (text.strip().splitlines() or [""])[-1]
    return re.sub(r"; it was on .*|; recorder_diff .*", "", re.sub(r"^gpt_train: (rank \d+(: |, ))?", "", line))


class Hunt:
    """Runs, in a folder."""
    def __init__(self, options, folder):
        self.program, self.plugins, self.folder = options.build / "apps/gpt_train", options.plugins, pathlib.Path(folder)
        write_text(self.folder / "text")
        self.data = {"documents": write_documents(self.folder / "text", self.folder / "documents.idx"),
                     "masked": write_documents(self.folder / "text", self.folder / "masked.idx")}
        tokens = (self.folder / "text").read_bytes()
        source = random.Random(7)
        (self.folder / "mask").write_bytes(bytes(source.random() < .6 for _ in tokens))
        write_documents(self.folder / "mask", self.folder / "masked.loss.idx")
        self.known, self.lock = {}, threading.Lock()
        self.counts = collections.Counter()

    def call(self, where, flags, device="cuda", **environment):
        """Its standard error; raises Refused or Failed."""
        where.mkdir(parents=True, exist_ok=True)
        command = [str(self.program), "--device", device, *flags]
        shown = shlex.join([*(f"{k}={v}" for k, v in environment.items()), *command])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=where, errors="replace",
                                  env=dict(os.environ, WEFT_PLUGINS=str(self.plugins), **environment))
        except subprocess.TimeoutExpired as error:
            raise Failed(f"no end after {LIMIT} s: {shown}") from error
        if done.returncode in (1, 2) and done.stderr.count("\ngpt_train: ") + done.stderr.startswith("gpt_train: ") >= 1 and refusal(done.stderr):
            raise Refused(refusal(done.stderr))
        if done.returncode:
            raise Failed(f"status {done.returncode}, '{done.stderr.strip()[-300:]}': {shown}")
        return done.stderr, shown

    def train(self, run, where, flags, environment, device="cuda"):
        """(loss bits, norm, digest) of each step, by number, and what was said."""
        log = where / "log"
        log.unlink(missing_ok=True)
        said, shown = self.call(where, ["--data", str(self.data[run["data"]]), *MODEL, *flags, "--steps", str(STEPS), "--log-jsonl", "log"], device, **environment)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        return {row["step"]: (row["loss_bits"], row.get("norm"), row.get("digest"), row["loss"]) for row in rows if "step" in row}, said, shown

    def reference(self, run):
        """The steps of one rank of capability 8.0, op by op, with a checkpoint after the second."""
        kind = (tuple(number_flags(run)), run["data"], run["cudnn"])
        with self.lock:
            future = self.known.get(kind)
            mine = future is None
            if mine:
                future = self.known[kind] = concurrent.futures.Future()
                number = len(self.known)
        if mine:
            try:
                where = self.folder / f"one{number}"
                environment = {"WEFT_EMULATOR_CAPABILITY": "80"} | ({"WEFT_EMULATOR_CUDNN": str(run["cudnn"])} if run["cudnn"] else {})
                flags = number_flags(run)
                steps, _, shown = self.train(run, where, [*flags, "--cuda-graph", "off", "--digest", "--save", "saved", "--save-interval", "2"], environment)
                cpu, _, _ = self.train(run, where / "cpu", flags, {}, "cpu")
                bound = 2e-2 if "bf16" in run["dtype"] else 2e-3
                for number, row in steps.items():
                    if None not in (row[3], cpu[number][3]) and abs(row[3] - cpu[number][3]) > bound * abs(cpu[number][3]):
                        raise Failed(f"step {number}: loss {row[3]}, of the CPU {cpu[number][3]}: {shown}")
                future.set_result((steps, where, environment))
            except BaseException as error:  # pylint: disable=broad-except
                future.set_exception(error)
        return future.result()

    def compare(self, steps, wanted, shown, digests):
        """Raises Failed where steps are not those that are wanted."""
        for number, row in steps.items():
            mine, other = row[:3], wanted[number][:3]
            if mine[:2] != other[:2] or (digests and mine[2] != other[2]):
                raise Failed(f"step {number}: loss bits, norm, digest {mine} instead of {other}: {shown}")

    def try_run(self, number, run):
        """What is wrong with a run, or None; refusals are words."""
        where = self.folder / str(number)
        environment, flags = environment_of(run), [*number_flags(run), *layout_flags(run)]
        ranks = run["tp"] * run["dp"] * int(run["pp"][0]) * int(run["cp"][0])
        digest, plan = ["--digest"] if run["digest"] else [], None
        transport = ["--transport", run["transport"].split()[0]] if ranks > 1 else []
        seen = ["--rank", str(number % ranks)]
        data = ["--data", str(self.data[run["data"]])]
        try:
            try:
                _, shown = self.call(where / "plan", [*data, *MODEL, *flags, *digest, "--steps", str(STEPS), "--plan", "--json", "plan.json", *seen], **environment)
                plan = json.loads((where / "plan/plan.json").read_text())
            except Refused as refused:
                plan = str(refused)
            more = ["--report-json", "ran.json", *seen]
            if run["checkpoint"].startswith("saved"):
                more += ["--save", "saved", "--save-interval", "2", *run["checkpoint"].split()[1:]]
            steps, said, shown = self.train(run, where, [*flags, *transport, *digest, *more], environment)
        except Refused as refused:
            self.counts["refused"] += 1
            if plan != str(refused):
                return f"the run is refused: '{refused}'; the plan: {plan if isinstance(plan, str) else 'ok'}: {shlex.join(flags)} {environment}", None
            return None, str(refused)
        if isinstance(plan, str):
            return f"runs, but its plan is refused: '{plan}': {shown}", None
        wanted, one, single = self.reference(run)
        exact = "not layout-exact" not in said
        self.counts["compared" if exact else "not layout-exact"] += 1
        if len(steps) != STEPS:
            return f"{len(steps)} rows of steps: {shown}", None
        if exact:
            self.compare(steps, wanted, shown, run["digest"])
        ran = json.loads((where / "ran.json").read_text())
        del plan["plan"]
        others = [key for key in sorted(plan.keys() | ran.keys()) if plan.get(key) != ran.get(key)]
        if others:
            return f"the plan has other {', '.join(f'{key}: {difference(plan.get(key), ran.get(key))}' for key in others)}: {shown}", None
        if exact and run["checkpoint"]:
            if run["checkpoint"] == "resumed":
                steps, _, shown = self.train(run, where / "on", [*flags, *transport, *digest, "--resume", str(one / "saved/step-00000002")], environment)
            else:
                steps, _, shown = self.train(run, where / "on", [*number_flags(run), "--digest", "--resume", str(where / "saved/step-00000002")], single)
            self.counts["continued"] += 1
            if sorted(steps) != [3, 4]:
                return f"continued with steps {sorted(steps)}: {shown}", None
            self.compare(steps, wanted, shown, run["digest"] or run["checkpoint"] != "resumed")
        return None, None

    def tried(self, number, run):
        """(problem, refusal) of a run, whatever happens in it."""
        try:
            return self.try_run(number, run)
        except Failed as failed:
            return str(failed), None
        except Refused as refused:
            return f"refused where it was not before: {refused}: {shlex.join([*number_flags(run), *layout_flags(run)])} {environment_of(run)}", None


def difference(one, other):
    """What differs between two values of JSON, shortly."""
    if isinstance(one, list) and isinstance(other, list):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]
        return "{" + ", ".join(f"{key}: {difference(one.get(key), other.get(key))}" for key in keys) + "}"
    return f"{json.dumps(one)[:200]} and {json.dumps(other)[:200]}"


def assembled(source):
    """A run by chance, or None where the values that it has leave no other."""
    run, names = {}, list(CHOICES)
    source.shuffle(names)
    for name in names:
        fitting = [value for value in CHOICES[name] if possible({**run, name: value})]
        if not fitting:
            return None
        run[name] = source.choice(fitting)
    return run


def draw(seed, count):
    """Runs by chance, each the one of several of which most pairs of values have met in none before."""
    source, met, runs = random.Random(seed), set(), []
    while len(runs) < count:
        candidates = [run for run in (assembled(source) for _ in range(6)) if run]
        if not candidates:
            continue
        pairs = [(set(itertools.combinations(sorted((name, str(value)) for name, value in run.items()), 2)), run) for run in candidates]
        new, run = max(pairs, key=lambda pair: len(pair[0] - met))
        met |= new
        runs.append(run)
    return runs


def main():
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int)
    parser.add_argument("--plugins", type=pathlib.Path, help="default: BUILD/tests/cuda")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what runs write, which stays")
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.plugins = (options.plugins or options.build / "tests/cuda").resolve()
    runs = dict(enumerate(draw(options.seed, options.runs)))
    if options.only is not None:
        runs = {options.only: runs[options.only]}
    wrong, refused = 0, {}
    with tempfile.TemporaryDirectory(prefix="weft-gpu-choices-") as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            folder = options.keep.resolve()
        hunt = Hunt(options, folder)
        for (number, run), (problem, words) in zip(runs.items(), pool.map(hunt.tried, runs, runs.values())):
            if problem:
                wrong += 1
                print(f"run {number}: {problem}", flush=True)
            if words:
                refused.setdefault(re.sub(r"\d+", "N", words), []).append(number)
    for words, numbers in sorted(refused.items(), key=lambda item: -len(item[1])):
        print(f"{len(numbers)} refused, as run {numbers[0]}: {words}")
    print(f"{len(runs)} runs, {wrong} wrong: {', '.join(f'{count} {what}' for what, count in sorted(hunt.counts.items()))}; "
          f"{len(hunt.known)} kinds of one rank")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
