#!/bin/bash
# test_plan_advice.sh GPT_TRAIN - what a plan says that does not fit: each proposal is tried, as a plan
# and as a run. And what a plan says of itself.
#
# ctest: arguments gpt_train, timeout 120, builds plain
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"
printf 'All happy families are alike; each unhappy family is unhappy in its own way. %.0s' {1..60} >text

small=(--n-layer 2 --n-head 4 --n-embd 64 --seq-len 32 --steps 2 --eval-interval 0 --device cpu
    --threads-per-rank 1)

# plan NAME FLAG...: ends well, and writes plan.json.
plan()
{
    local name=$1
    shift
    timeout -s KILL 120 "$gpt_train" --plan "$@" --json plan.json >out 2>err &&
        result "$name" "" || result "$name" "exit status $?"
}

# shows NAME PATTERN...: each is in the file `out`.
shows()
{
    local name=$1 pattern problem=''
    shift
    for pattern in "$@"; do
        grep -qE -- "$pattern" out || problem+=" '$pattern' is not said;"
    done
    result "$name" "$problem"
}

# proposals_hold NAME FLAG...: each proposal in plan.json, planned with the flags that it was made for,
# has the peak, FLOPs and traffic that it names, and fits.
proposals_hold()
{
    local name=$1
    shift
    python3 - "$gpt_train" "$@" >problem 2>&1 <<'EOF'
import json, subprocess, sys
program, *flags = sys.argv[1:]
given = json.load(open("plan.json"))["plan"]
if given["fits"] or not given["advice"]: print("no advice:", given)

def planned(more):
    done = subprocess.run([program, "--plan", *flags, *more, "--json", "again.json"],
                          capture_output=True, text=True)
    if done.returncode: return print(more, done.stderr)
    return json.load(open("again.json"))

for line in given["advice"]:
    plan = planned(line["flags"].split())
    if not plan: continue
    moved = sum(c["bytes"] for c in plan["collectives"])
    if not plan["plan"]["fits"] or plan["memory"]["peak"] != line["peak"]: print("another peak", line)
    if plan["flops"] != line["flops"] or moved != line["traffic"]: print("another cost", line, moved)
    if "ranks" in line["cost"] and line["ranks"] <= 2: print("ranks?", line)
EOF
    result "$name" "$(cat problem)"
}

# Enough is wrong with this one that single flags help: the cheap ones come first.
one=("${small[@]}" --dp 4 --tp 2 --strategy no_shard --global-batch-size 32)
plan "a plan" "${one[@]}"
peak=$(python3 -c 'import json; print(json.load(open("plan.json"))["memory"]["peak"])')
plan "one with less memory" "${one[@]}" --device-memory $((peak * 9 / 10))
shows "says what would fit" "^does not fit in .* too much; the most is " \
    "^what would fit, with the peak, the cheapest first" "^ +[0-9.]+ [KM]iB  --micro-batch-size 4: .*more micro-steps" \
    "^ +[0-9.]+ [KM]iB  --strategy [a-z0-9_]+: FLOPs \+0 %, traffic [+-][0-9]+ %$" \
    "--recompute (block|attention): FLOPs \+[0-9]+ %"
proposals_hold "and each does" "${one[@]}" --device-memory $((peak * 9 / 10))
result "at most eight" "$([ "$(grep -cE '^ +[0-9.]+ [KM]iB  --' out)" -le 8 ] || echo more)"

# Experts of a mixture over several data-parallel ranks take less of each.
mixture=("${small[@]}" --arch llama --n-expert 16 --moe-top-k 1 --moe-ffn 256 --dp 4 --global-batch-size 4)
plan "a mixture with less memory" "${mixture[@]}" --device-memory 11MiB
shows "splits its experts" "^ +[0-9.]+ [KM]iB  --ep [24]: .*tokens move to experts"
proposals_hold "and that does" "${mixture[@]}" --device-memory 11MiB

# On a machine each has a time, and the fastest comes first.
cat >machine.json <<'END'
{"weft_machine": 1, "device": {"memory": 1e9, "bf16": 1e12, "fp32": 1e11, "products": 0.5, "attention": 0.5,
 "bandwidth": 1e11}, "host": {"devices": 8, "background": true}, "inside": {"bandwidth": 1e10, "latency": 1e-6},
 "network": {"bandwidth": 1e9, "latency": 1e-5}}
