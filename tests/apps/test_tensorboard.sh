#!/bin/bash
# test_tensorboard.sh GPT_TRAIN - TensorBoard's own reader finds in --tensorboard what --log-jsonl says, of a run
# on four ranks, and once for each step where a run goes on from before its end.
#
# ctest: arguments gpt_train, timeout 120, builds plain
set -uo pipefail

gpt_train=$1
if ! python3 -c 'import tensorboard' 2>/dev/null; then
    echo "skipped: python3 has no module tensorboard"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
head -c 4000 "$gpt_train" | base64 >text
model=(--data text --n-layer 1 --n-head 4 --n-embd 16 --seq-len 16 --global-batch-size 4 --tp 2 --dp 2
    --eval-interval 3 --eval-iters 1 --tensorboard events)
"$gpt_train" "${model[@]}" --steps 6 --log-jsonl first.jsonl --save kept --save-interval 4 >out 2>&1 &&
    "$gpt_train" "${model[@]}" --steps 9 --log-jsonl second.jsonl --resume kept/step-00000004 >out 2>&1 || {
    cat out
    exit 1
}
python3 - <<'END_OF_PYTHON'
import json, os, struct
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

def rows(path):
    return {row["step"]: row for row in map(json.loads, open(path)) if "step" in row}

def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]

assert len(os.listdir("events")) == 2, os.listdir("events")
seen = EventAccumulator("events")
seen.Reload()
first, second = rows("first.jsonl"), rows("second.jsonl")
assert sorted(first) == [1, 2, 3, 4, 5, 6] and sorted(second) == [5, 6, 7, 8, 9]
assert first[6]["lr"] != second[6]["lr"]
want = {**first, **second}
for tag, key in ("loss_metrics/global_avg_loss", "loss"), ("grad_norm", "grad_norm"), ("lr", "lr"), \
        ("validation_metrics/loss", "val_loss"):
    got = [(event.step, event.value) for event in seen.Scalars(tag)]
    assert got == [(step, single(row[key])) for step, row in want.items() if row[key] is not None], (tag, got)
for tag, key, unit in ("throughput(tps)", "tokens_per_s", 1 / 4), ("time_metrics/end_to_end(s)", "ms", 1e-3):
    for event in seen.Scalars(tag): # the log has six digits
        assert abs(event.value - want[event.step][key] * unit) <= 1e-5 * event.value, (tag, event)
for tag in "tflops", "memory/max_active(GiB)":
    assert [event.step for event in seen.Scalars(tag)] == list(want) and seen.Scalars(tag)[0].value > 0, tag
END_OF_PYTHON
