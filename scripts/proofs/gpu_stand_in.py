#!/usr/bin/env python3
"""
gpu_stand_in.py [BUILD] [--gpus N] [--only PART] [--quick] - runs the speeds and the table of gpu_check.py without a GPU, so that no fault
of theirs waits for one: on N emulated GPUs (2; --only: one part; --quick: of the table's models one, and a quarter of what was added to
one), with all flags but those of sizes, which are made small on their way to the programs, and beside modules torch, transformers
and vllm and a llama-batched-bench that answer and compute nothing. Its figures mean nothing. Status 1 where a line of the table is
missing, was not run, or fails by anything but a bound of speed.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import gpu_table

HERE = pathlib.Path(__file__).resolve()
# Flags of sizes, and what they become.
SMALL = {"gpt_train": {"--n-layer": 1, "--n-head": 2, "--n-kv-head": 2, "--n-embd": 16, "--ffn": 32, "--vocab-size": 256, "--seq-len": 24, "--lora-rank": 2, "--moe-ffn": 16,
                       "--global-batch-size": 2, "--micro-batch-size": 1},
         "gpt_generate": {"--batch-size": 4}, "bench": {"--shapes": "32x16"}, "gpt_export": {}}
QUICK = ("Llama 3.1 8B",)
QUICK_ADDED = ("AdamW in 8 bits", "LoRA, a base of 4 bits")
LENGTHS = {"32": 2, "160": 3}  # of generated texts
TORCH = '''
import sys
from types import SimpleNamespace
from unittest import mock


class Module:
    def register_buffer(self, *values, **options):
        pass

    def parameters(self):
        return []


torch = mock.MagicMock()
torch.__version__ = "stand-in"
torch.nn.Module = Module
torch.profiler.profile().__enter__().key_averages.return_value = [
    SimpleNamespace(key=key, self_device_time_total=1000.0) for key in ("nvjet_tst", "flash_fwd", "triton_poi_fused", "Memcpy DtoD")]
sys.modules.update({"torch": torch, "torch.nn": torch.nn})
'''
MODULE = '''
import sys
from unittest import mock

sys.modules["{}"] = mock.MagicMock()
'''
# Answers for the file that it is given, as llama.cpp does on its standard error.
BATCHED_BENCH = '''
import pathlib
import sys

assert pathlib.Path(sys.argv[sys.argv.index("-m") + 1]).read_bytes()[:4] == b"GGUF"
print('{"n_kv_max": 160, "pl": 1, "t_tg": 1.0, "speed_tg": 128.0}', file=sys.stderr)
'''


def small(program, build, words):
    """Runs a program with small sizes in place of those that it was given; a plan as it was asked for."""
    if "--model" in words:
        at = words.index("--model")
        words[at:at + 2] = ["--arch", "llama", "--n-layer", "1", "--n-head", "2", "--n-embd", "16"]
    changed = SMALL[program] if "--plan" not in words else {}
    for at, word in enumerate(words[:-1]):
        if word == "--max-new-tokens":
            words[at + 1] = str(LENGTHS.get(words[at + 1], 2))
        words[at + 1] = str(changed.get(word, words[at + 1]))
    command = [os.path.join(build, "apps", program), *words, *(["--quick"] if words[:1] in (["memory"], ["gemm"], ["experts"]) else [])]
    if words[:1] != ["attention"]:
        os.execv(command[0], command)
    said = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    print("\n".join(re.sub(r'"seq":\d+', f'"seq":{seq}', said.strip()) for seq in (8192, 16384, 32768)))


def prepare(folder, build):
    """Programs and modules that stand between gpu_check.py and what it starts."""
    for program in SMALL:
        path = folder / "apps" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable}\nimport sys\nsys.path[:0] = [{str(HERE.parent)!r}]\nimport gpu_stand_in\n"
                        f"gpu_stand_in.small({program!r}, {str(build)!r}, sys.argv[1:])\n")
        path.chmod(0o755)
    bench = folder / "llama.cpp/build/bin/llama-batched-bench"
    bench.parent.mkdir(parents=True)
    bench.write_text(f"#!{sys.executable}\n{BATCHED_BENCH}")
    bench.chmod(0o755)
    (folder / "python").mkdir()
    (folder / "python/torch.py").write_text(TORCH)
    for module in ("transformers", "vllm"):
        (folder / f"python/{module}.py").write_text(MODULE.format(module))


def table(gpus, models, added):
    """Beginnings of lines."""
    for name in models:
        for way in [*gpu_table.WAYS, "torch.compile"]:
            yield from (f"8 {name}, {way}: ", f"8 {name}, {way}, by kind: ") if way in gpu_table.WAYS else (
                f"8 {name}, {way} stand-in: ", f"8 {name}, {way}, by kind: ")
        yield from (f"8 {name}, {way}, of torch.compile: " for way in gpu_table.WAYS)
    for what in added:
        yield from (f"8 {gpu_table.ADDED_TO}, {what}: ", f"8 {gpu_table.ADDED_TO}, {what}, by kind: ")
    for n in (2, 4, 8):
        ways = [f"{how} {n}, {transport}: " for how in ("--tp", "--dp") for transport in ("threads", "nccl")]
        yield from [f"9 {n} GPUs: -: not run: {gpus} GPUs here"] if n > gpus else [
            *(f"9 {n} GPUs, {way}digest " for way in ways), *(f"9 Llama 3.2 1B on {n} GPUs, {way}" for way in ways)]


def speeds():
    yield from (f"7 generation, {model}, {dtype}, texts at once: {texts}, {what}: " for model in ("smollm2-135m", "llama-3.2-1b")
                for dtype in ("fp32", "bf16") for texts in (1, 32)
                for what in ("linears in 4 bits", "beside transformers", "beside llama.cpp", "beside vLLM"))
    yield from (f"5 GPT-2 124M in {dtype}, {way}, against PyTorch stand-in" for dtype, way in
                (("fp32", "exact"), ("fp32", "exact off"), ("tf32", "exact off")))
    yield from (f"5 product 64x96x80 {form}, chunks: {chunks}, by mma: " for form in ("NT", "NN") for chunks in (1, 8))
    yield from (f"5 experts {way}, {dtype}, " for way in ("forward", "backward") for dtype in ("f32", "bf16"))
    yield from (f"5 attention {way}, {length} tokens{by}: " for way in ("forward", "backward") for length in (8192, 16384, 32768)
                for by in ("", ", Weft's kernels", ", Weft's kernels by mma.sync"))


def faults_of(lines, gpus, models, added, parts):
    wanted = [*(table(gpus, models, added) if "table" in parts else ()), *(speeds() if "speeds" in parts else ())]
    for line in lines:
        bound = "(at least " in line and line.endswith(": FAIL")
        late = re.fullmatch(rf"9 \d GPUs: -: not run: {gpus} GPUs here", line)
        if not bound and not late and not re.search(r": (ok|measured|measured: this is .*)$", line):
            yield line
    yield from (f"no line {start!r}" for start in wanted if not any(line.startswith(start) for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--only", choices=("speeds", "table"))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    parts = [options.only] if options.only else ["speeds", "table"]
    build = pathlib.Path(options.build).resolve()
    plugins, lines = build / "tests/cuda", []
    models = [name for name in gpu_table.MODELS if not options.quick or name in QUICK]
    added = QUICK_ADDED if options.quick else tuple(gpu_table.ADDED)
    if not all((plugins / f"libweft_{name}.so").exists() for name in ("cuda", "nccl")):
        print("gpu_stand_in: there are no plugins for the emulated device")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder, build)
        for part in parts:
            done = subprocess.run([sys.executable, HERE.parent / "gpu_check.py", "--build", folder, "--plugins", plugins, "--minutes", "60",
                                   "--gpus", str(options.gpus), "--only", part,
                                   *(word for name in models for word in ("--model", name)),
                                   *(word for what in added for word in ("--added", what))], text=True, capture_output=True,
                                  env={**os.environ, "PYTHONPATH": str(folder / "python"), "LLAMA_CPP": str(folder / "llama.cpp"),
                                       "WEFT_EMULATOR_DEVICES": str(options.gpus)})
            lines += [line[2:] for line in done.stderr.splitlines() if re.match(r"  \d ", line)]
            if done.returncode not in (0, 1) or "Traceback" in done.stderr:
                print(done.stderr[-2000:])
                return 1
    faults = list(faults_of(lines, options.gpus, models, added, parts))
    print("\n".join(faults) or f"{len(lines)} lines, all that there should be")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
