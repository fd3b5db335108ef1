#!/usr/bin/env python3
"""
layouts.py [--weft BUILD] [--check] - the tables of 18 layouts in README.md and, of a mixture of experts, in docs/moe.md, and six of
these in README.md: one model, seed and text, each layout's loss and digest after three steps. Tensor, sequence, data, expert and pipeline
parallelism, their products, strategies and schedules; all digests of a table are equal, or it ends with status 1. Without
--check the tables are written into the pages, with it compared.
"""
import argparse
import functools
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "proofs"))
from training_runs import write_text  # noqa: E402

MODEL = ("--arch llama --n-head 8 --n-kv-head 4 --n-embd 64 --n-layer 4 --seq-len 64 --global-batch-size 8 --steps 3 --lr 1e-3 "
         "--threads-per-rank 1 --digest")
LAYOUTS = ("", "--dp 2", "--dp 4 --strategy no_shard", "--dp 4 --strategy zero1", "--dp 4 --strategy shard_grad_op",
           "--dp 4 --strategy hybrid_shard --shard-group-size 2", "--dp 8", "--tp 2", "--tp 4 --sequence-parallel", "--tp 8",
           "--tp 2 --dp 2", "--tp 4 --dp 2 --sequence-parallel", "--pp 2 --micro-batch-size 2",
           "--pp 4 --micro-batch-size 1 --pp-schedule gpipe", "--pp 2 --micro-batch-size 1 --pp-schedule zb-v",
           "--pp 2 --dp 2 --micro-batch-size 1", "--pp 2 --tp 2 --micro-batch-size 2 --pp-schedule zb-h1",
           "--pp 2 --dp 2 --tp 2 --micro-batch-size 1 --recompute block")
MIXTURE = MODEL + " --n-expert 8 --moe-top-k 2 --moe-ffn 96 --moe-balance bias"
MIXTURES = ("", "--tp 2", "--dp 2", "--pp 2 --micro-batch-size 2", "--dp 2 --ep 2", "--tp 2 --etp 2", "--tp 2 --dp 2 --ep 4",
            "--dp 4 --ep 4", "--dp 4 --ep 2 --strategy zero1 --micro-batch-size 1", "--dp 4 --ep 4 --strategy no_shard",
            "--dp 8 --ep 2 --strategy hybrid_shard --shard-group-size 4", "--tp 4 --dp 2 --etp 4 --ep 2 --sequence-parallel",
            "--tp 4 --dp 2 --ep 8 --sequence-parallel", "--pp 2 --dp 2 --ep 2 --micro-batch-size 1",
            "--pp 4 --micro-batch-size 1 --pp-schedule zb-h1", "--pp 2 --dp 2 --ep 2 --micro-batch-size 1 --pp-schedule zb-v",
            "--pp 2 --tp 2 --dp 2 --etp 2 --ep 2 --micro-batch-size 1", "--pp 2 --tp 2 --dp 2 --ep 4 --micro-batch-size 1 --recompute block")
FEW = tuple(MIXTURES[i] for i in (0, 4, 6, 8, 12, 17))
PAGES = (("README.md", "layouts.py", MODEL, LAYOUTS), ("docs/moe.md", "layouts.py", MIXTURE, MIXTURES),
         ("README.md", "layouts.py: a mixture", MIXTURE, FEW))


@functools.cache
def run(program, text, model, layout):
    """Loss and digest of a layout's last step."""
    command = [str(program), "--data", str(text), *model.split(), *layout.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    last = re.findall(r"^step 3/3 .*?loss ([\d.]+).* (?:digest )?([0-9a-f]{16})$", done.stdout, re.M)
    if done.returncode != 0 or len(last) != 1:
        sys.exit(f"layouts.py: {' '.join(command)}: status {done.returncode}\n{done.stdout[-300:]}{done.stderr[-600:]}")
    return last[0]


def ranks(layout):
    return eval("*".join(["1", *re.findall(r"--(?:tp|dp|pp) (\d+)", layout)]))


def tabulate(program, text, check, name, mark, model, layouts):
    """The table of a page, written or compared; 1: its digests differ, or the page has another one."""
    rows = [(layout, *run(program, text, model, layout)) for layout in layouts]
    table = "| layout | ranks | loss | digest |\n|---|---|---|---|\n" + "".join(
        f"| {'`' + layout + '`' if layout else 'one rank'} | {ranks(layout)} | {loss} | `{digest}` |\n" for layout, loss, digest in rows)
    different = sorted({digest for _, _, digest in rows})
    print(table, end="")
    print(f"{name}: {len(rows)} layouts, {len(different)} digest{'s' if len(different) > 1 else ''}")
    page = ROOT / name
    old = page.read_text()
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->\n"
    new = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + table + end, old, flags=re.S)
    if begin not in old:
        sys.exit(f"layouts.py: {name} has no line {begin.strip()}")
    if check and new != old:
        print(f"layouts.py: {name} has another table: scripts/pages/layouts.py writes it")
        return 1
    if not check:
        page.write_text(new)
    return 0 if len(different) == 1 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=str(ROOT / "build"))
    parser.add_argument("--check", action="store_true", help="compare with README.md, and write nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        write_text(text)
        program = pathlib.Path(args.weft) / "apps" / "gpt_train"
        return max(tabulate(program, text, args.check, *page) for page in PAGES)


if __name__ == "__main__":
    sys.exit(main())
