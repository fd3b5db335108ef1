#!/bin/bash
# test_paced.sh GPT_TRAIN PACED_PY [--sanitized] - a run that takes the time of another machine has the bits of one that does
# not, and takes what a plan says of that machine; and this machine's own figures.
#
# ctest: arguments gpt_train scripts/proofs/paced.py sanitized, cost 50, builds plain
set -uo pipefail

gpt_train=$1 script=$2 sanitized=${3:-}
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"

cat >machine.json <<'EOM'
{"weft_machine": 1, "name": "slow",
 "device": {"memory": 1e9, "bf16": 1e9, "fp32": 1e9, "products": 1, "attention": 1, "bandwidth": 1e9},
 "host": {"devices": 4, "background": true},
 "inside": {"bandwidth": 1e9, "latency": 1e-5}, "network": {"bandwidth": 1e8, "latency": 1e-4}}
EOM
yes 'All happy families are alike.' | head -c 20000 >text
model=(--arch llama --n-layer 4 --n-head 4 --n-embd 32 --seq-len 16 --global-batch-size 8 --micro-batch-size 1
    --eval-interval 0 --data text --steps 2 --digest)

digests()
{
    "$gpt_train" "${model[@]}" "$@" 2>err | awk '/^step/ { print $NF }'
}

for layout in "--pp 4" "--pp 2 --pp-schedule zb-v --tp 2" "--dp 2 --tp 2" "--pp 2 --dp 2 --strategy shard_grad_op"; do
    # shellcheck disable=SC2086
    own=$(digests $layout) paced=$(digests $layout --paced machine.json)
    [ -n "$own" ] && [ "$own" = "$paced" ] && result "bits of $layout" "" || result "bits of $layout" "$own, $paced $(cat err)"
done

# refused NAME WORDS FLAG...
refused()
{
    local name=$1 words=$2
    shift 2
    "$gpt_train" "${model[@]}" "$@" >out 2>err && result "$name" "was not refused" && return
    grep -qF -- "$words" err && result "$name" "" || result "$name" "says: $(head -c 300 err)"
}
refused "a scale without a machine" "belongs to --paced" --paced-scale 2
refused "a machine that is not there" "machine file nowhere.json" --paced nowhere.json
sed 's/"fp32": 1e9/"fp32": 1/' machine.json >slow.json
refused "a rate in other units" "device.fp32 is 1: give a number from 1e+06 to 1e+21, in FLOP/s" --paced slow.json
sed 's/"fp32": 1e9, "products": 1/"fp32": 1e6, "products": 1e-3/' machine.json >slow.json
refused "an op that would sleep for hours" "s on the machine whose pace this run has, and an op may take 600 s" \
    --paced slow.json --n-embd 512
sed 's/"background"/"cores": 2, "background"/' machine.json >shared.json
refused "ranks that share cores" "leave out host.cores" --paced shared.json

# What is measured here is read by a plan.
shape=(--arch llama --n-layer 2 --n-head 4 --n-embd 64 --seq-len 32 --micro-batch-size 1)
"$gpt_train" --calibrate here.json "${shape[@]}" >out 2>err && grep -q '^here.json: products .* FLOP/s' out &&
    "$gpt_train" --plan --machine here.json "${shape[@]}" --pp 2 --steps 2 >out 2>err && grep -q 'a step takes' out &&
    result "figures of this machine" "" || result "figures of this machine" "$(cat out err | head -c 300)"
refused "a plan that measures" "use one of the two" --plan --calibrate here.json

# A table of one's own has a time, too.
cat >table <<'EOT'
weft-schedule 1
stages 2   micro 2   place 0 1
0: F0.0 F0.1 B0.0 B0.1
1: F1.0 B1.0 F1.1 B1.1
EOT
"$gpt_train" --plan --machine machine.json "${shape[@]}" --global-batch-size 2 --pp 2 --pp-schedule table >out 2>err &&
    grep -q 'a step takes' out && result "the time of a table" "" || result "the time of a table" "$(head -c 300 err)"

if [ -z "$sanitized" ]; then
    six=("$script" "$gpt_train" --runs 6 --seconds .3 --allow 3,10 --tries 4 --state state.json)
    "${six[@]}" --most 0 >out 2>err
    [ $? = 3 ] && grep -q '^0 are measured' out && result "a part without time" "" || result "a part without time" "$(cat out err)"
    "${six[@]}" >out 2>err && result "simulated and measured" "" || result "simulated and measured" "$(cat out err | tail -8)"
    "${six[@]}" --most 0 >again 2>err && cmp -s out again && result "a run that continues" "" ||
        result "a run that continues" "$(cat again err | tail -8)"
    "${six[@]}" --seed 2 >out 2>err
    grep -q 'is of another command line' err && result "another one's measurements" "" ||
        result "another one's measurements" "$(cat out err)"
fi
finish
