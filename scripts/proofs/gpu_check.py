#!/usr/bin/env python3
"""
gpu_check.py [OPTION...] - what Weft promises of a GPU (docs/gpu.md), measured here. Run by
gpu_check.sh, which builds first.

Prints one table: the promise's number, what was looked at, the figure, the finding. A finding is
"ok", "FAIL", "measured" (a figure without a bound), or "not run" with the reason: a tool or a peer that
is not here, or no time left. Status 0 where nothing failed, 1 where something did, 77 without a GPU.
"""
import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import gpu_features
import gpu_products
import gpu_table
from training_runs import UNGROUPED as STRATEGIES

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEAK = 989e12  # bf16 products of an H100 or H200 without sparsity, in floating-point operations/s
PARTS = ("correctness", "features", "speeds", "table")
TINY = "--n-layer 2 --n-head 4 --n-embd 64 --seq-len 64 --global-batch-size 8 --lr 3e-3".split()
GPT2 = "--n-head 12 --n-layer 12 --n-embd 768 --vocab-size 50304 --seq-len 1024".split()
GPT2_XL = "--n-head 25 --n-layer 48 --n-embd 1600 --vocab-size 50304 --seq-len 1024".split()
# TFLOP/s of cuDNN 9.19.1 on an H200: bf16, causal, 64 heads of 128, 8 of keys and values, one
# sequence; half of the scores counted. Published by NVIDIA with cudnn-frontend, in the results of its
# folder benchmark named h200_919_only_cudnn.
PUBLISHED = {("forward", 8192): 644, ("backward", 8192): 541,
             ("forward", 16384): 673, ("backward", 16384): 579,
             ("forward", 32768): 688, ("backward", 32768): 581}
# Processes that share a GPU: NCCL takes each for a host of its own.
SHARED_GPU = {"NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "Ring",
              "NCCL_PROTO": "Simple", "NCCL_MAX_CTAS": "2", "NCCL_SOCKET_IFNAME": "lo",
              "NCCL_RAS_ENABLE": "0"}


