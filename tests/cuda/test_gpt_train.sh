#!/bin/bash
# test_gpt_train.sh GPT_TRAIN EMULATED BUILD - gpt_train --device as a user meets it: on the emulated
# device in folder EMULATED, and with the plugin for GPUs in BUILD (where nvcc was found), which has
# to load and to say in one line what is wrong where there is no driver or GPU.
set -uo pipefail

gpt_train=$1 emulated=$2 build=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cases=0 failures=0
for i in $(seq 200); do echo "line $i of a text that is quite easy to learn"; done >text.txt
tiny=(--data text.txt --n-layer 1 --n-head 2 --n-embd 16 --ffn 32 --seq-len 16
    --global-batch-size 4 --steps 2 --eval-interval 0)

# result NAME PROBLEM: a line per case; no problem is a pass.
result()
{
    cases=$((cases + 1))
    if [ -z "$2" ]; then
        echo "ok    $1"
    else
        failures=$((failures + 1))
        echo "FAIL  $1: $2"
        sed 's/^/      stderr: /' err | head -5
        tail -3 out | sed 's/^/      stdout: /'
    fi
}

# run NAME FLAG...: ends well.
run()
{
    local name=$1
    shift
    if timeout -s KILL 120 "$gpt_train" "${tiny[@]}" "$@" >out 2>err; then
        result "$name" ""
    else
        result "$name" "exit status $?"
    fi
}

# refuse NAME PATTERN FLAG...: exits with 2 after one line that has PATTERN.
refuse()
{
    local name=$1 pattern=$2 problem=''
    shift 2
    timeout -s KILL 20 "$gpt_train" "${tiny[@]}" "$@" >out 2>err
    local got=$?
    [ $got = 2 ] || problem+=" exit status $got, not 2;"
    [ "$(wc -l <err)" = 1 ] || problem+=" $(wc -l <err) lines on stderr;"
    grep -qE -- "$pattern" err || problem+=" '$pattern' is not said;"
    result "$name" "$problem"
}

digest()
{
    grep -oE 'digest [0-9a-f]{16}' out | tail -1
}

export WEFT_PLUGINS=$emulated
run "on the emulated device" --device cuda --digest --tp 1 --dp 1
one=$(digest)
run "four ranks on it" --device cuda --digest --tp 2 --dp 2
[ -n "$one" ] && [ "$(digest)" = "$one" ] && result "they have one digest" "" ||
    result "they have one digest" "'$one' and '$(digest)'"
run "a sample from it" --device cuda --sample 4
run "saved" --device cuda --save there
run "and gone on with on the CPU" --device cpu --resume there --steps 3
grep -q 'step 3/3' out && result "from where it was" "" || result "from where it was" "no step 3"
run "a plan" --device cuda --plan --tp 2
WEFT_EMULATOR_DEVICES=2 run "four ranks on two GPUs" --device cuda --digest --tp 2 --dp 2
[ "$(digest)" = "$one" ] && grep -q '^device cuda: 4 ranks share 2 GPUs' err &&
    result "which is said" "" || result "which is said" "digest '$(digest)', or not said"
problem=''
"$(dirname "$gpt_train")/bench" attention --device cuda --shapes 48x16 --quick --json >out 2>err ||
    problem="exit status $?"
[ "$(grep -cE '"(forward|backward)".*"tflops":[0-9.]*[1-9]' out)" = 2 ] || problem+=" not two figures"
result "bench attention" "$problem"
WEFT_EMULATOR_DEVICES=0 refuse "a driver without a GPU" "--device cuda: no GPU .*use --device cpu" \
    --device cuda
WEFT_EMULATOR_DEVICES=0 run "a plan needs no GPU" --device cuda --plan

if [ -f "$build/libweft_cuda.so" ]; then
    export WEFT_PLUGINS=$build
    CUDA_VISIBLE_DEVICES=-1 refuse "the real plugin, no GPU" \
        "--device cuda: (this machine has no NVIDIA driver|no GPU can be).*use --device cpu" \
        --device cuda
    CUDA_VISIBLE_DEVICES=-1 run "its plan" --device cuda --plan
    CUDA_VISIBLE_DEVICES=-1 run "auto, no GPU" --device auto
    grep -qE '^device auto: the CPU serves, since ' err && result "auto says so" "" ||
        result "auto says so" "not said"
fi

echo "$((cases - failures)) of $cases cases passed"
exit $((failures > 0))
