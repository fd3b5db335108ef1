#!/bin/bash
# test_flops.sh GPT_TRAIN - the model FLOPs of a run: those of one rank on any layout and whatever is recomputed, and MFU.
#
# ctest: arguments gpt_train, timeout 60, builds plain
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# Model FLOPs are those of one rank: nothing that is recomputed counts, nor what several ranks all do. MFU is of a machine's peak.
cat >machine.json <<'END'
{"weft_machine": 1, "name": "mine", "device": {"memory": 1e9, "bf16": 2e12, "fp32": 1e12, "bandwidth": 1e11, "launch": 0, "products": 0.8, "attention": 0.7},
 "host": {"devices": 8, "background": true}, "inside": {"bandwidth": 1e10, "latency": 1e-6}, "network": {"bandwidth": 1e9, "latency": 1e-5}}
END
for flags in "" "--recompute block" "--recompute attention --tp 2" "--tp 4 --sequence-parallel" "--dp 3" \
    "--pp 2 --recompute stage" "--pp 2 --dp 3 --pp-schedule zb-h1" "--optimizer muon --dp 2"; do
    rm -f flops.jsonl
    # shellcheck disable=SC2086
    run "model FLOPs with $flags" "${tiny[@]}" --n-layer 2 --arch llama --n-kv-head 1 --steps 2 --eval-interval 0 --machine machine.json \
        --log-jsonl flops.jsonl $flags
    tail -1 flops.jsonl >>flops.txt
    head -1 flops.jsonl >>worlds.txt
done
shows "the line says it" "^step 2/2 .* [0-9.]+ model GFLOP/s  mfu [0-9.]+ %  mem"
python "they are alike" '
import json
rows, worlds = ([json.loads(line) for line in open(name)] for name in ("flops.txt", "worlds.txt"))
flops = [row["model_flops_per_s"] * row["ms"] / 1e3 for row in rows]
if len(flops) != 8 or max(flops) > 1.0001 * min(flops) or not flops[0]: print(flops)
for row, world in zip(rows, worlds):
    if abs(row["mfu"] * world["world"] * 1e12 / row["model_flops_per_s"] - 1) > 1e-4: print(row, world["world"])'
rm flops.txt
for flags in "" "--recompute block" "--recompute attention"; do
    rm -f flops.jsonl
    # shellcheck disable=SC2086
    run "model FLOPs of adapters with $flags" "${tiny[@]}" --n-layer 2 --arch llama --steps 1 --eval-interval 0 --lora-rank 2 \
        --log-jsonl flops.jsonl $flags
    tail -1 flops.jsonl >>flops.txt
done
python "a frozen first block takes no gradient of its input" '
import json
rows = [json.loads(line) for line in open("flops.txt")]
flops = [row["model_flops_per_s"] * row["ms"] / 1e3 for row in rows]
if len(flops) != 3 or max(flops) > 1.0001 * min(flops) or not flops[0]: print(flops)'
finish