def gpus():
    """How many GPUs the driver has, and the first one's name, or why none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, str(error)
    count = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code or count.value == 0:
        return 0, f"the driver says {code}" if code else "the driver finds none"
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), 0)
    return count.value, name.value.decode(errors="replace")


class Failed(RuntimeError):
    """A command of a check went wrong; its text is the figure."""


class Check:
    def __init__(self, options, gpus, gpu):
        self.gpus, self.gpu, self.of_table = gpus, gpu, (options.model or list(gpu_table.MODELS), options.added or list(gpu_table.ADDED))
        self.build = pathlib.Path(options.build).resolve()
        self.plugins = pathlib.Path(options.plugins or options.build).resolve()
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="weft-gpu-"))
        self.thread = threading.local()
        self.until = time.monotonic() + 60 * options.minutes
        self.rows = []
        self.text = self.root / "text"
        self.text.write_bytes(b"".join(b"%d sheep and %d more make %d sheep.\n" % (i, j, i + j)
                                       for i in range(300) for j in range(300)))

    @property
    def work(self):
        """A folder of the thread's own: checks that run side by side share no log."""
        if not hasattr(self.thread, "work"):
            self.thread.work = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        return self.thread.work

    def left(self):
        return self.until - time.monotonic()

    def row(self, line, what, figure, finding):
        self.rows.append((str(line), what, figure, finding))
        print(f"  {line} {what}: {figure}: {finding}", file=sys.stderr, flush=True)

    def judge(self, line, what, figure, good):
        self.row(line, what, figure, "ok" if good else "FAIL")

    def run(self, command, seconds=120, **environment):
        limit = min(seconds, self.left())
        if limit < 5:
            raise TimeoutError
        done = subprocess.run([str(word) for word in command], cwd=self.work, text=True,
                              capture_output=True, timeout=limit,
                              env={**os.environ, "WEFT_PLUGINS": str(self.plugins), **environment})
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise Failed(f"status {done.returncode}: {said[-1][:160] if said else 'nothing said'}")
        return done.stdout

    def command(self, *flags, steps, log="log", device="cuda"):
        return [self.build / "apps/gpt_train", "--data", self.text, "--eval-interval", 0,
                "--steps", steps, "--device", device, *(["--log-jsonl", log] if log else []), *flags]

    def read(self, log="log"):
        rows = [json.loads(line) for line in (self.work / log).read_text().splitlines()]
        return [row for row in rows if "step" in row]

    def train(self, *flags, steps, device="cuda", seconds=120):
        (self.work / "log").unlink(missing_ok=True)
        self.run(self.command(*flags, steps=steps, device=device), seconds)
        return self.read()

    def digest(self, *flags):
        return self.train(*TINY, *flags, "--digest", steps=5)[-1]["digest"]

    def attempt(self, line, what, check):
        """A check that raises has failed; one that ran out of time, or of tools, was not run."""
        try:
            check()
        except Failed as failed:
            self.row(line, what, str(failed), "FAIL")
        except subprocess.TimeoutExpired as late:
            if self.left() < 5:
                self.row(line, what, "-", "not run: no time left")
            else:
                self.row(line, what, f"no end after {late.timeout:.0f} s", "FAIL")
        except TimeoutError:
            self.row(line, what, "-", "not run: no time left")
        except FileNotFoundError as missing:
            self.row(line, what, "-", f"not run: {missing.filename} is not here")
        except Exception as fault:  # of the check itself: the others are run all the same
            self.row(line, what, f"{type(fault).__name__}: {fault}", "FAIL")

    # ---- 2: ops ----

    def test_program(self, name):
        path = self.build / "tests/cuda" / name
        if not path.exists():
            raise FileNotFoundError(2, "missing", str(path.relative_to(self.build)))
        return path

    def ops(self):
        for name in ("ops math attention attention_kinds attention_alone attention_hopper cudnn moe capacity stored nf4 rope rotated together fusions "
                     "in_place experts_part experts_bf16 decode graph_train ahead").split():
            self.run([self.test_program("test_cuda_" + name)])
        self.row(2, "every op against the reference, outputs poisoned", "all cases", "ok")

    def sanitizer(self, tool):
        program = shutil.which("compute-sanitizer")
        if not program:
            raise FileNotFoundError(2, "missing", "compute-sanitizer")
        self.run([program, "--tool", tool, "--error-exitcode", 9,
                  self.test_program("test_cuda_ops")], 100)
        self.row(2, f"compute-sanitizer {tool}", "no error", "ok")

    # ---- 3: training ----

    def curve(self, arch, dtype, steps, bound):
        flags = [*TINY, "--arch", arch, "--dtype", dtype]
        cpu = self.train(*flags, steps=steps, device="cpu")[-1]["loss"]
        gpu = self.train(*flags, steps=steps)[-1]["loss"]
        apart = abs(gpu - cpu) / abs(cpu)
        self.judge(3, f"{arch} {dtype}, loss at step {steps}",
                   f"CPU {cpu:.6f}, GPU {gpu:.6f}, {apart:.1e} apart (at most {bound})",
                   apart <= bound)

    def reruns(self):
        digests = {self.digest() for _ in range(10)}
        self.judge(3, "ten reruns", f"{len(digests)} digest(s)", len(digests) == 1)

    def graphs(self, arch):
        flags = ["--arch", arch, "--dropout", 0.1, "--micro-batch-size", 4]
        want, got = (self.digest(*flags, "--cuda-graph", how) for how in ("off", "on"))
        self.judge(3, f"{arch} as CUDA graphs", f"digest {got}, op by op {want}", got == want)

    # ---- 4: layouts ----

    def layouts(self, dtype):
        one = self.digest("--dtype", dtype)
        for tp, dp in ((2, 1), (1, 2), (2, 2)):
            bad = [s for s in STRATEGIES if self.digest("--dtype", dtype, "--tp", tp, "--dp", dp, "--strategy", s,
                                                        "--transport", "threads") != one]
            self.judge(4, f"{dtype}, tp {tp} x dp {dp} on one GPU, {len(STRATEGIES)} strategies",
                       f"other digests: {', '.join(bad)}" if bad else "one digest", not bad)

    def processes(self, n):
        """As torchrun starts them: one rank a process, found by NCCL_COMM_ID."""
        layout = ["--tp", 2, "--dp", n // 2]
        want = self.digest(*layout, "--transport", "threads")
        port = str(20000 + os.getpid() % 20000 + n)
        running, deadline = [], min(120, self.left())
        if deadline < 5:
            raise TimeoutError
        for rank in range(n):
            environment = {**os.environ, **SHARED_GPU, "WEFT_PLUGINS": str(self.plugins),
                           "RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_RANK": str(rank),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                           "NCCL_HOSTID": f"rank{rank}"}
            command = self.command(*TINY, *layout, "--digest", "--transport", "nccl", steps=5,
                                   log="processes.jsonl")
            running.append(subprocess.Popen([str(word) for word in command], cwd=self.work,
                                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                            text=True, env=environment))
        said = []
        end = time.monotonic() + deadline
        try:
            for process in running:
                said.append(process.communicate(timeout=max(1, end - time.monotonic()))[1])
        finally:
            for process in running:
                process.kill()
        if any(process.returncode for process in running):
            words = [text.strip().splitlines()[-1] for text in said if text.strip()]
            raise Failed(words[0][:200] if words else "a process failed without a word")
        got = self.read("processes.jsonl")[-1]["digest"]
        self.judge(4, f"NCCL, {n} processes on one GPU, tp 2 x dp {n // 2}",
                   f"digest {got}, over threads {want}", got == want)

    # ---- 5: speed ----

    def rate(self, shape, batch, dtype, *more):
        """Tokens/s."""
        rows = self.train(*shape, "--global-batch-size", batch, "--dtype", dtype, *more, steps=12, seconds=100)
        return sorted(row["tokens_per_s"] for row in rows[4:])[len(rows[4:]) // 2]

    def speed(self, name, shape, batch, target, *more):
        layers, width = int(shape[3]), int(shape[5])
        rate = self.rate(shape, batch, "bf16", *more)
        parameters = 12 * layers * width ** 2 + 50304 * width
        # A token looks at half of the others: causal attention, forward and backward.
        work = 6 * parameters + 6 * layers * 1024 * width
        use = rate * work / PEAK
        self.judge(5, f"{name}, batch {batch} x 1024, bf16",
                   f"{rate:,.0f} tokens/s, {100 * use:.1f} % of {PEAK / 1e12:.0f} TFLOP/s "
                   f"(at least {target} %)", 100 * use >= target)
        return rate

    def peer(self, name, shape, batch, rates, dtype="bf16", least=1.1):
        job = {"arch": "gpt2", "layers": int(shape[3]), "heads": int(shape[1]), "width": int(shape[5]), "ffn": 4 * int(shape[5]),
               "vocabulary": 50304, "length": 1024, "micro": batch, "dtype": dtype}
        out = self.run([sys.executable, ROOT / "scripts/peers/gpu_torch.py", json.dumps(job)], 150)
        if "no torch" in out:
            self.row(5, f"{name} against PyTorch", "-", "not run: " + out.strip())
            return
        theirs = json.loads(out.splitlines()[-1])
        for way, rate in rates.items():
            ratio = rate / theirs["tokens_per_s"]
            self.judge(5, f"{name}, {way}, against PyTorch {theirs['version']} compiled, flash attention",
                       f"{theirs['tokens_per_s']:,.0f} tokens/s: {ratio:.2f} times (at least {least})", ratio >= least)

    def fp32(self, dtype, more):
        ways = {"exact": [], "exact off": ["--exact", "off"]}
        rates = {way: self.rate(GPT2, 16, "fp32", *more, *flags) for way, flags in ways.items() if not more or flags}
        reported = ", ".join(f"{way} {rate:,.0f} tokens/s" for way, rate in rates.items())
        self.row(5, f"GPT-2 124M, batch 16 x 1024, {dtype}", reported, "measured")
        self.peer(f"GPT-2 124M in {dtype}", GPT2, 16, rates, dtype, 0.85 if dtype == "fp32" else 1.1)

    def models(self):
        ways = {"exact": ["--cuda-graph", "off"], "exact off": ["--exact", "off", "--cuda-graph", "off"],
                "exact, CUDA graphs": ["--cuda-graph", "on"],
                "exact off, CUDA graphs": ["--exact", "off", "--cuda-graph", "on"]}
        for dtype, more in (("fp32", []), ("tf32", ["--tf32"])):
            self.attempt(5, f"GPT-2 124M, {dtype}", lambda dtype=dtype, more=more: self.fp32(dtype, more))
        for name, shape, batch, target in (("GPT-2 124M", GPT2, 32, 50), ("GPT-2 1.5B", GPT2_XL, 8, 55)):
            rates = {}
            for way, more in ways.items():
                def measure(way=way, more=more):
                    rates[way] = self.speed(f"{name}, {way}", shape, batch, target, *more)
                self.attempt(5, f"{name}, {way}", measure)
            if rates:
                self.attempt(5, f"{name} against PyTorch", lambda: self.peer(name, shape, batch, rates))

    def decoding(self):
        out = self.run([sys.executable, ROOT / "scripts/peers/gpu_decode.py", self.build], 400)
        for row in map(json.loads, out.splitlines()):
            ours, what = row["tokens_per_s"], f"generation, {row['model']}, {row['dtype']}, texts at once: {row['texts']}"
            self.row(7, f"{what}, linears in 4 bits", f"{row['nf4_tokens_per_s']:,.0f} tokens/s, {row['nf4_tokens_per_s'] / ours:.2f} times as many",
                     "measured")
            for peer, theirs in row["peers"].items():
                beside = f"{what}, beside {peer}"
                if isinstance(theirs, str):  # why there is none
                    self.row(7, beside, f"{ours:,.0f} tokens/s", f"measured: {peer} {theirs}")
                elif peer == "transformers":
                    self.judge(7, beside, f"{ours:,.0f} tokens/s, {theirs:,.0f}: {ours / theirs:.2f} times (at least 4)", ours / theirs >= 4)
                else:
                    self.row(7, beside, f"{ours:,.0f} tokens/s, {theirs:,.0f}: {ours / theirs:.2f} times", "measured")

    def memory(self):
        out = self.run([self.build / "apps/bench", "memory", "--device", "cuda", "--json"])
        rows = [row for row in map(json.loads, out.splitlines()) if "of_copy" in row]
        copy = next(row["gb_per_s"] for row in rows if row["kernel"] == "copy")
        for row in rows:
            if row["kernel"] != "copy":
                self.judge(5, f"{row['kernel']} against a copy of {copy:.0f} GB/s",
                           f"{row['gb_per_s']:.0f} GB/s, {100 * row['of_copy']:.0f} % (at least 85)",
                           row["of_copy"] >= 0.85)

    def attention(self):
        lengths = sorted({length for _, length in PUBLISHED})
        out = self.run([self.build / "apps/bench", "attention", "--device", "cuda", "--json", "--shapes",
                        ",".join(f"{length}x128" for length in lengths)])
        for row in (row for row in map(json.loads, out.splitlines()) if "tflops" in row):
            by = {"weft": ", Weft's kernels", "mma": ", Weft's kernels by mma.sync"}.get(row["by"], "")
            share = row["tflops"] / (theirs := PUBLISHED[row["pass"], round(row["seq"])])
            what = f"attention {row['pass']}, {row['seq']:.0f} tokens{by}"
            figure = f"{row['tflops']:.0f} TFLOP/s, NVIDIA's cuDNN 9.19.1 on an H200 {theirs}: {share:.2f}"
            if "H200" in self.gpu and not by:
                self.judge(5, what, figure + " (at least 0.9)", share >= 0.9)
            else:
                self.row(5, what, figure, "measured" if by else f"measured: this is {self.gpu}")

    def experts(self):
        out = self.run([self.build / "apps/bench", "experts", "--device", "cuda", "--json"])
        for row in (row for row in map(json.loads, out.splitlines()) if "of_dense" in row):
            self.row(5, f"experts {row['pass']}, {row['type']}, {row['tokens']:.0f} tokens, {row['experts']:.0f} of {row['d']:.0f} x {row['f']:.0f}",
                     f"{row['gflops'] / 1e3:.1f} TFLOP/s, {row['of_dense']:.2f} of the dense products'", "measured")

    def side_by_side(self, checks):
        """What they compute does not depend on who else uses the GPU."""
        with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
            for done in [pool.submit(self.attempt, *check) for check in checks]:
                done.result()

    def features(self):
        self.side_by_side(gpu_features.checks(self))

    def correctness(self):
        checks = [(2, "every op against the reference", self.ops)]
        checks += [(2, f"compute-sanitizer {tool}", lambda tool=tool: self.sanitizer(tool))
                   for tool in ("memcheck", "racecheck")]
        for arch in ("gpt2", "llama"):
            for dtype, steps, bound in (("fp32", 50, 1e-4), ("bf16", 200, 0.02)):
                checks.append((3, f"{arch} {dtype}", lambda arch=arch, dtype=dtype, steps=steps, bound=bound:
                               self.curve(arch, dtype, steps, bound)))
            checks.append((3, f"{arch} as CUDA graphs", lambda arch=arch: self.graphs(arch)))
        checks.append((3, "ten reruns", self.reruns))
        checks.append((3, "one digest by each kernel of products", lambda: gpu_products.digests(self)))
        checks += [(4, f"{dtype}, layouts on one GPU", lambda dtype=dtype: self.layouts(dtype))
                   for dtype in ("fp32", "bf16")]
        checks += [(4, f"NCCL, {n} processes", lambda n=n: self.processes(n)) for n in (2, 4)]
        self.side_by_side(checks)

    def speeds(self):
        """One after the other: each has the GPU to itself."""
        self.attempt(5, "memory-bound kernels against a copy", self.memory)
        self.attempt(5, "attention against the published figures", self.attention)
        self.attempt(5, "products by each kernel", lambda: gpu_products.speeds(self))
        self.attempt(5, "experts beside dense products", self.experts)
        self.attempt(7, "generation", self.decoding)
        self.models()

    def table(self):
        """Takes half an hour: asked for by --only table, or where --minutes leave it."""
        gpu_table.Table(self, self.gpus, *self.of_table).fill(PEAK)

    def print_rows(self):
        rows = [("line", "what", "figure", "finding"), *sorted(self.rows, key=lambda r: r[0])]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="the built tree")
    parser.add_argument("--minutes", type=float, default=8, help="in all")
    parser.add_argument("--plugins", help="the folder of the plugin for GPUs, if not the built tree: with its tests/cuda a machine without a GPU can try the checks")
    parser.add_argument("--gpus", type=int, help="as if so many were here (default: what the driver has)")
    parser.add_argument("--only", choices=PARTS, help="a part of it")
    parser.add_argument("--model", action="append", choices=gpu_table.MODELS, help="of the table; may be given more than once (default: all)")
    parser.add_argument("--added", action="append", choices=gpu_table.ADDED, help="to a model of the table, likewise")
    parser.add_argument("--probe", action="store_true", help="only say whether there is a GPU")
    options = parser.parse_args()
    count, why = gpus()
    if count == 0 and not options.plugins:
        print(f"gpu_check: no GPU here: {why}")
        return 77
    if options.probe:
        return 0
    check = Check(options, options.gpus or count, why)
    try:
        for part in PARTS:
            if options.only in (None, part):
                getattr(check, part)()
    finally:
        shutil.rmtree(check.root)
    check.print_rows()
    return int(any(row[3] == "FAIL" for row in check.rows))


if __name__ == "__main__":
    sys.exit(main())
