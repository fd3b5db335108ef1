#!/bin/bash
# test_chakra.sh GPT_TRAIN CHAKRA_READ - a planned step as Chakra execution traces: read back, their bytes are those of the
# plan of each rank, all ends meet, and all ranks come to their ends. Without protobuf-c the flag says so.
#
# ctest: arguments gpt_train chakra_read, builds plain
set -uo pipefail

gpt_train=$1 reader=$2 here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"

model=(--arch llama --n-layer 4 --n-head 4 --n-embd 64 --seq-len 16 --global-batch-size 8 --micro-batch-size 1 --eval-interval 0)

# refused NAME STATUS WORDS FLAG...
refused()
{
    local name=$1 status=$2 words=$3
    shift 3
    "$gpt_train" "${model[@]}" "$@" >out 2>err
    [ $? = "$status" ] || { result "$name" "does not exit with $status" && return; }
    grep -qF -- "$words" err && result "$name" "" || result "$name" "says: $(head -c 300 err)"
}

refused "traces of a run" 2 "--chakra belongs to a plan" --chakra traces
if [ ! -x "$reader" ]; then
    refused "without protobuf-c" 1 "--chakra needs protobuf-c, and this program was built without it" --plan --chakra traces
    finish
fi

# traces NAME FLAG...: written, and right.
traces()
{
    local name=$1
    shift
    rm -rf traces
    "$gpt_train" --plan "${model[@]}" "$@" --chakra traces >out 2>err || { result "$name" "is not written" && return; }
    python3 "$here/chakra/check.py" "$gpt_train" "$reader" traces "${model[@]}" "$@" >reported 2>problem && result "$name: $(cat reported)" "" ||
        result "$name" "$(head -c 600 problem)"
}
traces "one rank"
traces "data parallelism" --dp 4
traces "ZeRO 1" --dp 2 --strategy zero1 --accumulate local
traces "HSDP, group sums" --dp 4 --strategy hybrid_shard --shard-group-size 2 --accumulate group:2
traces "tensor parallelism" --tp 4 --sequence-parallel --dtype bf16
traces "all of them" --tp 2 --dp 2 --pp 2 --recompute attention
traces "zero bubble" --pp 4 --pp-schedule zb-h1
traces "a V schedule" --pp 2 --pp-schedule zb-v --dp 2 --strategy shard_grad_op
traces "uneven parts" --tp 3 --n-head 3 --n-embd 60 --vocab-size 257
traces "a tied head over stages" --arch gpt2 --pp 2 --tp 2

# Ranks that are alike are planned once for all, and a last time to see that they are.
"$gpt_train" --plan "${model[@]}" --pp 2 --tp 2 --dp 4 --n-embd 512 --vocab-size 512 --chakra alike >out 2>err &&
    grep -q '^alike: 16 execution traces of 16 ranks, of 4 plans' out && result "ranks that are alike" "" ||
    result "ranks that are alike" "$(tail -1 out)"

# One rank alone; and its file is the same as that among all of them.
"$gpt_train" --plan "${model[@]}" --pp 2 --tp 2 --dp 4 --n-embd 512 --vocab-size 512 --rank 9 --chakra alone >out 2>err &&
    cmp alone/weft.9.et alike/weft.9.et >problem 2>&1 && cmp alone/weft.groups.json alike/weft.groups.json >>problem 2>&1 &&
    [ "$(ls alone)" = $'weft.9.et\nweft.groups.json' ] && result "one rank alone" "" || result "one rank alone" "$(cat problem; ls alone)"

# Times of a machine: ops' microseconds add up to what a step takes by its sizes, in which an op that joins others (linear2_swiglu, linear1_add,
# linear3_rope, rmsnorm_grad) is one, too; but for the squares of the norm, which are no op.
for case in "llama bf16 none" "llama bf16 attention" "llama bf16 block" "gpt2 bf16 none" "llama fp32 none"; do
    read -r arch dtype recompute <<<"$case"
    rm -rf timed
    "$gpt_train" --plan "${model[@]}" --arch "$arch" --n-embd 1024 --seq-len 2048 --dtype "$dtype" --recompute "$recompute" \
        --machine "$here/../../docs/machines/h100.json" --chakra timed --json plan.json >out 2>err
    "$reader" timed/weft.0.et >nodes && python3 - >problem 2>&1 <<'EOP' && result "times of a machine: $case" "" || result "times of a machine: $case" "$(cat problem)"
import json
nodes = [json.loads(line) for line in open("nodes")][1:]
step = json.load(open("plan.json"))["plan"]["time"]["seconds"]
ops = sum(n["micros"] for n in nodes if n["type"] == "COMP_NODE") * 1e-6
assert .985 * step < ops < 1.008 * step, f"a step takes {step} s, its ops {ops}"
EOP
done

touch traces/weft.77.et
refused "traces of another plan" 2 "traces has weft.77.et, and this plan has ranks 0 to 1 alone" --plan --dp 2 --chakra traces
touch file
refused "a folder that cannot be" 3 "cannot make folder file: Not a directory" --plan --chakra file/traces
refused "a file instead of it" 3 "cannot make folder file" --plan --chakra file
refused "a search" 2 "--chakra writes one layout" --plan --search --machine "$here/../../docs/machines/h100.json" --chakra traces

# No room: an error that names the file, and what was there stays.
mkdir -p limited
(ulimit -f 8; trap '' XFSZ; "$gpt_train" --plan "${model[@]}" --chakra limited >out 2>err)
status=$?
[ $status = 3 ] && grep -q 'cannot write limited/weft.0.et: File too large' err && [ -z "$(ls limited)" ] && result "no room" "" ||
    result "no room" "exit $status: $(head -c 300 err) $(ls limited)"
finish
