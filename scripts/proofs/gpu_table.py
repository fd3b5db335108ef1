#!/usr/bin/env python3
"""
gpu_table.py [BUILD] - the table of a step by kind of work, Weft's row beside torch.compile's, for gpu_check.py: GPT-2 124M and
1.5B, Llama 1B and 8B (as many layers as fit), 524,288 tokens a step by accumulation; and what several GPUs make of it, where
there are several.

As a program it needs no GPU: each model's flags are those of a plan with as many parameters as the table counts, and what is read of a
profile is all that it has.
"""
import ctypes
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS = 1 << 19  # of a step
FITS = 0.9  # the part of the memory that a plan may take; the context of CUDA and its libraries have the rest

GPT2 = {"arch": "gpt2", "vocabulary": 50304, "length": 1024, "tied": True}
LLAMA = {"arch": "llama", "length": 2048}
# name: sizes, and the sequences of a micro-batch.
MODELS = {
    "GPT-2 124M": ({**GPT2, "layers": 12, "heads": 12, "kv_heads": 12, "width": 768, "ffn": 3072}, 32),
    "GPT-2 1.5B": ({**GPT2, "layers": 48, "heads": 25, "kv_heads": 25, "width": 1600, "ffn": 6400}, 8),
    "Llama 3.2 1B": ({**LLAMA, "layers": 16, "heads": 32, "kv_heads": 8, "width": 2048, "ffn": 8192, "vocabulary": 128256,
                      "tied": True}, 4),
    "Llama 3.1 8B": ({**LLAMA, "layers": 32, "heads": 32, "kv_heads": 8, "width": 4096, "ffn": 14336, "vocabulary": 128256,
                      "tied": False}, 2),
}

# Steps without a peer's beside them, of one model: what was added to it -> flags.
ADDED_TO = "Llama 3.2 1B"
ADDED = {"AdamW in 8 bits": ["--optimizer", "adamw8bit"], "Lion in 8 bits": ["--optimizer", "lion8bit"], "Muon": ["--optimizer", "muon"],
         "LoRA": ["--lora-rank", 16, "--lora-targets", "all-linear"],
         "LoRA, a base of 4 bits": ["--lora-rank", 16, "--lora-targets", "all-linear", "--base-dtype", "nf4"],
         "8 experts of a quarter": ["--arch", "mixtral", "--n-expert", 8, "--moe-ffn", 2048],
         "8 experts with a capacity": ["--arch", "mixtral", "--n-expert", 8, "--moe-ffn", 2048, "--moe-expert-capacity-factor", 1.25],
         "sinks": ["--attention-sinks", "on"]}
WAYS = {"exact": [], "exact, tp 1": ["--exact-tp", 1], "exact off": ["--exact", "off"]}
# Kinds of work by the names of ops in a profile, the first that fits; those of gpu_torch.py.
KINDS = [("products", r"^(linear|matmul|experts)"), ("attention", r"^(attention|rope|cache)"), ("updates", r"^(adamw|sgd|update_elements|unit_norm|gradient norm)"),
         ("loss", r"^(logit|cross_entropy)"), ("norms and the rest", r"")]


def block_parameters(c):
    """Of a block's matrices."""
    kv = c["width"] * c["kv_heads"] // c["heads"]
    return c["width"] * (2 * c["width"] + 2 * kv) + (3 if c["arch"] == "llama" else 2) * c["width"] * c["ffn"]


def parameters(c):
    """Of all matrices; tied tables count once."""
    return c["layers"] * block_parameters(c) + c["vocabulary"] * c["width"] * (1 if c["tied"] else 2)


def work_of_token(c):
    """Floating-point operations: a token looks at half of the others, forward and backward."""
    products = c["layers"] * block_parameters(c) + c["vocabulary"] * c["width"]
    return 6 * products + 6 * c["layers"] * c["length"] * c["width"]


def cut(c, memory, peak_of):
    """The same with as many layers as `memory` bytes have room for, at least one; 0: unknown, all of them. `peak_of` has the
    bytes of a model at the peak: in exact mode a parameter has open sums of gradients, the more the more micro-steps there are."""
    least, most = 1, c["layers"]
    while memory and least < most:
        layers = (least + most + 1) // 2
        if peak_of({**c, "layers": layers}) <= FITS * memory:
            least = layers
        else:
            most = layers - 1
    return {**c, "layers": least if memory else most}


