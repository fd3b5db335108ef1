"""
gpu_products.py - products of bf16 in exact mode by each kernel that a Hopper has for them, for gpu_check.py: one digest, and the speed
of each.
"""
import json

KERNELS = ("wgmma", "persistent", "")
# Tiles of several jobs for each cluster, chunks that are waited for, and results with biases and gelu.
MODEL = "--n-layer 2 --n-head 8 --n-embd 512 --vocab-size 4096 --seq-len 256 --global-batch-size 32 --lr 1e-3 --dtype bf16".split()


def digests(check):
    """The kernels differ in who makes a sum and when, so training has one digest; "" is the choice by time."""
    found = {}
    for kernel in KERNELS:
        (check.work / "log").unlink(missing_ok=True)
        try:
            check.run(check.command(*MODEL, "--digest", steps=5), **({"WEFT_TENSOR_CORES": kernel} if kernel else {}))
        except RuntimeError as failed:
            if "compute capability 9.0" not in str(failed):
                raise
            check.row(3, "one digest by each kernel of products", "-", "not run: this GPU is no Hopper")
            return
        found[kernel or "chosen"] = check.read()[-1]["digest"]
    check.judge(3, "one digest by each kernel of products", ", ".join(f"{kernel} {digest}" for kernel, digest in found.items()),
                len(set(found.values())) == 1)


def speeds(check):
    """A row for each product of a step, and a large one."""
    out = check.run([check.build / "apps/bench", "gemm", "--device", "cuda", "--seconds", 1, "--json"], 200)
    for row in (row for row in map(json.loads, out.splitlines()) if "chosen" in row):
        what = f"product {row['m']:.0f}x{row['k']:.0f}x{row['n']:.0f} {row['form']}, chunks: {row['chunks']:.0f}"
        for kernel in ("mma", "wgmma", "persistent", "chosen"):
            if row.get(kernel):
                check.row(5, f"{what}, by {kernel}" if kernel != "chosen" else f"{what}, the kernel that is chosen",
                          f"{row[kernel]:.0f} TFLOP/s", "measured")
