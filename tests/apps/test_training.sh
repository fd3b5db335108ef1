#!/bin/bash
# test_training.sh GPT_TRAIN - flags of training as a user meets them: a moving average of the weights that is evaluated,
# exported and resumed; and checkpoints that are continued with a new optimizer.
#
# ctest: arguments gpt_train sanitized, builds plain
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# value KEY FILE: of the last row; rows of a run without a stop are compared with those of others.
value()
{
    grep -o "\"$1\": *[^,}]*" "$2" | tail -1
}

# The average: evaluated beside the weights, on all meshes alike.
average=("${tiny[@]}" --steps 4 --eval-interval 2 --ema 0.8 --digest)
run "a run with an average" "${average[@]}" --log-jsonl weights.jsonl
run "whose average is evaluated" "${average[@]}" --eval-ema --log-jsonl average.jsonl --save averaged
result "is trained alike" "$([ "$(value digest weights.jsonl)" = "$(value digest average.jsonl)" ] || echo differs)"
result "and evaluated otherwise" "$([ "$(value val_loss weights.jsonl)" != "$(value val_loss average.jsonl)" ] || echo alike)"
for mesh in "--tp 2 --dp 2" "--dp 4 --strategy zero1" "--dp 2 --strategy no_shard" "--pp 2 --pp-split 1,1,1,0 --pp-schedule zb-v --n-layer 1" "--dp 2 --param-dtype bf16"; do
    # shellcheck disable=SC2086
    run "on $mesh" "${average[@]}" --eval-ema --log-jsonl other.jsonl $mesh
    [[ $mesh = *bf16* ]] || result "is the same" "$([ "$(value digest other.jsonl) $(value val_loss other.jsonl)" = \
        "$(value digest average.jsonl) $(value val_loss average.jsonl)" ] || value val_loss other.jsonl)"
    rm other.jsonl
done
whole=("${average[@]}" --dp 2 --strategy no_shard --param-dtype bf16)
run "with copies in bf16" "${whole[@]}" --log-jsonl copies.jsonl
run "that averages replace" "${whole[@]}" --eval-ema --log-jsonl copied.jsonl
result "and give back" "$([ "$(value digest copies.jsonl)" = "$(value digest copied.jsonl)" ] || echo differs)"
plan_is_run "with an average of whole weights" "${average[@]}" --eval-ema --dp 2 --strategy no_shard --rank 0
run "without a stop" "${average[@]}" --eval-ema --steps 4 --warmup-steps 1 --log-jsonl straight.jsonl --lr-schedule constant
run "saved on one mesh" "${average[@]}" --eval-ema --steps 2 --save there --tp 2 --dp 2 --warmup-steps 1 --lr-schedule constant
run "and resumed on another" "${average[@]}" --eval-ema --steps 4 --save there --dp 4 --warmup-steps 1 --lr-schedule constant --log-jsonl moved.jsonl
result "is the same" "$([ "$(value digest moved.jsonl) $(value val_loss moved.jsonl)" = \
    "$(value digest straight.jsonl) $(value val_loss straight.jsonl)" ] || echo differs)"

# Steps that were skipped are counted in checkpoints, as is when the optimizer was new.
run "a run that skips" "${tiny[@]}" --steps 3 --eval-interval 0 --skip-steps 'loss>1' --ema 0.5 --save skipped
python "counts it in its checkpoint" '
import json
if json.load(open("skipped/step-00000003/index.json")).get("skipped") != 3: print("not 3")'

# Exported, the average is the model whose loss was taken.
"$bin/gpt_export" averaged exported --ema >out 2>err
result "the average is exported" "$([ $? = 0 ] || cat err)"
"$bin/gpt_export" averaged weights >out 2>err
result "and the weights" "$([ $? = 0 ] && ! cmp -s weights/model.safetensors exported/model.safetensors || cat err)"
run "the average is trained from" --data text.txt --seq-len 16 --global-batch-size 4 --init-from exported --steps 1 --lr 1e-30 --min-lr 0 \
    --eval-interval 1 --log-jsonl from.jsonl
