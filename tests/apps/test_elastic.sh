#!/bin/bash
# test_elastic.sh BUILD - gpt_train --elastic on: a run that loses a rank goes on, on the same mesh or a smaller one, with the
# digest of one that lost none; each step is logged once, and checkpoints are those that were due. scripts/proofs/elastic.py does
# hundreds of such runs at random moments.
#
# ctest: arguments build, heavy
set -uo pipefail

build=$(cd "$1" && pwd)
gpt_train=$build/apps/gpt_train
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

for ((i = 0; i < 300; i++)); do
    echo "On day $i the cat sat on mat $((i * i % 89))."
done >text
small=(--data text --n-layer 1 --n-embd 32 --n-head 4 --seq-len 16 --global-batch-size 8 --steps 6 --eval-interval 2
    --eval-iters 1 --micro-batch-size 1 --threads-per-rank 1 --digest --stall-timeout 3)

# steps FILE: the steps that it has, with their digests.
steps()
{
    python3 -c 'import json, sys
for row in map(json.loads, open(sys.argv[1])):
    if "step" in row:
        print(row["step"], row["digest"], row["val_loss"])' "$1"
}

run "a run that loses no rank" "${small[@]}" --log-jsonl whole.jsonl
steps whole.jsonl >whole

# goes_on NAME FAULT TIMES FLAG..: a fault, after which the run continues, and says so in TIMES lines; a blank NAME is not reported.
goes_on()
{
    local name=$1 fault=$2 times=$3 got problem=''
    shift 3
    rm -f lost.jsonl
    WEFT_FAULT=$fault WEFT_FAULT_MS=${moment:-0} timeout -s KILL 60 "$build/tests/hosts/gpt_train_faulty" "${small[@]}" \
        --elastic on --log-jsonl lost.jsonl "$@" >out 2>err
    got=$?
    [ $got = 0 ] || problem+=" exit status $got: $(tail -n 1 err);"
    steps lost.jsonl | cmp -s - whole || problem+=" other steps;"
    [ "$(grep -cE 'after step|restarts' err)" = "$times" ] || problem+=" $(cat err);"
    [ "$(wc -l <err)" = "$times" ] || problem+=" $(wc -l <err) lines on stderr;"
    result "$name" "$problem"
}

buddy=(--dp 4 --redundancy buddy)
goes_on "a device that is gone in forward" "lose forward 1 3" 1 "${buddy[@]}"
goes_on "in the update, which the others have made" "lose optimizer 2 3" 1 "${buddy[@]}"
goes_on "before the first step is made" "lose forward 0 1" 1 "${buddy[@]}"
goes_on "in the last step" "lose optimizer 3 6" 1 "${buddy[@]}"
goes_on "a rank that returns early" "leave reduce_scatter 1 3" 1 "${buddy[@]}" --strategy shard_grad_op
goes_on "a rank that stalls" "stall optimizer 3 3" 1 "${buddy[@]}"
goes_on "a smaller mesh, and the larger one when ranks are back" "lose forward 1 2" 2 "${buddy[@]}" --rejoin-after 2
result "of three ranks, which do not divide the batch" "$(grep -q -- '--dp 3 --tp 1, ' err || cat err)"
goes_on "groups of which three are left" "lose forward 2 3" 1 --dp 8 --strategy hybrid_shard --dp-replicate 4 --rejoin-after 10
result "and continue" "$(grep -q -- '--dp 6 --tp 1, ' err || cat err)"
goes_on "copies need no buddies" "lose forward 1 3" 1 --tp 2 --dp 2 --strategy no_shard --rejoin-after 10
goes_on "stages of a pipeline" "lose F 1 3" 1 --pp 2 --dp 2 --redundancy buddy
moment=3 goes_on "at any moment" "vanish step 2 3" 1 "${buddy[@]}" --tp 2

mixture=(--arch llama --n-expert 4 --moe-top-k 2 --moe-balance bias)
run "a mixture that loses no rank" "${small[@]}" "${mixture[@]}" --log-jsonl mixture.jsonl
mv whole dense
steps mixture.jsonl >whole
goes_on "a rank that has experts" "lose forward 1 3" 1 "${buddy[@]}" "${mixture[@]}" --ep 4 --moe-dispatch exchange --rejoin-after 10
result "which fewer ranks split then" "$(grep -q -- '--dp 2 --tp 1 --ep 2, ' err || cat err)"
goes_on "on one data-parallel rank" "lose forward 1 2" 2 --tp 2 --dp 2 --ep 4 --redundancy buddy "${mixture[@]}" --moe-dispatch exchange --rejoin-after 2
result "until ranks are back" "$(grep -q -- '--dp 1 --tp 2 --ep 2, ' err && grep -q -- '--dp 2 --tp 2 --ep 4, ' err || cat err)"
mv dense whole

rm -rf saved
goes_on "a run that saves" "lose forward 1 3" 1 "${buddy[@]}" --save saved --save-interval 3
result "and what was due is saved" "$([ -d saved/step-00000003 ] && [ -d saved/step-00000006 ] || ls saved)"
WEFT_FAULT="lose forward 1 5" "$build/tests/hosts/gpt_train_faulty" "${small[@]}" "${buddy[@]}" --elastic on \
    --resume saved/step-00000003 --log-jsonl more.jsonl >out 2>err
