#!/bin/bash
# test_search.sh GPT_TRAIN MACHINES [--sanitized] - the search for a layout: what it lists fits by a plan of its own with the
# time that was said, no neighbour is faster, data parallelism is compared, and counts add up.
#
# ctest: arguments gpt_train docs/machines sanitized, cost 50, builds plain
set -uo pipefail

gpt_train=$1 machines=$2 sanitized=${3:-}
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"

# search NAME FLAG...: ends well, and writes search.json.
search()
{
    local name=$1
    shift
    rm -f search.json
    timeout -s KILL 200 "$gpt_train" --plan --search --json search.json "$@" >out 2>err &&
        result "$name" "" || result "$name" "exit status $? $(head -c 300 err)"
}

# refused NAME WORDS FLAG...
refused()
{
    local name=$1 words=$2
    shift 2
    "$gpt_train" "$@" >out 2>err && result "$name" "was not refused" && return
    grep -qF -- "$words" err && result "$name" "" || result "$name" "says: $(head -c 300 err)"
}

# holds NAME FLAG...: every line of search.json, planned with its flags, fits, and takes the bytes and the time that were said; lines are in
# order; data parallelism alone is not faster than the first; all that was considered is accounted for.
holds()
{
    local name=$1
    shift
    python3 - "$gpt_train" "$@" >problem 2>&1 <<'EOF'
import json, shlex, subprocess, sys
program, *flags = sys.argv[1:]
with open("search.json") as file:
    search = json.load(file)
top, plain = search["top"], search["plain"]
if not top:
    sys.exit("the list is empty")
if [f["seconds"] for f in top] != sorted(f["seconds"] for f in top):
    sys.exit("the list is not in order")
if plain and plain["seconds"] < top[0]["seconds"]:
    sys.exit("data parallelism alone is faster than the first line")
left = sum(search["left_out"].values())
if left + len(top) != search["considered"]:
    sys.exit(f"{search['considered']} were considered, and {left} + {len(top)} reported")
for found in top[:3] + top[-1:] + ([plain] if plain else []):
    words = shlex.split(found["flags"])
    command = [program, "--plan", *flags, *words, "--json", "plan.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    with open("plan.json") as file:
        plan = json.load(file)
    if not plan["plan"]["fits"]:
        sys.exit(f"does not fit: {found['flags']}")
    if found["peak"] != plan["memory"]["peak"]:
        sys.exit(f"{found['peak']} bytes were said, and a plan says {plan['memory']['peak']}: {found['flags']}")
    said, planned = found["seconds"], plan["plan"]["time"]["seconds"]
    if abs(said - planned) > 1e-9 * said:
        sys.exit(f"{said} s were said, and a plan says {planned}: {found['flags']}")
    if abs(sum(found["path"].values()) - said) > 1e-6 * said:
        sys.exit(f"the path is {sum(found['path'].values())} of {said} s")
EOF
    result "$name" "$(head -c 600 problem)"
}

# faster NAME SECONDS: the search took less of a core.
faster()
{
    local work
    work=$(python3 -c 'import json; print(json.load(open("search.json"))["work"])')
    python3 -c "import sys; sys.exit(not $work < $2)" && result "$1" "" ||
        result "$1" "it took $work s, and $2 are allowed"
}

h100=$machines/h100.json
small=(--model llama-3.2-1b --seq-len 4096 --global-batch-size 32 --dtype bf16 --machine "$h100"
    --device-memory 24GiB)
search "a model of a billion on 8 devices" "${small[@]}"
holds "its list" "${small[@]}"
grep -q 'devices compute .* % of it, micro-batches of up to [0-9]* fit' out && grep -q 'is enough' out &&
    result "the simple layouts beside it" "" || result "the simple layouts beside it" "are not there"
shows_why=$(grep -c '^  \(tp\|pp\|recompute\|micro\|strategy\)' out)
[ "$shows_why" -ge 3 ] && result "it says why" "" || result "it says why" "in $shows_why lines"

fixed=(--model llama-3.2-1b --seq-len 2048 --global-batch-size 16 --dtype bf16 --machine "$h100"
    --device-memory 40GiB --pp 2 --tp 2)
search "axes that are given" "${fixed[@]}" --ranks 8
holds "their list" "${fixed[@]}"
grep -q 'pp 4' out && result "given axes stay" "pp 4 is compared" || result "given axes stay" ""

# Without data parallelism a run takes all its sequences at once: the list says how many it means.
alone=(--arch llama --n-layer 6 --n-head 4 --n-embd 96 --seq-len 32 --global-batch-size 16 --dtype bf16 --machine "$h100" --pp 4)
search "a pipeline alone" "${alone[@]}" --ranks 4
holds "its list" "${alone[@]}"
grep -q -- '--micro-batch-size' search.json && result "its micro-batches" "" || result "its micro-batches" "are not printed"

# A mixture: layouts that split its experts over data-parallel ranks are tried beside those that gather them.
mixture=(--arch llama --n-layer 8 --n-head 16 --n-embd 1024 --ffn 4096 --n-expert 16 --moe-top-k 2 --seq-len 256 --global-batch-size 16
    --dtype bf16 --machine "$h100" --pp 1 --tp 1)
search "a mixture on 16 devices" "${mixture[@]}" --ranks 16
holds "its list" "${mixture[@]}"
grep -q -- '--ep' search.json && grep -q '^  ep [0-9]' out && result "experts over ranks and not" "" ||
    result "experts over ranks and not" "$(grep -c -- --ep search.json) with ep"
search "a mixture whose ep is given" "${mixture[@]}" --ranks 16 --ep 4 --moe-imbalance 1.5
holds "its list" "${mixture[@]}" --ep 4 --moe-imbalance 1.5
grep -q '^  ep [0-9]' out && result "given ep stays" "another one is compared" || result "given ep stays" ""
refused "features over other ranks than tp's" "--etp 2 with --tp 4: the ranks of --tp are one axis of the mesh" "${mixture[@]}" --plan --search \
    --tp 4 --etp 2 --ranks 16
refused "experts over no whole ranks of tp" "--ep 3 with --tp 2: the tokens of a sequence meet on its --tp ranks" "${mixture[@]}" --plan --search \
    --tp 2 --ep 3 --ranks 16

# What a run refuses is not listed, and not said to be too large: it is counted apart, and the first one's words are printed.
few=(--arch llama --n-layer 4 --n-head 4 --n-embd 64 --seq-len 2048 --global-batch-size 8 --machine "$h100" --device-memory 1GiB)
# lists_only NAME FLAG WORDS FLAG...: every layout has the flag, and the words are in the output.
lists_only()
{
    local name=$1 flag=$2 words=$3
    shift 3
    search "$name" "${few[@]}" --ranks 4 "$@"
    holds "its list" "${few[@]}" "$@"
    python3 -c 'import json, sys; sys.exit(any(sys.argv[1] not in f["flags"].split() for f in json.load(open("search.json"))["top"]))' "$flag" &&
        grep -q -- "$words" out && result "$name, those that run" "" || result "$name, those that run" "$(grep -- '--' out | head -c 600)"
}
lists_only "rows beside products" --tp "^data parallelism alone is refused, by any strategy" --tp-comm-overlap on
grep -q 'refused for another reason than memory: --tp-comm-overlap is for .*, and --tp is 1' out && result "why" "" || result "why" "$(head -c 900 out)"
lists_only "a form of attention over cp" --cp "refused for another reason than memory: --cp-form gather is what ranks of --cp do" --cp-form gather
planned=$(python3 -c 'import json; print(json.load(open("search.json"))["planned"])')
[ "$planned" -le 50 ] && result "they are not planned" "" || result "they are not planned" "$planned plans"
lists_only "messages in parts" --tp "refused for another reason than memory: --pp-send split is for" --pp 2 --pp-send split
lists_only "tokens over tp" --tp "refused for another reason than memory: --sequence-parallel splits tokens over .*, and --tp is 1" --sequence-parallel
search "tokens are not to be split" "${few[@]}" --ranks 4 --tp 2 --sequence-parallel=off
holds "its list" "${few[@]}" --tp 2 --sequence-parallel=off
grep -q '^data parallelism alone is no layout of what was asked for' out && result "data parallelism is not asked for" "" ||
    result "data parallelism is not asked for" "$(grep '^data' out)"
lists_only "copies of a buddy" --dp "refused for another reason than memory: --redundancy buddy " --redundancy buddy
grep -q '^  tp 2 .* is refused$' out && result "nor times beside the first line's" "" || result "nor times beside the first line's" "$(tail -n 30 out)"
lists_only "a schedule without ranks of a pipeline" --pp "refused for another reason than memory: --pp-schedule belongs to a pipeline, and --pp is 1" \
    --pp-schedule gpipe
lists_only "a run that continues" --dp "refused for another reason than memory: --elastic on continues with" --elastic on
refused "a rank of many layouts" "--rank is of the plan of one layout" --plan --search "${few[@]}" --rank 0
refused "batches of many layouts" "--find-batch is of one layout" --plan --search "${few[@]}" --find-batch
# What follows the steps decides as well.
python3 -c 'import json; print(json.dumps({"request": {"context": "a cat " * 600, "continuation": " sat"}, "doc_id": 0, "label": 0}))' >long.jsonl
seq 3000 >text
short=(--data text --arch llama --n-layer 4 --n-head 4 --n-embd 64 --seq-len 16 --positions 4000 --global-batch-size 8 --machine "$h100"
    --dtype bf16 --pp 1 --device-memory 4MiB)
search "layouts of short sequences" "${short[@]}" --ranks 2
holds "their list" "${short[@]}"
search "with a long question after them" "${short[@]}" --ranks 2 --eval-requests long.jsonl
grep -q 'no layout fits' out && result "none fits" "" || result "none fits" "$(head -c 300 out)"
refused "loads without times" "--moe-imbalance is for times of a plan" --n-expert 4 --moe-imbalance 2

search "one that fits nowhere" --model llama-3.1-70b --seq-len 8192 --global-batch-size 8 \
    --dtype bf16 --machine "$h100" --device-memory 1GiB
grep -q 'no layout fits' out && result "it says so" "" || result "it says so" "$(head -c 200 out)"

if [ -z "$sanitized" ]; then
    large=(--model llama-3.1-405b --seq-len 8192 --global-batch-size 2048 --dtype bf16
        --machine "$h100" --device-memory 80GB)
    search "405 billion on 16,384 devices" "${large[@]}" --ranks 16384
    faster "in 20 s of a core" 20 # twice what docs/planning.md says, for cores of half the clock
fi

for file in "$machines"/*.json; do
    "$gpt_train" --plan --machine "$file" --dtype bf16 --json plan.json >out 2>err &&
        grep -q 'a step takes' out && grep -q 'these times are known to be off by' out && result "$(basename "$file")" "" ||
        result "$(basename "$file")" "$(head -c 200 err)"
done
"$gpt_train" --plan --machine "$h100" --dtype bf16 --pp 2 --dp 2 --n-layer 4 --global-batch-size 32 \
    --micro-batch-size 1 >out 2>err
grep -q '^gradients: --accumulate local, which moves least of what fits' out && grep -q 'a step takes' out &&
    result "sums once a step where that fits" "" || result "sums once a step where that fits" "$(head -c 300 out)"
refused "a search without a machine" "--search simulates layouts on a machine" --plan --search
refused "a machine without a plan" "--machine is for a plan, and for the MFU of steps that run, and --steps is 0" --machine "$h100" --steps 0
refused "ranks without a search" "--ranks belongs to --plan --search" --plan --ranks 8
refused "a machine that is not there" "machine file nowhere.json" --plan --machine nowhere.json
refused "fp32 on a machine without" "has no device.fp32" --plan --machine "$machines/tpu-v5p.json"
finish
