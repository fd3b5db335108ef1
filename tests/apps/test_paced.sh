#!/bin/bash
# test_paced.sh GPT_TRAIN PACED_PY [--sanitized] - a run that takes the time of another machine has the bits of one that does
# not, and takes what a plan says of that machine.
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
sed 's/"background"/"cores": 2, "background"/' machine.json >shared.json
refused "ranks that share cores" "leave out host.cores" --paced shared.json

if [ -z "$sanitized" ]; then
    "$script" "$gpt_train" --runs 6 --seconds .3 --allow 3,10 >out 2>err && result "simulated and measured" "" ||
        result "simulated and measured" "$(cat out err | tail -8)"
fi
finish