def flags_of(c, micro, tokens=TOKENS):
    """gpt_train's."""
    flags = {"--arch": c["arch"], "--n-layer": c["layers"], "--n-head": c["heads"], "--n-kv-head": c["kv_heads"], "--n-embd": c["width"],
             "--ffn": c["ffn"], "--vocab-size": c["vocabulary"], "--seq-len": c["length"], "--tie-embeddings": "on" if c["tied"] else "off",
             "--global-batch-size": tokens // c["length"], "--micro-batch-size": micro, "--dtype": "bf16"}
    return [word for pair in flags.items() for word in pair]


def kinds_of(profile):
    """Milliseconds by kind of work, of what --profile prints of a step."""
    kinds = dict.fromkeys((kind for kind, _ in KINDS), 0.0)
    for line in profile.splitlines():
        row = re.match(r"  (\S+(?: \S+)*) .*?\s(\d+)\s+([0-9.]+)\s+[0-9.]+ %", line)
        name = row and re.split(r"\s{2,}", row[1])[0]
        if row and not name.startswith(("all ", "launches ", "wait ")):
            kinds[next(kind for kind, pattern in KINDS if re.search(pattern, name))] += float(row[3])
    return kinds


def memory_of_gpu():
    """Bytes of the first; 0: unknown."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    size, device = ctypes.c_size_t(0), ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDeviceTotalMem_v2(ctypes.byref(size), device):
        return 0
    return size.value


def reported(kinds, ms):
    """A row of the table."""
    gaps = ms - sum(kinds.values())
    return ", ".join(f"{kind} {time:.1f}" for kind, time in {**kinds, "gaps": gaps, "sum": ms}.items()) + " ms"


class Table:
    def __init__(self, check, gpus, models, added):
        self.check, self.gpus, self.memory, self.what_is_added = check, gpus, memory_of_gpu(), added
        self.models = {name: MODELS[name] for name in models}

    def planned(self, c, micro):
        """Bytes at the peak of a step in exact mode, which takes most."""
        plan = self.check.work / "plan"
        self.check.run(self.check.command(*flags_of(c, micro), "--plan", "--json", plan, steps=6))
        return json.loads(plan.read_text())["memory"]["peak"]

    def fitting(self, c, micro):
        return cut(c, self.memory, lambda fits: self.planned(fits, micro))

    def weft(self, name, c, micro, way, more, peak):
        """Tokens/s, and its rows."""
        flags = [*flags_of(c, micro), *more]
        graph = [] if "--tp" in more or "--dp" in more else ["--cuda-graph", "on"]
        rows = self.check.train(*flags, *graph, steps=6, seconds=400)
        rate = sorted(row["tokens_per_s"] for row in rows[3:])[1]
        used = 100 * rate * work_of_token(c) / peak
        self.check.row(9 if " GPUs" in name else 8, f"{name}, {way}", f"{rate:,.0f} tokens/s, {used:.1f} % of {peak / 1e12:.0f} TFLOP/s", "measured")
        return rate

    def kinds(self, name, c, micro, way, more, rate):
        """Times of kernels, one after the other, of a step op by op; the step's is that of the rate."""
        said = self.check.run(self.check.command(*flags_of(c, micro), *more, "--cuda-graph", "off", "--profile", 1000,
                                                   "--trace-steps", "3", steps=3, log=None), 400)
        self.check.row(8, f"{name}, {way}, by kind", reported(kinds_of(said), 1e3 * TOKENS / rate), "measured")

    def peer(self, name, c, micro, rates):
        """torch.compile's rows, and the ratio of each of ours."""
        job = {**c, "micro": micro, "micros": TOKENS // c["length"] // micro, "steps": 3, "kernels": True}
        out = self.check.run([sys.executable, ROOT / "scripts/peers/gpu_torch.py", json.dumps(job)], 600)
        if "no torch" in out:
            self.check.row(8, f"{name}, torch.compile", "-", "not run: " + out.strip())
            return
        theirs = json.loads(out.splitlines()[-1])
        self.check.row(8, f"{name}, torch.compile {theirs['version']}", f"{theirs['tokens_per_s']:,.0f} tokens/s", "measured")
        self.check.row(8, f"{name}, torch.compile, by kind", reported(theirs["kernels"], theirs["ms"]), "measured")
        for way, rate in rates.items():
            ratio, least = rate / theirs["tokens_per_s"], 1.1 if way == "exact off" else 1.05
            self.check.judge(8, f"{name}, {way}, of torch.compile", f"{ratio:.2f} (at least {least})", ratio >= least)

    def model(self, name, c, micro, peak):
        c, rates = self.fitting(c, micro), {}
        name += f", {c['layers']} layers" if c["layers"] < MODELS[name][0]["layers"] else ""
        for way, more in WAYS.items():
            def measure(way=way, more=more):
                rates[way] = self.weft(name, c, micro, way, more, peak)
                self.kinds(name, c, micro, way, more, rates[way])
            self.check.attempt(8, f"{name}, {way}", measure)
        if rates:
            self.check.attempt(8, f"{name}, torch.compile", lambda: self.peer(name, c, micro, rates))

    def added(self, what):
        """What was added to a model: a step's rate, and its kinds of work. Its share of the peak would be of other work, and is not said."""
        (c, micro), flags = MODELS[ADDED_TO], ADDED[what]
        c = self.fitting(c, micro)
        rows = self.check.train(*flags_of(c, micro), *flags, steps=6, seconds=400)
        rate = sorted(row["tokens_per_s"] for row in rows[3:])[1]
        self.check.row(8, f"{ADDED_TO}, {what}", f"{rate:,.0f} tokens/s", "measured")
        self.kinds(ADDED_TO, c, micro, what, flags, rate)

    @functools.cached_property
    def digest_of_one(self):
        return self.check.digest()

    def same(self, layout, what):
        one, got = self.digest_of_one, self.check.digest(*layout)
        self.check.judge(9, what, f"digest {got}, one GPU {one}", got == one)

    def several(self, n, peak):
        """One digest on n GPUs, and rates."""
        name = "Llama 3.2 1B"
        c, micro = MODELS[name]
        for layout in ([how, n, "--transport", transport] for how in ("--tp", "--dp") for transport in ("threads", "nccl")):
            way = f"{layout[0]} {n}, {layout[3]}"
            what = f"{n} GPUs, {way}"
            self.check.attempt(9, what, lambda layout=layout, what=what: self.same(layout, what))
            self.check.attempt(9, f"{name} on {what}", lambda layout=layout, way=way: self.weft(
                f"{name} on {n} GPUs", self.fitting(c, micro), micro, way, layout, n * peak))

    def fill(self, peak):
        for name, (c, micro) in self.models.items():
            self.check.attempt(8, name, lambda name=name, c=c, micro=micro: self.model(name, c, micro, peak))
        for what in self.what_is_added:
            self.check.attempt(8, f"{ADDED_TO}, {what}", lambda what=what: self.added(what))
        for n in (2, 4, 8):
            if n > self.gpus:
                self.check.row(9, f"{n} GPUs", "-", f"not run: {self.gpus} GPU{'s' * (self.gpus != 1)} here")
            else:
                self.several(n, peak)


def try_added(train, plugins, what):
    """A fault, or nothing: gpt_train plans the model with what was added to it."""
    c, micro = MODELS[ADDED_TO]
    said = subprocess.run([str(word) for word in (train, *flags_of(c, micro), *ADDED[what], "--device", "cuda", "--plan")], text=True,
                          capture_output=True, env={"WEFT_PLUGINS": str(plugins)})
    if said.returncode:
        yield f"{what}: {said.stderr.strip()[:200]}"


def try_plan(train, plugins, name, c, micro):
    """A fault, or nothing: gpt_train plans the model, with the parameters that are counted here."""
    said = subprocess.run([str(word) for word in (train, *flags_of(c, micro), "--device", "cuda", "--plan")], text=True,
                          capture_output=True, env={"WEFT_PLUGINS": str(plugins)})
    units = re.findall(r"^  (?:root|block) +(\d+) +(\d+) ", said.stdout, re.M)
    planned = sum(int(times) * int(each) for times, each in units)
    if said.returncode or abs(planned / parameters(c) - 1) > 0.01:
        yield f"{name}: {planned:,} parameters of {parameters(c):,}: {said.stderr.strip()[:200]}"


def try_cut(train, plugins):
    """A fault, or nothing: what is left of a model fits by its plan, and one layer more would not."""
    (c, micro), memory = MODELS["Llama 3.1 8B"], 80 << 30
    with tempfile.TemporaryDirectory() as folder:
        def peak_of(fits):
            subprocess.run([str(word) for word in (train, *flags_of(fits, micro), "--device", "cuda", "--plan", "--json", f"{folder}/plan")],
                           capture_output=True, check=True, env={"WEFT_PLUGINS": str(plugins)})
            return json.loads(pathlib.Path(folder, "plan").read_text())["memory"]["peak"]
        fits = cut(c, memory, peak_of)
        bigger = {**fits, "layers": fits["layers"] + 1}
        if fits["layers"] == 1 or not peak_of(fits) <= FITS * memory < peak_of(bigger):
            yield f"on 80 GiB {fits['layers']} layers"


def try_profile(train):
    """A fault, or nothing: kinds add up to what the profile has of ops and of the norm."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_text("On it goes.\n" * 400)
        said = subprocess.run([str(word) for word in (
            train, "--data", text, "--device", "cpu", "--arch", "llama", "--n-layer", 1, "--n-embd", 32, "--n-head", 2, "--seq-len", 16,
            "--global-batch-size", 2, "--steps", 2, "--profile", 1000, "--trace-steps", 2)], text=True, capture_output=True).stdout
    kinds = kinds_of(said)
    whole = sum(float(re.search(rf"^  {row} .*?([0-9.]+) +[0-9.]+ %", said, re.M)[1]) for row in ("all ops", "gradient norm"))
    if abs(sum(kinds.values()) - whole) > 0.1 or min(kinds.values()) <= 0:
        yield f"kinds {kinds} of {whole} ms"


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    train, plugins = build / "apps/gpt_train", build / "tests/cuda"
    if not (plugins / "libweft_cuda.so").exists():
        print("gpu_table: there is no plugin for the emulated device")
        return 77
    faults = [fault for name, (c, micro) in MODELS.items() for fault in try_plan(train, plugins, name, c, micro)]
    faults += [fault for what in ADDED for fault in try_added(train, plugins, what)]
    faults += try_profile(train)
    faults += try_cut(train, plugins)
    print("\n".join(faults) or f"{len(MODELS)} models are planned as the table counts them")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
