#!/bin/bash
# test_rows.sh GPT_TRAIN GPT_EXPORT MACHINE - programs with one row more in strategies.def, schedules.def, dtype.def and families.def
# (tests/rows/): each is in --help, planned, searched and exported without another line.
#
# ctest: arguments rows_gpt_train rows_gpt_export docs/machines/h100.json, builds plain, timeout 60
set -uo pipefail

gpt_train=$1 gpt_export=$2 machine=$3
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"

# run NAME PROGRAM FLAG...: ends well.
run()
{
    local name=$1
    shift
    "$@" >out 2>err && result "$name" "" || result "$name" "exit status $?"
}

# shows NAME PATTERN...: each is in out.
shows()
{
    local name=$1 problem= pattern
    shift
    for pattern in "$@"; do
        grep -qE -- "$pattern" out || problem="$problem '$pattern' is not there;"
    done
    result "$name" "$problem"
}

small=(--n-layer 4 --n-embd 64 --n-head 4 --seq-len 32 --global-batch-size 16)
sed 's/"bf16": \(.*\),/"bf16": \1, "row16": 9e15,/' "$machine" >machine.json

run "help" "$gpt_train" --help
tr -s ' \n' ' ' <out >one && mv one out
shows "it lists them" 'zero1, row_shard, ' 'list, row-waves\]' '\[fp32, bf16, row16\] \(default: fp32\)' 'llama4_text, rows\]'
run "completion" "$gpt_train" --completion bash
shows "it offers them" '--strategy\).* row_shard ' '--pp-schedule\).* row-waves"' '--dtype\).* row16"' '--arch\).* rows"'

run "a plan" "$gpt_train" --plan "${small[@]}" --arch rows --dp 2 --pp 2 --strategy row_shard --pp-schedule row-waves --dtype row16
shows "it has them" 'strategy row_shard' 'rows of 4 blocks' 'their row16 copy'
"$gpt_train" --plan "${small[@]}" --dp 2 --dtype row16 --compute fp32 2>err | sed s/row16/bf16/ >one
run "the same of another type" "$gpt_train" --plan "${small[@]}" --dp 2 --dtype bf16 --compute fp32
diff one out >err && result "takes the same bytes" "" || result "takes the same bytes" "not so"
run "a plan that does not fit" "$gpt_train" --plan "${small[@]}" --n-embd 1024 --dp 4 --strategy no_shard --device-memory 40MiB
shows "is advised to take them" '--strategy row_shard'

run "a search" "$gpt_train" --plan --search --json found.json --machine machine.json "${small[@]}" --arch rows --ranks 8 --pp 2 --seq-len 256
shows "it tries them" 'strategy row_shard|--strategy row_shard' 'schedule row-waves|--pp-schedule row-waves' '--dtype row16'
run "of one schedule" "$gpt_train" --plan --search --machine machine.json "${small[@]}" --ranks 8 --pp 2 --pp-schedule row-waves --strategy row_shard
shows "finds layouts" '^ +1 .*--pp-virtual 2' 

printf 'A text of some length, of which a model learns a step or two. %.0s' {1..40} >text
run "a run" "$gpt_train" --data text "${small[@]}" --arch rows --n-kv-head 2 --dp 2 --pp 2 --strategy row_shard --pp-schedule row-waves \
    --steps 1 --eval-interval 0 --save saved --digest
digest=$(sed -n 's/.*digest //p' out)
run "of one rank" "$gpt_train" --data text "${small[@]}" --arch rows --n-kv-head 2 --steps 1 --eval-interval 0 --digest
shows "has the same digest" "digest $digest"
"$gpt_train" --data text "${small[@]}" --dtype row16 --steps 1 >out 2>err && problem="it ran" || problem=
grep -q 'a plan takes every' err || problem="$problem another error"
result "a type without kernels is refused" "$problem"

run "an export" "$gpt_export" saved folder --dtype row16 --gguf file.gguf --tokenizer none
shows_in() { grep -qaE "$3" "$2" && result "$1" "" || result "$1" "not so"; }
shows_in "to transformers" folder/config.json '"model_type": "rows"'
shows_in "by its class" folder/config.json '"RowsForCausalLM"'
shows_in "as the type that the row says" folder/model.safetensors '"dtype":"BF16"'
shows_in "to llama.cpp" file.gguf 'general.architecture.*rows.block_count'
run "back" "$gpt_train" --data text --init-from folder --steps 1 --seq-len 32 --global-batch-size 2 --eval-interval 0
run "and from llama.cpp's" "$gpt_export" file.gguf again --tokenizer none
shows_in "as the same family" again/config.json '"model_type": "rows"'
"$gpt_export" saved other --dtype row9 >out 2>err
grep -q 'none of f32, bf16, row16, f16 and nf4' err && result "an error lists them" "" || result "an error lists them" "no"
finish
