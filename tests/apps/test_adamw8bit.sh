#!/bin/bash
# test_adamw8bit.sh GPT_TRAIN - AdamW with moments in 8 bits as a user meets it: one digest on layouts, instruction sets and
# after stops, a quarter of the memory, losses beside AdamW's, plans, and what does not fit.
#
# ctest: arguments gpt_train sanitized, builds plain
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

all=(--data text.txt --n-layer 2 --n-head 6 --n-embd 48 --ffn 131 --seq-len 16 --global-batch-size 8 --lr 1e-2
    --eval-interval 0)
llama=(--arch llama --n-kv-head 3)
short=("${all[@]}" --steps 6 --digest)
eight=(--optimizer adamw8bit)
digests() { sed -n 's/^\(step [0-9]*\)\/.*  loss \([0-9.]*\) .*digest \(.*\)$/\1 \2 \3/p' "$1"; }

run "on one rank" "${short[@]}" "${llama[@]}" "${eight[@]}" --save whole
digests out >one.txt
result "six digests" "$([ "$(sort -u one.txt | wc -l)" = 6 ] || cat one.txt)"
while read -r layout; do
    # shellcheck disable=SC2086 # flags are words
    run "the same: $layout" "${short[@]}" "${llama[@]}" "${eight[@]}" $layout
    result "has its digests" "$(digests out | diff one.txt -)"
done <<'END'
--tp 2 --dp 2
--tp 8 --dp 2 --strategy shard_grad_op --micro-batch-size 1
--tp 4 --sequence-parallel --dp 2 --threads-per-rank 2
--dp 8 --strategy zero1 --micro-batch-size 1
--dp 4 --strategy hybrid_shard --shard-group-size 2
--pp 2 --tp 2 --dp 2 --micro-batch-size 1
END
WEFT_CPU_ISA=portable run "the same: portable" "${short[@]}" "${llama[@]}" "${eight[@]}" --threads-per-rank 1
result "has its digests" "$(digests out | diff one.txt -)"
run "in bf16" "${short[@]}" "${eight[@]}" --dtype bf16
digests out >bf16.txt
run "in bf16 elsewhere" "${short[@]}" "${eight[@]}" --dtype bf16 --tp 4 --dp 2
result "has its digests" "$(digests out | diff bf16.txt -)"
run "AdamW" "${short[@]}" "${llama[@]}"
result "has others" "$(digests out | comm -12 <(tail -n 5 one.txt | sort) <(sort -))"

# Checkpoints have the numbers that moments stand for, so they go on on any mesh.
"$gpt_train" "${short[@]}" "${llama[@]}" "${eight[@]}" --tp 2 --save stopped --exit-duration-in-mins 0.0000001 >out 2>err
status=$?
result "stopped" "$([ $status = 75 ] || echo "exit status $status")"
for kind in sharded full; do
    cp -r stopped "$kind"
    run "gone on with on another mesh, saved as $kind" "${short[@]}" "${llama[@]}" "${eight[@]}" --save "$kind" --dp 4 --tp 2 \
        --checkpoint "$kind"
    result "ends with the same digest" "$(digests out | tail -n 1 | diff <(tail -n 1 one.txt) -)"
done
refuse "not by AdamW" 2 "--optimizer adamw \(it has adamw8bit\)" "${short[@]}" "${llama[@]}" --optimizer adamw --save stopped
result "a bit that is wrong" "$(python3 - <<'END'
import pathlib, struct, json
path = max(pathlib.Path("stopped").glob("step-*/rank-*.safetensors"), default=None) or max(pathlib.Path("stopped").rglob("*.safetensors"))
data = bytearray(path.read_bytes())
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
name = next(name for name in head if name.endswith("mlp.down.weight.v"))
data[8 + n + head[name]["data_offsets"][0] + 2] ^= 1
path.write_bytes(data)
END
)"
refuse "is found" 8 "damaged: tensor \"block.*down.weight.v\"" "${short[@]}" "${llama[@]}" "${eight[@]}" --save stopped --tp 1 --dp 1

# As good as AdamW, in a quarter of its memory and as planned.
run "AdamW for longer" "${all[@]}" --steps 60 --log-jsonl wide.jsonl
run "and in 8 bits" "${all[@]}" "${eight[@]}" --steps 60 --log-jsonl eight.jsonl
python "losses are near" '
import json
wide, eight = ([json.loads(line)["loss"] for line in open(name) if "loss_bits" in line or "\"loss\"" in line] for name in ("wide.jsonl", "eight.jsonl"))
if len(wide) < 60 or not wide[-1] < 0.8 * wide[0]: print(wide)
far = max(abs(x - y) / x for x, y in zip(wide, eight))
if not 0 < far < 0.02: print(far)'
big=(--arch llama --n-layer 2 --n-head 8 --n-embd 1024 --ffn 4096 --vocab-size 256 --seq-len 16 --global-batch-size 8)
result "a plan" "$("$gpt_train" --plan --json plan.json "${big[@]}" "${eight[@]}" >out 2>err || cat err)"
result "and of four ranks" "$("$gpt_train" --plan --json four.json "${big[@]}" "${eight[@]}" --tp 2 --dp 2 >out 2>err || cat err)"
python "2.1 bytes a parameter" '
import json
for ranks, name in (1, "plan"), (4, "four"):
    report = json.load(open(name + ".json"))
    count, bytes = report["parameters"]["trained"]["count"], ranks * report["memory"]["most"]["optimizer_state"]
    linears, vectors = 2 * (4 * 1024 ** 2 + 3 * 1024 * 4096) + 2 * 256 * 1024, 5 * 1024
    if count != linears + vectors: print(count, linears + vectors)
    wanted = 2 * linears + 8 * (linears - 2 * 1024 * 4096) // 128 + 8 * 2 * 1024 * 4096 // 256 + 8 * vectors
    if not wanted <= bytes <= wanted + 65536: print(name, bytes, wanted)'
plan_is_run "on rank 3" "${all[@]}" "${eight[@]}" --steps 3 --tp 2 --dp 2 --rank 3
finish
