#!/usr/bin/env python3
"""
data_formats.py [--gpt-train FILE] [--llmc DIR] [--nanogpt DIR] - trains on files that other projects' own writers
made of the same ids, and compares the digests of every step: Megatron's IndexedDatasetBuilder (megatron-core
from PyPI), llm.c's dev/data/data_common.py and nanoGPT's data/shakespeare_char/prepare.py, of clones that DIR
names; a project without its clone is left out, which is said. With --pair PREFIX Megatron's own reader reads
PREFIX.bin and PREFIX.idx, whatever wrote them, and prints what it finds.

By hand: it makes a Python environment with numpy in build-data-formats, for which it needs PyPI.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / "build-data-formats"
MEGATRON = "megatron-core==0.8.0"
CHARACTERS = [chr(c) for c in range(32, 127)]

# What writes a file in the environment with numpy. Megatron's module wants of torch a base class and a name.
STUBS = """
import importlib.util, sys, types
def stub(name, **values):
    module = types.ModuleType(name)
    module.__dict__.update(values)
    sys.modules[name] = module
    return module
dataset = stub("torch.utils.data", Dataset=object)
stub("torch", utils=stub("torch.utils", data=dataset), Tensor=object)
for name in ("megatron", "megatron.core", "megatron.core.datasets", "requests", "tqdm"):
    stub(name, tqdm=None)
stub("megatron.core.utils", log_single_rank=lambda *a: None)
stub("megatron.core.datasets.utils_s3", S3Config=object, is_s3_path=lambda p: False,
     maybe_download_file=None, object_exists=None, parse_s3_path=None)
def load(path):
    spec = importlib.util.spec_from_file_location("foreign", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
import json, numpy
"""
WRITE_MEGATRON = STUBS + """
module, ids, out, dtype = load(sys.argv[1]), json.load(open(sys.argv[2])), sys.argv[3], sys.argv[4]
builder = module.IndexedDatasetBuilder(out + ".bin", dtype=getattr(numpy, dtype))
for at in range(0, len(ids), 700):  # documents of two sequences, the last one maybe of one
    lengths = [len(ids[at:at + 300]), len(ids[at + 300:at + 700])]
    builder.add_document(ids[at:at + 700], [n for n in lengths if n])
builder.finalize(out + ".idx")
"""
READ_MEGATRON = STUBS + """
module = load(sys.argv[1])
data = module.IndexedDataset(sys.argv[2])
tokens = sum(len(data[i]) for i in range(len(data)))
print(f"{sys.argv[2]}: {len(data)} sequences, {len(data.document_indices) - 1} documents, {tokens} tokens, "
      f"sum of ids {sum(int(data[i].astype(numpy.int64).sum()) for i in range(len(data)))}")
"""
WRITE_LLMC = STUBS + """
load(sys.argv[1]).write_datafile(sys.argv[3], json.load(open(sys.argv[2])), sys.argv[4])
"""


def environment():
    """Its python, and the module of Megatron."""
    python = VENV / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "numpy"], check=True)
    module = VENV / "megatron" / "core" / "datasets" / "indexed_dataset.py"
    if not module.exists():
        subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--python-version", "3.11",
                        "--only-binary", ":all:", "--dest", VENV, MEGATRON], check=True)
        with zipfile.ZipFile(next(VENV.glob("megatron_core-*.whl"))) as wheel:
            wheel.extract("megatron/core/datasets/indexed_dataset.py", VENV)
    return python, module


def digests(gpt_train, data, extra=()):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        subprocess.run([gpt_train, "--data", data, "--vocab-size", "256", "--n-layer", "1", "--n-head", "4",
                        "--n-embd", "16", "--seq-len", "16", "--global-batch-size", "4", "--steps", "20",
                        "--digest", "--log-jsonl", log, *extra], check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line)["digest"] for line in open(log) if "digest" in json.loads(line)]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--gpt-train", default=ROOT / "build" / "apps" / "gpt_train")
    parser.add_argument("--llmc", type=pathlib.Path)
    parser.add_argument("--nanogpt", type=pathlib.Path)
    parser.add_argument("--pair")
    args = parser.parse_args()
    python, megatron = environment()
    if args.pair:
        subprocess.run([python, "-c", READ_MEGATRON, megatron, args.pair], check=True)
        return 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-formats-"))
    random.seed(3)
    # nanoGPT's script numbers the characters that occur: all of these do
    text = "".join(CHARACTERS) + "".join(random.choice(CHARACTERS) for _ in range(20000))
    ids = [CHARACTERS.index(c) for c in text]
    (folder / "ids.json").write_text(json.dumps(ids[:len(ids) * 9 // 10]))
    files = {}
    for dtype in ("uint8", "uint16", "int32"):
        out = folder / f"megatron_{dtype}"
        subprocess.run([python, "-c", WRITE_MEGATRON, megatron, folder / "ids.json", out, dtype], check=True)
        files[f"Megatron {dtype}"] = f"{out}.idx"
    if args.llmc:
        for model in ("gpt-2", "llama-3"):
            files[f"llm.c {model}"] = str(folder / f"{model}.bin")
            subprocess.run([python, "-c", WRITE_LLMC, args.llmc / "dev/data/data_common.py",
                            folder / "ids.json", files[f"llm.c {model}"], model],
                           check=True, stdout=subprocess.DEVNULL)
    if args.nanogpt:
        (folder / "prepare.py").write_text(
            (args.nanogpt / "data/shakespeare_char/prepare.py").read_text().replace("import requests", ""))
        (folder / "input.txt").write_text(text)
        subprocess.run([python, folder / "prepare.py"], check=True, stdout=subprocess.DEVNULL)
        files["nanoGPT"] = str(folder / "train.bin")
    for project in ("llmc", "nanogpt"):
        if not getattr(args, project):
            print(f"left out: --{project} DIR was not given")
    found = {name: digests(args.gpt_train, path) for name, path in files.items()}
    first = next(iter(found.values()))
    for name, steps in found.items():
        print(f"{name}: {len(steps)} steps, last digest {steps[-1]}")
    if any(steps != first for steps in found.values()):
        print("they differ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
