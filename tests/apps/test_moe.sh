#!/bin/bash
# test_moe.sh GPT_TRAIN - what balances experts as a user meets it: counts of a step that go on in checkpoints and adapters, on other
# layouts and where steps are skipped; what of it leaves with a model, and what is refused.
#
# ctest: arguments gpt_train, cost 20
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

mixture=(--data text.txt --arch mixtral --n-layer 2 --n-head 4 --n-kv-head 2 --n-embd 32 --ffn 48 --n-expert 4 --moe-top-k 2
    --seq-len 32 --global-batch-size 8 --steps 4 --lr 1e-2 --eval-interval 0 --threads-per-rank 1 --digest)
global=("${mixture[@]}" --moe-balance global --moe-global-weight 0.1)
digests() { sed -n 's/^\(step [0-9]*\)\/.*  loss \([0-9.]*\) .*balance \([0-9.]*\) .*digest \(.*\)$/\1 \2 \3 \4/p' "$1"; }

run "a loss of the global batch" "${global[@]}" --save whole --save-interval 2 --keep 0
digests out >one.txt
shows "which is 1 a mixture before anything is counted" "^step 1/4 .* balance 2\.0000 "
result "four digests" "$([ "$(sort -u one.txt | wc -l)" = 4 ] || cat one.txt)"
run "another weight" "${mixture[@]}" --moe-balance global --moe-global-weight 0.2
result "has another digest" "$(digests out | comm -12 <(sort one.txt) <(sort -) | sed 1d)"
while read -r layout; do
    # shellcheck disable=SC2086 # flags are words
    run "the same: $layout" "${global[@]}" $layout
    result "has its digests" "$(digests out | diff one.txt -)"
    # shellcheck disable=SC2086
    run "resumed: $layout" "${global[@]}" --resume whole/step-00000002 $layout
    result "with its digests" "$(digests out | diff <(sed 1,2d one.txt) -)"
done <<'END'
--tp 2 --dp 2 --ep 4 --sequence-parallel
--pp 2 --dp 2 --ep 2 --pp-schedule zb-h1 --micro-batch-size 1
--tp 2 --dp 2 --etp 2 --ep 2 --micro-batch-size 2 --recompute block
END
run "saved in parts" "${global[@]}" --dp 2 --ep 2 --save parts --save-interval 2 --keep 0
run "resumed on one rank" "${global[@]}" --resume parts/step-00000002
result "with its digests" "$(digests out | diff <(sed 1,2d one.txt) -)"
plan_is_run "with counts" "${global[@]}" --dp 2 --ep 2 --dtype bf16
run "steps that are skipped" "${global[@]}" --skip-steps "loss>0.1"
shows "count nothing" "^step 4/4 .* balance 2\.0000 "

run "a mixture without" "${mixture[@]}" --save without
refuse "a checkpoint without counts" 2 "is of another model: --moe-balance global \(it has none\)" "${global[@]}" --resume without
refuse "a weight of nothing" 2 "--moe-global-weight is read with --moe-balance global alone" "${mixture[@]}" --moe-global-weight 0.1

result "for transformers" "$("$bin/gpt_export" whole folder 2>&1)"
result "as GGUF" "$("$bin/gpt_export" whole --gguf folder.gguf --tokenizer none 2>&1)"
on=(--init-from folder --data text.txt --seq-len 32 --global-batch-size 8 --steps 2 --digest --moe-balance global)
for kind in global bias; do
    run "from there, by $kind" "${on[@]}" --moe-balance $kind
done
run "adapters" "${on[@]}" --lora-rank 2 --save adapters --save-interval 1 --keep 0
digests out >one.txt
run "resumed elsewhere" "${on[@]}" --lora-rank 2 --resume adapters/step-00000001 --dp 2 --ep 2
result "with its digests" "$(digests out | diff <(sed 1d one.txt) -)"
result "for PEFT" "$("$bin/gpt_export" adapters peft 2>&1)"
finish