result "a run that continues from a checkpoint" "$(steps more.jsonl | cmp - <(tail -n 3 whole) 2>&1 || cat err)"

# Three of four ranks: by micro-batches of one sequence these have the numbers of one as well.
run "twelve sequences on one rank" "${small[@]}" --global-batch-size 12 --log-jsonl twelve.jsonl
WEFT_FAULT="lose forward 1 3" "$build/tests/hosts/gpt_train_faulty" "${small[@]}" "${buddy[@]}" --global-batch-size 12 --micro-batch-size 3 \
    --elastic on --rejoin-after 10 --log-jsonl three.jsonl >out 2>err
result "continue with three" "$(grep -q -- '--dp 3' err || cat err; cmp <(steps three.jsonl) <(steps twelve.jsonl) 2>&1)"

# A rank and its buddy: what they held is nowhere.
rm -rf saved
WEFT_FAULT_WITH=2 goes_on "a rank and its buddy, with a checkpoint" "lose forward 1 5" 1 "${buddy[@]}" --save saved --save-interval 3
result "and that is said" "$(grep -q 'the run continues from a checkpoint, --pp 1 --dp 4' err && grep -q 'no rank that is left has' err &&
    grep -q 'saved/step-00000003, after step 3' out || cat out err)"
WEFT_FAULT="lose forward 1 5" WEFT_FAULT_WITH=2 "$build/tests/hosts/gpt_train_faulty" "${small[@]}" "${buddy[@]}" --elastic on \
    >out 2>err
result "and without one" "$([ $? = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'no rank that is left has' err &&
    grep -q 'there is no checkpoint to continue from' err || cat err)"

WEFT_FAULT="lose forward 1 3" "$build/tests/hosts/gpt_train_faulty" "${small[@]}" "${buddy[@]}" --elastic on --min-dp 4 \
    --rejoin-after 2 >out 2>err
result "too few ranks are left" "$([ $? = 4 ] && [ "$(wc -l <err)" = 1 ] &&
    grep -q '3 ranks are left, and no --dp from --min-dp 4 on' err || cat err)"
result "how many processes fit is all that is said" "$("$gpt_train" "${small[@]}" --dp 3 --redundancy buddy --elastic on \
    --recovery-dir /dev/shm/none --nnodes 3 --fit-nodes 2 2>&1 | grep -v '^2$')"
refuse "shards without a copy" 2 "use --redundancy buddy, or --strategy no_shard or hybrid_shard" "${small[@]}" --dp 2 \
    --elastic on
refuse "experts without a copy" 2 "or its own experts: use --redundancy buddy" "${small[@]}" "${mixture[@]}" --dp 2 --ep 2 --strategy no_shard \
    --elastic on
refuse "one data parallel rank" 2 "and --dp is 1: use --dp 2 or more" "${small[@]}" --tp 2 --elastic on
refuse "a buddy for one rank" 2 "--redundancy buddy is held by other data-parallel ranks" "${small[@]}" --redundancy buddy
refuse "a buddy of what all hold" 2 "with --strategy no_shard others hold it, too" "${small[@]}" --dp 2 --strategy no_shard --redundancy buddy
refuse "a plan of it" 2 "with --strategy hybrid_shard others hold it, too" "${small[@]}" --plan --dp 4 --strategy hybrid_shard \
    --shard-group-size 2 --redundancy buddy
refuse "a plan that cannot continue" 2 "and --dp is 1: use --dp 2 or more" "${small[@]}" --plan --elastic on
refuse "a buddy of zero1" 2 "strategy zero1 keeps the optimizer's state" "${small[@]}" --dp 2 --strategy zero1 \
    --redundancy buddy
refuse "a buddy of muon" 2 "as a whole matrix or from whole rows" "${small[@]}" "${buddy[@]}" --optimizer muon
refuse "an elastic run of muon" 2 "ranks make the update of .* together \(muon, adafactor\)" "${small[@]}" --dp 2 --strategy no_shard \
    --optimizer muon --elastic on
refuse "fewest ranks of no elastic run" 2 "--min-dp belongs to --elastic on" "${small[@]}" --min-dp 2
refuse "more than there are" 2 "--min-dp 8 is more than --dp 4" "${small[@]}" "${buddy[@]}" --elastic on --min-dp 8
rm lost.jsonl
run "copies that are the same" "${small[@]}" "${buddy[@]}" --verify-every 1 --log-jsonl lost.jsonl
result "and change nothing" "$(steps lost.jsonl | cmp - whole 2>&1)"
"$gpt_train" "${small[@]}" "${buddy[@]}" --verify-every 2 --flip-bit 4:2:block.0.mlp.up.weight.v:5:20 >out 2>err
result "a flipped bit is found" "$([ $? = 3 ] && [ "$(wc -l <err)" = 1 ] &&
    grep -q 'rank 2 and its buddy, rank 3, do not hold the same second moment of block.0.mlp.up.weight after step 4' err || cat err)"
refuse "copies that do not exist" 2 "--verify-every compares copies that --redundancy buddy makes" "${small[@]}" --dp 2 \
    --verify-every 1
run "a plan" "${small[@]}" "${buddy[@]}" --plan --json plan.json
result "has what a buddy takes" "$(grep -q 'copies of a buddy  *[1-9]' out || cat out)"
finish
