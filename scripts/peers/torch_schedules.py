#!/usr/bin/env python3
"""
torch_schedules.py [--folder DIR] [--all] [--gpt-train FILE] - pipeline schedules as PyTorch writes them.

Without --all it writes the small ones that are kept as test data (tests/parallel/torch_schedules): the default of
_dump_csv, with messages, waits, gathers and reductions, and of schedules with one stage a rank _get_pipeline_order().
With --all it makes a spread of them over ranks and micro-batches, and trains a small model by each with --gpt-train: the
digest has to be that of one rank, or the file is refused by a proof, as PyTorch's 1F1B order is, whose last rank begins
with micro-batch 1. It takes torch 2.15.
"""
import argparse
import csv
import pathlib
import re
import subprocess
import sys
import tempfile

from torch.distributed.pipelining import schedules

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "proofs"))
from training_runs import ROOT, write_text  # noqa: E402

SINGLE = {"gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B}
MULTI = {"looped_bfs": (schedules.ScheduleLoopedBFS, False), "interleaved": (schedules.ScheduleInterleaved1F1B, False),
         "interleaved_zb": (schedules.ScheduleInterleavedZeroBubble, False),
         "zbv": (schedules.ScheduleZBVZeroBubble, True), "dualpipe_v": (schedules.ScheduleDualPipeV, True)}


class Stage:  # pylint: disable=too-few-public-methods,too-many-instance-attributes
    """What a schedule asks of its stages before they run."""

    def __init__(self, ranks, index, stages):
        self.group_rank, self.group_size, self.stage_index, self.num_stages = 0, ranks, index, stages
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.has_backward, self.submod, self.group, self.device = True, None, None, "cpu"
        self.stage_index_to_group_rank = {}


def loss(output, _):
    """The loss that a schedule wants to have."""
    return output


def write(path, name, ranks, micro, form=None):
    """One schedule as a file; False where PyTorch has none of these sizes."""
    try:
        if name in SINGLE:
            order = SINGLE[name](Stage(ranks, 0, ranks), micro, loss_fn=loss)._get_pipeline_order()
            with open(path, "w", newline="", encoding="ascii") as file:
                csv.writer(file).writerows(order.values())
            return True
        kind, is_v = MULTI[name]
        mine = [0, 2 * ranks - 1] if is_v else [0, ranks]
        made = kind([Stage(ranks, i, 2 * ranks) for i in mine], micro, loss_fn=loss)
        made._dump_csv(path, **({"format": form} if form else {}))
        return True
    except ValueError as error:
        print(f"{name}, {ranks} ranks, {micro} micro-batches: torch has none: {error}")
        return False


def digest(program, folder, flags):
    """The digest of three steps, or the words of a refusal."""
    done = subprocess.run([program, "--data", folder / "text", "--n-layer", "11", "--n-head", "2", "--n-embd", "16",
                           "--seq-len", "8", "--steps", "3", "--micro-batch-size", "1", "--eval-interval", "0", "--digest",
                           "--threads-per-rank", "1", *flags], capture_output=True, text=True, check=False)
    found = re.findall("digest ([0-9a-f]{16})", done.stdout)
    return found[-1] if done.returncode == 0 else done.stderr.strip()


def compare(program):
    """Train by a spread of schedules; how many differ."""
    counts = {"same": 0, "refused": 0, "different": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / "text")
        for micro in (2, 4, 6, 8, 12):
            one = digest(program, folder, ["--global-batch-size", str(micro)])
            for ranks in (2, 3, 4):
                for kind in (*SINGLE, *MULTI):
                    for form in (None, "compute_only") if kind in MULTI else (None,):
                        if not write(folder / "schedule.csv", kind, ranks, micro, form):
                            continue
                        got = digest(program, folder, ["--global-batch-size", str(micro), "--pp", str(ranks),
                                                       "--pp-schedule", str(folder / "schedule.csv")])
                        result = "same" if got == one else "refused" if "schedule.csv" in got else "different"
                        counts[result] += 1
                        if result != "same":
                            print(f"{kind} {form or 'default'}, {ranks} ranks, {micro} micro-batches: {result}: {got}")
    print(counts)
    return counts["different"]


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split(" - ")[1].split("\n\n", maxsplit=1)[0])
    parser.add_argument("--folder", default=ROOT / "tests/parallel/torch_schedules", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--gpt-train", default=ROOT / "build/apps/gpt_train", type=pathlib.Path)
    asked = parser.parse_args()
    if asked.all:
        sys.exit(compare(asked.gpt_train.resolve()) > 0)
    asked.folder.mkdir(exist_ok=True)
    for name in (*SINGLE, *MULTI):
        write(asked.folder / f"{name}.csv", name, 2, 8)


if __name__ == "__main__":
    main()