python "with its loss" '
import json
a, b = ([json.loads(line) for line in open(name)][-1]["val_loss"] for name in ("average.jsonl", "from.jsonl"))
if abs(a - b) > 1e-6: print(a, b)'
run "a run without" "${tiny[@]}" --steps 1 --eval-interval 0 --save plain
other "no average" 2 "has no moving average of the weights" gpt_export plain nothing --ema
other "of a folder" 2 "--ema is of a checkpoint that becomes a folder" gpt_export exported nothing --ema

# A new optimizer, and another part that is frozen: alike on all meshes, and resumed.
first=("${tiny[@]}" --eval-interval 0 --lr-schedule constant --warmup-steps 1 --digest)
next=("${first[@]}" --steps 6 --resume plain/step-00000001 --reset-optimizer --optimizer lion --freeze embed --ema 0.5)
refuse "another optimizer" 2 "is of another model: --optimizer lion .it has adamw." "${first[@]}" --steps 6 --resume plain/step-00000001 --optimizer lion
run "with a new one" "${next[@]}" --log-jsonl fresh.jsonl
shows "says so" "^continuing from plain/step-00000001, after step 1, with a new optimizer$" "^step 2/6 "
run "elsewhere, and saved" "${next[@]}" --steps 4 --tp 2 --dp 2 --save again
goes=("${first[@]}" --steps 6 --optimizer lion --freeze embed --ema 0.5)
run "and resumed" "${goes[@]}" --save again --dp 2 --log-jsonl rest.jsonl
result "is the same" "$([ "$(value digest fresh.jsonl)" = "$(value digest rest.jsonl)" ] || echo differs)"
adamw=("${first[@]}" --steps 6 --resume plain/step-00000001 --reset-optimizer)
run "AdamW anew" "${adamw[@]}" --log-jsonl adamw.jsonl
run "and saved" "${adamw[@]}" --steps 4 --dp 2 --save corrected
run "and resumed" "${first[@]}" --steps 6 --save corrected --log-jsonl corrected.jsonl
result "has its corrections of bias" "$([ "$(value digest adamw.jsonl)" = "$(value digest corrected.jsonl)" ] || echo differs)"
# Batches that grow: the sequences of whole ones in their order, on any mesh, resumed within.
grown=("${tiny[@]}" --global-batch-size 16 --rampup-batch-size 4,4,36 --micro-batch-size 1 --steps 9 --eval-interval 3 --digest --lr-schedule constant --warmup-steps 2)
run "a run whose batches grow" "${grown[@]}" --log-jsonl grown.jsonl
python "by Megatron's rule" '
import json
size = [round(r["tokens_per_s"] * r["ms"] / 1e3 / 16) for r in map(json.loads, open("grown.jsonl")) if "tokens_per_s" in r]
if size != [4, 4, 4, 8, 8, 12, 16, 16, 16]: print(size)'
for mesh in "--dp 2" "--dp 4 --tp 2" "--dp 3 --accumulate reduced" "--dp 4 --strategy no_shard" "--dp 2 --tp 2"; do
    # shellcheck disable=SC2086
    run "on $mesh" "${grown[@]}" --log-jsonl other.jsonl $mesh
    result "is the same" "$([ "$(value digest other.jsonl)" = "$(value digest grown.jsonl)" ] || echo differs)"
    rm other.jsonl
done
run "saved in the ramp" "${grown[@]}" --steps 5 --dp 2 --save ramp
run "and resumed" "${grown[@]}" --dp 4 --save ramp --log-jsonl other.jsonl
result "is the same" "$([ "$(value digest other.jsonl)" = "$(value digest grown.jsonl)" ] || echo differs)"
plan_is_run "whose batches grow" "${grown[@]}" --dp 2 --eval-interval 0
refuse "sizes that miss the batch" 2 "which increments reach" "${grown[@]}" --rampup-batch-size 4,5,36
refuse "a ramp of a pipeline" 2 "does not go with a pipeline" "${grown[@]}" --pp 2 --pp-split 1,1,1,0
finish