END
plan "one with less memory on a machine" "${one[@]}" --device-memory $((peak * 9 / 10)) --machine machine.json
shows "says times" "time [+-][0-9]+ %"
result "the fastest first" "$(python3 -c '
import json
times = [line["seconds"] for line in json.load(open("plan.json"))["plan"]["advice"]]
print("" if times == sorted(times) and times[0] > 0 else times)')"

# Nothing alone is enough: flags together; and only with other numbers, or more ranks.
plan "one with a third" "${one[@]}" --device-memory $((peak / 3))
shows "needs several flags" "^no single flag is enough that keeps the numbers; these fit, the cheapest first"
proposals_hold "which fit" "${one[@]}" --device-memory $((peak / 3))
plan "one with an eighth" "${one[@]}" --device-memory $((peak / 8))
shows "needs several" "^no single flag is enough that keeps the numbers; these fit" "ranks|other numbers"
proposals_hold "which fit as well" "${one[@]}" --device-memory $((peak / 8))
# Flags together that keep the numbers come before one that changes them.
plan "one with two fifths" "${one[@]}" --device-memory $((peak * 2 / 5))
python3 - >problem 2>&1 <<'EOF'
import json
lines = json.load(open("plan.json"))["plan"]["advice"]
other = ["other numbers" in line["cost"] for line in lines]
if not lines or other != sorted(other) or other[0]: print(lines)
EOF
result "keeps the numbers first" "$(cat problem)"
plan "a plan of nothing" "${one[@]}" --device-memory 4KiB
shows "fits nowhere" "^nothing fits, of [0-9]+ plans; all that saves memory together takes:" \
    "^ +[0-9.]+ [KM]iB  --.*--optimizer sgd"
plan "one that fits" "${one[@]}" --device-memory "$peak"
shows "has no advice" "^fits in .* and leaves 0 B$"
result "none at all" "$(grep -E 'would fit|together' out)"

# A run under the limit: its error names flags with which it trains.
timeout -s KILL 60 "$gpt_train" "${one[@]}" --data text --device-memory $((peak * 9 / 10)) >out 2>err
result "a run that needs more" "$([ $? = 1 ] || echo "another status")"
result "says so in one line" "$([ "$(wc -l <err)" = 1 ] || echo "several lines")"
said=$(grep -oE 'a rank needs .*what fits, the cheapest first: --[^(]*takes' err |
    grep -oE -- '--.*') || result "with flags" "none"
read -ra flags <<<"${said% takes}"
timeout -s KILL 60 "$gpt_train" "${one[@]}" --data text --device-memory $((peak * 9 / 10)) \
    "${flags[@]}" >out 2>err
result "with ${flags[*]} it trains" "$([ $? = 0 ] || echo "it does not")"

# The largest micro-batch, where the global batch does not divide.
batch=("${small[@]}" --dp 3 --global-batch-size 16 --device-memory 4MiB)
plan "a batch that does not divide" "${batch[@]}" --find-batch
shows "is chosen" "^the largest micro-batch that fits: --micro-batch-size [0-9]+ --global-batch-size [0-9]+$" \
    "^  the global batch is 1 micro-step x 3 data parallel ranks x the micro-batch, where --global-batch-size 16 was given$" \
    "^fits in 4.00 MiB"
read -ra chosen <<<"$(grep -oE -- '--micro-batch-size.*' out)"
plan "the same by its flags" "${batch[@]}" "${chosen[@]}"
shows "fits" "^fits in 4.00 MiB"
micro=$((chosen[1] + 1))
plan "one more" "${batch[@]}" --micro-batch-size $micro --global-batch-size $((3 * micro))
shows "does not fit" "^does not fit in 4.00 MiB"
plan "micro-steps that do not divide" "${batch[@]}" --find-batch --micro-batch-size 2
shows "are as many" "^  the global batch is 3 micro-steps x 3 "

# What a plan says of itself.
plan "a plan with recomputation in bf16" "${small[@]}" --dp 48 --global-batch-size 48 --recompute block \
    --dtype bf16
shows "says whose FLOPs" "[0-9.e+]+ model FLOPs a step, of this rank; [0-9.e+]+ \([0-9]+ % more\) are extra"
shows "what is stored" "^  stored units are fp32 masters, which count as optimizer state"
shows "how even the shards are" "^  this rank's shards are [0-9]+ % above the mean of all: "
shows "what it leaves out" "^  not counted: code, stacks, .*fragmentation"
plan "a plan of even shards in fp32" "${small[@]}" --dp 4
result "has no such lines" "$(grep -E 'stored units|above the mean|of recomputation' out)"
finish
