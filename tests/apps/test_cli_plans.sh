#!/bin/bash
# test_cli_plans.sh GPT_TRAIN [--sanitized] - plans, timelines, and runs that memory has no room for.
#
# ctest: arguments gpt_train sanitized, builds plain, cost 50
set -uo pipefail

gpt_train=$1 sanitized=${2:-}
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

for flags in "" "--tp 4 --sequence-parallel" "--dp 4 --micro-batch-size 1 --dropout 0.1" \
    "--dp 2 --dtype bf16 --strategy zero1" "--dp 2 --tp 2 --param-dtype bf16" \
    "--tp 2 --dp 2 --arch llama --n-kv-head 2 --rank 1" \
    "--n-layer 2 --pp 2 --pp-schedule zb-v --dp 2 --micro-batch-size 1 --rank 0" \
    "--pp 3 --tp 2 --micro-batch-size 1 --rank 2" "--tp 3 --seq-len 8 --optimizer sgd"; do
    read -ra more <<<"$flags"
    plan_is_run "with $flags" "${tiny[@]}" "${more[@]}" --eval-interval 1
done
shows "a plan" "^plan of rank 2 of 3: pp 1 x replicate 1 x shard 1 x tp 3; strategy [a-z0-9_]+$" \
    "^  root +1 +4256 +[0-9.]+ KiB +-$" "^  block +1 +3280 " \
    "parameters +[0-9.]+ KiB +[0-9.]+ KiB$" "^  peak +[0-9.]+ KiB in (for|back)ward of " \
    "bytes per parameter" "tp +3 all_reduce +[0-9]+ +[0-9]+ +0 +[0-9]+$" "FLOPs"
# Ranks of which there are no 1, 2, 4, ..: micro-batches by which they have the numbers of one.
run "a plan of three data-parallel ranks" "${tiny[@]}" --dp 3 --global-batch-size 12 --strategy no_shard --plan
shows "its micro-batches" "^batches: --micro-batch-size 1 --accumulate reduced, with which 3 data-parallel ranks have the numbers"
run "with 0, which is no choice" "${tiny[@]}" --dp 3 --global-batch-size 12 --micro-batch-size 0 --plan
result "the same" "$(grep -q "^batches: --micro-batch-size 1" out || cat out)"
run "with micro-batches that are given" "${tiny[@]}" --dp 3 --global-batch-size 12 --micro-batch-size 2 --plan
result "it says what they cost" "$(! grep -q "^batches" out && grep -q "dp 3 is not a power of two, and adds sums of 2 sequences" out err ||
    cat out err)"
# Other strategies: a refused one is a row with its reason, and those that may choose their sums as a run does.
few=(--dp 3 --tp 3 --global-batch-size 4)
run "a plan whose other strategies are refused" "${tiny[@]}" "${few[@]}" --plan --json plan.json
shows "they have a row each" "^  --strategy shard_grad_op +[0-9.]+ KiB peak" \
    "^  --strategy zero1 +refused: global batch 4 is not a multiple of dp 3 x micro-batch 1"
python "JSON has the reason" '
import json
rows = {row["name"]: row for row in json.load(open("plan.json"))["plan"]["strategies"]}
if "peak" not in rows["shard_grad_op"] or "multiple of dp 3" not in rows["no_shard"]["refused"]: print(rows)'
refuse "its plan" 2 "^gpt_train: global batch 4 is not a multiple of dp 3" "${tiny[@]}" "${few[@]}" --strategy zero1 --plan
run "a plan whose other strategies take single sequences" "${tiny[@]}" --dp 3 --global-batch-size 12 --plan
shows "they are planned so" "^  --strategy no_shard +[0-9.]+ KiB peak" "^  --strategy zero1 +[0-9.]+ KiB peak"
# A pipeline: a line for each rank on its axis, and the plan of the one that takes most.
pipeline=("${tiny[@]}" --n-layer 5 --pp 4 --micro-batch-size 1 --plan --eval-interval 0)
run "a plan of a pipeline" "${pipeline[@]}" --device-memory 40KiB --json plan.json
shows "its ranks" "what a rank of each stage takes" "^  0 .* KiB  backward of .*: (fits|does not fit)$" "^  3 "
python "it is that of the fullest" '
import json
plan = json.load(open("plan.json"))
stages = plan["plan"]["stages"]
fullest = max(stages, key=lambda s: s["peak"])
if [s["pp"] for s in stages] != [0, 1, 2, 3] or len({s["peak"] for s in stages}) < 3: print(stages)
if plan["rank"] != fullest["rank"] or plan["memory"]["peak"] != fullest["peak"]: print(plan)
if plan["mesh"]["pp"] != 4: print(plan["mesh"])'
run "stages" "${tiny[@]}" --n-layer 2 --pp 2 --dp 2 --pp-schedule zb-v --pp-split 2,0,1,1 --show-layout --steps 0
shows "who has what" "^  0 +0 +[0-9]+  embed to block.0$" "^  1 +1 +0  none: " "^  2 +1 +[0-9]+  block.1$" \
    "^  3 +0 +[0-9]+  norm to " "on pp p ranks are p x 2 higher:$"
# Models by name: the counts of parameters are those of their model cards.
while read -r name count; do
    run "a plan of $name" --model "$name" --plan --global-batch-size 1
    shows "its parameters" " $count parameters; "
done <<'END'
gpt2 124439808
gpt2-xl 1557611200
llama-2-7b 6738415616
codellama-34b 33743970304
llama-3-8b 8030261248
llama-3.1-405b 405853388800
llama-3.2-1b 1235814400
smollm2-135m 134515008
mistral-nemo-12b 12247782400
qwen2.5-0.5b 494032768
qwen2.5-72b 72706203648
qwen3-0.6b 596049920
qwen3-1.7b 1720574976
qwen3-4b 4022468096
qwen3-8b 8190735360
mixtral-8x7b 46702792704
qwen3-30b-a3b 30532122624
olmoe-1b-7b 6919161856
qwen3-14b 14768307200
qwen3-32b 32762123264
smollm3-3b 3075098624
gemma-2b 2506172416
gemma-7b 8537680896
olmo-2-1b 1484916736
olmo-2-7b 7298617344
phi-3-mini 3821079552
phi-3-medium 13960238080
phi-3.5-mini 3821079552
phi-4-mini 3836021760
END
run "a smaller one of that kind" --model qwen2.5-0.5b --n-layer 2 --vocab-size 1000 --plan --global-batch-size 1
shows "what was given" "qwen2 of 2 blocks, 30721664 parameters"
refuse "a name that is none" 2 "--model 'llama-9' is unknown; use one of: none, gpt2, " --model llama-9 --plan
refuse "a scaling that is none" 2 "--rope-scaling llama3:8 is none of none, linear:FACTOR" --arch llama \
    --rope-scaling llama3:8 --plan
refuse "a scaling of what is learnt" 2 "--arch gpt2 learns its positions" --rope-scaling linear:2 --plan
long=longrope:16:1,1.5:2,9
refuse "factors of other heads" 2 "longrope has 2 short and long factors, and 8 pairs of features" --arch llama \
    --n-embd 64 --n-head 4 --rope-scaling $long --plan
refuse "lists that are none" 2 "--rope-scaling longrope:16:1,2:1 is none of none" --arch llama --rope-scaling longrope:16:1,2:1 --plan
refuse "a part that makes no pairs" 2 "--rotary-percent 0.2 rotates 3 of a head's 16 features.*use --rotary-percent 0.125" \
    --arch llama --n-embd 64 --n-head 4 --rotary-percent 0.2 --plan
refuse "a part of what is learnt" 2 "--rotary-percent is for RoPE" --rotary-percent 0.5 --plan
refuse "blocks without a window" 2 "--window-blocks 1 says which blocks have a window, and there is none" --arch llama \
    --window-blocks 1 --plan
refuse "a base of windows without one" 2 "--window-rope-base is of RoPE in blocks that have a window" --arch llama \
    --window-rope-base 100 --plan
refuse "a base of windows of what is learnt" 2 "--window-rope-base is of RoPE" --sliding-window 4 \
    --window-rope-base 100 --plan
refuse "a comparison of one rank" 2 "--check-replicas compares what several ranks hold alike, and there is one" --check-replicas 1 --plan
refuse "messages of one rank" 2 "--pp-depth is of messages between the ranks of --pp, and --pp is 1" --pp 1 --pp-depth 2 --plan
refuse "parts of no messages" 2 "--pp-send split is of messages between the ranks of --pp" --pp 1 --tp 2 --pp-send split --plan
refuse "layouts of a plan" 2 "--show-layout is of ranks that run, and --plan runs none" --show-layout --plan
refuse "the time of a plan" 2 "--paced FILE is the time of steps that run, and --plan runs none" --paced machine.json --plan
run "flags of axes that there are not" "${tiny[@]}" --prefetch 3 --accumulate local --reshard-after-forward never --plan
result "are named" "$(for flag in --prefetch --accumulate --reshard-after-forward; do grep -q "warning: $flag has no effect: " err || echo "$flag"; done)"
run "flags of axes that there are" "${tiny[@]}" --dp 2 --prefetch 3 --accumulate local --reshard-after-forward never --plan
result "are not" "$(grep 'no effect' err)"
refuse "a comparison that never comes" 2 "--check-replicas is more than --steps" --dp 2 --check-replicas 9 --steps 8 --plan
refuse "copies that are never compared" 2 "--verify-every is more than --steps" --dp 2 --redundancy buddy --verify-every 9 \
    --steps 8 --plan
refuse "blocks that are none" 2 "--window-blocks 2-9 is neither all nor a list of blocks below 6" --arch llama \
    --sliding-window 4 --window-blocks 2-9 --plan
refuse "blocks without experts that are none" 2 "--moe-dense 2-9 is neither none nor a list of blocks below 6" --arch llama \
    --n-expert 4 --moe-dense 2-9 --plan
refuse "no block with experts" 2 "--moe-dense 0-5 leaves no block its experts" --arch llama --n-expert 4 --moe-dense 0-5 --plan
mixture=("${tiny[@]}" --arch llama --n-expert 8 --moe-top-k 2 --moe-ffn 8 --dp 4 --ep 4 --seq-len 8 --global-batch-size 8)
run "a plan of a mixture" "${mixture[@]}" --plan
shows "rows of its experts" "experts take 32 rows of a block if loads are equal, 128 at most, .* tokens are exchanged, 8 sequences at a time$"
run "in waves" "${mixture[@]}" --moe-buffer 1.25 --plan
shows "with less room" "128 at most, with room for 40 at a time; tokens are exchanged, 4 sequences at a time$"
run "features that are a third" "${tiny[@]}" --arch llama --n-expert 8 --moe-top-k 1 --moe-ffn 56 --moe-dense 0 --n-layer 3 \
    --dp 4 --ep 4 --seq-len 84 --global-batch-size 4 --moe-dispatch exchange --moe-buffer 1 --plan
shows "count whole" "tokens are exchanged, 2 sequences at a time$"
run "with a gather and a buffer" "${mixture[@]}" --moe-dispatch gather --moe-buffer 1.25 --plan
shows "the same rows, gathered, with less room" "128 at most, with room for 40 at a time; tokens are gathered$"
refuse "a buffer without experts" 2 "--moe-buffer is for a mixture of experts" --arch llama --moe-buffer 1.25 --plan
refuse "an exchange with nobody" 2 "--moe-dispatch exchange moves tokens between .* with --ep 2 and --tp 2 none do" --arch llama \
    --n-expert 4 --moe-dispatch exchange --tp 2 --dp 2 --plan
refuse "branches beside each other and norms after them" 2 "--parallel-blocks on: .* --arch gemma2 .* leave it out" --arch gemma2 \
    --parallel-blocks on --plan
refuse "gelu by erf of a gated MLP" 2 "--gelu-erf on: .* --arch llama .* leave it out" --arch llama --gelu-erf on --plan
refuse "blocks by two rules" 2 "and so do --window-first and --window-skip" --arch llama --sliding-window 4 \
    --window-blocks 2-3 --window-first 1 --plan
turns=("${tiny[@]}" --arch llama --n-embd 64 --n-head 8 --n-layer 4 --seq-len 32 --rotary-percent 0.5 --rope-scaling $long
    --sliding-window 5 --window-blocks 0,2-3 --steps 2 --eval-interval 0 --digest)
run "long texts, a part that is rotated, windows of some blocks" "${turns[@]}" --save turned
grep -o 'digest .*' out >turned.txt
run "the same on tp 2 x dp 2" "${turns[@]}" --tp 2 --dp 2 --sequence-parallel
result "their digests are the same" \
    "$([ -s turned.txt ] || echo none; grep -o 'digest .*' out | diff turned.txt -)"
refuse "to continue with another list" 2 "window_blocks|window-blocks" "${turns[@]}" --save turned --window-blocks 0,2
refuse "an odd head of a llama" 2 "--head-dim 7 is odd.*use --head-dim 8" --arch llama --head-dim 7 --plan

# What --accumulate auto stands for, by the room that there is: the numbers are those of any other way.
rounds=(--data text.txt --n-layer 4 --n-head 4 --n-embd 128 --seq-len 16 --dp 4 --global-batch-size 64
    --micro-batch-size 1)
for case in "24MiB local" "15MiB group:4" "10MiB reduced"; do
    run "a plan in ${case% *}" "${rounds[@]}" --plan --device-memory "${case% *}"
    shows "what is chosen in ${case% *}" "^gradients: --accumulate ${case#* }, which moves least of what fits"
done
run "a plan in too little" "${rounds[@]}" --plan --device-memory 2MiB
result "no choice where nothing fits" "$(grep -e "--accumulate .* moves least" out)"
run "steps by its strategy" "${rounds[@]}" --steps 2 --eval-interval 0 --digest
grep -o 'digest .*' out >by_strategy.txt
run "steps in 15MiB" "${rounds[@]}" --device-memory 15MiB --steps 2 --eval-interval 0 --digest
shows "its choice" "^gradients: --accumulate group:4, .*; too large is group:8$"
result "their digests are the same" \
    "$([ -s by_strategy.txt ] || echo none; grep -o 'digest .*' out | diff by_strategy.txt -)"
run "all micro-steps at once" "${rounds[@]}" --plan --micro-batch-size 16 --device-memory 24MiB
result "no choice where there is one way" "$(grep -e "--accumulate .* moves least" out)"

run "the batch that fits" "${tiny[@]}" --plan --dp 2 --find-batch --device-memory 1MiB \
    --json plan.json
shows "the batch" "^the largest micro-batch that fits: --micro-batch-size [0-9]+ " "^fits in 1.00 MiB"
read -ra batch <<<"$(grep -o -- "--micro-batch-size.*" out)"
run "it fits in a run" "${tiny[@]}" --dp 2 --device-memory 1MiB "${batch[@]}" --eval-interval 0
micro=$((batch[1] + 1))
run "a plan of one sequence more" "${tiny[@]}" --plan --dp 2 --micro-batch-size $micro \
    --global-batch-size $((2 * micro)) --device-memory 1MiB
shows "it does not fit" "^does not fit in 1.00 MiB: .* too much; the most is "
run "no batch fits" "${tiny[@]}" --plan --find-batch --device-memory 9KiB
shows "which it says" "no micro-batch fits, not even one of 1 sequence" "does not fit in 9.00 KiB"

# A giant, of whose activations a plan takes more than 16 TiB in all: scripts/proofs/giants.py has them all.
giant=(--plan --arch llama --n-layer 126 --n-head 128 --n-kv-head 8 --n-embd 16384 --ffn 53248
    --vocab-size 128256 --seq-len 8192 --tp 8 --dp 8 --dtype bf16 --sequence-parallel
    --recompute block --device cpu)
if [ "$sanitized" != --sanitized ]; then
    run "405 billion parameters" "${giant[@]}" --micro-batch-size 4 --global-batch-size 32
    shows "the giant" "llama of 126 blocks, 405[0-9]{9} parameters"
    run "the batch of a giant" "${giant[@]}" --find-batch --micro-batch-size 1 --global-batch-size 8 \
        --device-memory 400GiB
    shows "it" "^the largest micro-batch that fits: --micro-batch-size [0-9]+ "
fi

# What full_shard needs is too little for no_shard, which says what there is most of, and what fits.
wide=("${tiny[@]}" --dp 4 --n-embd 128 --eval-interval 0)
run "a plan under full_shard" "${wide[@]}" --strategy full_shard --plan --json plan.json
cap=$(python3 -c 'import json; print(json.load(open("plan.json"))["memory"]["peak"])')
refuse "no_shard with too little memory" 1 \
    "in use, most for [a-z ]+: [0-9]+, .*a rank needs .*, most for .*what fits, .*--strategy [a-z_]+ takes" \
    "${wide[@]}" --strategy no_shard --device-memory "$cap"
said=$(cat err)
run "a plan under no_shard" "${wide[@]}" --strategy no_shard --plan --device-memory "$cap"
largest=$(sed -n 's/^does not fit.*; the most is //p' out)
result "which has named the largest kind" \
    "$(grep -q "MiB, most for ${largest:?};" <<<"$said" || echo "$largest: $said")"
run "full_shard with the same memory" "${wide[@]}" --strategy full_shard --device-memory "$cap"

# Timelines
run "a timeline" "${tiny[@]}" --dp 2 --tp 2 --steps 4 --trace t.json --trace-steps 2-4 \
    --eval-interval 0 --digest
shows "its summary" "shard +all_gather +[0-9]+ +[0-9.]+ +[0-9]+ % +[0-9.]+$" "tp +all_reduce +[0-9]+ " \
    "of rank 3, in steps 2 to 4; 0 events found no room"
traced=$(grep -o "digest .*" out)
python "the timeline" '
import collections, json
events = json.load(open("t.json"))
rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
for rank in range(4):
    if rows.get((rank, 0)) != "compute" or rows.get((rank, 1)) != "communication": print(rows)
count, through = collections.Counter(), {}
for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
    row, end = (e["pid"], e["tid"]), e["ts"] + e["dur"]
    if e["ts"] < 0 or e["dur"] < 0 or row not in rows: print(e)
    if (e["cat"] == "transfer") != (e["tid"] > 0): print(e)
    if e["cat"] in ("transfer", "wait") and not {"axis", "kind", "bytes"} <= e["args"].keys(): print(e)
    if e["cat"] in ("phase", "host"): continue # contain others
    if e["ts"] < through.get(row, 0) - 2e-3: print("overlaps", e)
    through[row] = end
    count[e["pid"], e["cat"], e["args"].get("axis"), e["args"].get("kind")] += 1
for rank in range(4):
    if not count[rank, "op", None, None]: print("no kernels of rank", rank)
    for cat in "transfer", "wait":
        if count[rank, cat, "shard", "all_gather"] != 9: print(count) # 2 a block, 1 the root
        if count[rank, cat, "world", "broadcast"] != 3: print(count) # the norm
phases = [e["name"] for e in events if e.get("cat") == "phase" and e["pid"] == 0]
if phases.count("forward") != 3 or phases.count("optimizer") != 3: print(phases)'
run "the same without" "${tiny[@]}" --dp 2 --tp 2 --steps 4 --eval-interval 0 --digest
result "has the same digests" "$([ "$traced" = "$(grep -o "digest .*" out)" ] || echo differ)"
run "a profile" "${tiny[@]}" --dp 2 --tp 2 --steps 4 --eval-interval 0 --digest --profile 5 --trace-steps 2-4 --memory-timeline memory.svg --rank 1
shows "its rows" "^profile of steps 2 to 4 on 4 ranks" "^  others " "^  all ops .* %" "^  neither .* %" "^  3 +[0-9.]+ " "GFLOP/s of products"
result "has the same digests" "$([ "$traced" = "$(grep -o "digest .*" out)" ] || echo differ)"
peak=$(grep -o 'peak: [0-9,]* bytes' memory.svg)
run "its plan" "${tiny[@]}" --dp 2 --tp 2 --steps 4 --eval-interval 0 --plan --memory-timeline memory.svg --rank 1
result "has the same peak of memory" "$([ "$peak" ] && [ "$peak" = "$(grep -o 'peak: [0-9,]* bytes' memory.svg)" ] || echo "$peak")"
run "a timeline of a pipeline" "${tiny[@]}" --pp 2 --tp 2 --pp-schedule zb-v --pp-split 1,1,1,0 --steps 4 --trace p.json \
    --eval-interval 0 --digest
result "has the same digests" "$([ "$traced" = "$(grep -o "digest .*" out)" ] || echo differ)"
python "its actions and messages" '
import collections, json
events = json.load(open("p.json"))
named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
actions = collections.defaultdict(list)
for e in sorted((e for e in events if e.get("cat") == "action"), key=lambda e: e["ts"]):
    row = actions[e["pid"]]
    if named[e["pid"], e["tid"]] != "pipeline" or row and e["ts"] < row[-1]["ts"] + row[-1]["dur"] - 2e-3: print(e)
    row.append(e)
for rank in range(4): # twice all that its row has
    names = collections.Counter(e["name"] for e in actions[rank])
    if set(names.values()) != {2} or not {"NORM", f"F{rank // 2}.0"} <= set(names): print(names)
ends = collections.defaultdict(dict)
for e in events:
    if e["ph"] in "sf":
        inside = [a for a in actions[e["pid"]] if a["ts"] <= e["ts"] <= a["ts"] + a["dur"]]
        if len(inside) != 1 or e["tid"] != inside[0]["tid"]: print("outside", e)
        if e["ph"] in ends[e["id"]]: print("twice", e)
        ends[e["id"]][e["ph"]] = inside[0], e["ts"]
sends = sum(e["name"].startswith("SEND") for row in actions.values() for e in row)
if not sends or len(ends) < sends: print(len(ends), "arrows of", sends)
for end in ends.values():
    (send, begun), (recv, over) = end["s"], end["f"]
    (a, i), (b, j) = ((e["name"][:6], e["name"][6:].split(".")) for e in (send, recv))
    step = {"SEND_F": 1, "SEND_B": -1}.get(a)
    if a == "TIE" == b: continue
    if (not step or b != "RECVD_" or j[1] != i[1] or int(j[0][1:]) != int(i[0]) + step or over < begun
            or send["pid"] % 2 != recv["pid"] % 2): print(send, recv)'
python "ranks are in order" '
import json
events = json.load(open("t.json"))
if sorted({e["pid"] for e in events}) != list(dict.fromkeys(e["pid"] for e in events)): print("not in the file")
order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
if order != {r: r for r in range(4)}: print(order)'

for steps in 2-3 2-1000000; do
    begun "^step *5/" "${tiny[@]}" --dp 2 --tp 2 --steps 1000000 --trace killed.json --trace-steps $steps \
        --eval-interval 5
    python "the timeline of steps $steps meanwhile" 'import json; json.load(open("killed.json"))'
    kill -KILL $! && wait $! 2>/dev/null
    python "and when it was killed" '
import json, sys
ranks = {e["pid"] for e in json.load(open("killed.json"))}
if ranks != (set(range(4)) if sys.argv[1] == "2-3" else set()): print(ranks)' $steps
done
problem=$(
    trap '' XFSZ
    ulimit -f 4 # KiB of a file: the timeline has no room, the rest has
    timeout -s KILL 60 "$gpt_train" "${tiny[@]}" --steps 4 --trace full.json --trace-steps 2-4 --eval-interval 0 >out 2>err ||
        echo "exit status $?"
)
result "a timeline that finds no room ends no run" "$problem$(grep -q "^step *4/" out &&
    grep -q "warning: .*full.json: File too large; the run continues without its timeline" err || cat out err)"
refuse "a timeline of no step" 2 "--trace-steps 3-9 goes beyond --steps 3" "${tiny[@]}" \
    --trace t.json --trace-steps 3-9

# What will not fit says so at once: under ulimit, and beside what the machine has.
large=(--data text.txt --seq-len 16 --steps 1 --eval-interval 0 --device cpu)
refuse "more memory than there is" 1 \
    "does not fit: the tensors of the 2 ranks .* optimizer state, and .* leaves .*--memory-check off" \
    "${large[@]}" --n-layer 400 --n-embd 16384 --n-head 128 --dp 2
if [ "$sanitized" != --sanitized ]; then
    timeout -s KILL 60 bash -c 'ulimit -d 700000; exec "$@"' - "$gpt_train" "${large[@]}" \
        --n-layer 4 --n-embd 1024 --n-head 8 >out 2>err
    result "a run that ulimit -d does not allow" "$([ $? = 1 ] &&
        grep -q "this run does not fit: .* RLIMIT_DATA .ulimit -d. .* leaves" err || cat err)"
fi

# A sample holds keys and values of its whole text, where training with recomputation holds less: what it takes
# is in the plan, to the digits that are reported, and a run that has room for all but that is not started.
sampling=(--data text.txt --n-layer 64 --n-embd 32 --n-head 1 --seq-len 1024 --recompute block --optimizer sgd
    --dp 4 --device cpu --global-batch-size 4 --micro-batch-size 1 --threads-per-rank 1 --eval-interval 0)
prompt=(--sample 1 --sample-prompt "$(printf 'a cat sat. %.0s' {1..50})")
if [ "$sanitized" != --sanitized ]; then
    between=(timeout -s KILL 60 bash -c 'ulimit -d 95000; exec "$@"' - "$gpt_train" "${sampling[@]}")
    "${between[@]}" --steps 1 >out 2>err
    result "training alone is begun" "$(grep "this run does not fit" err)"
    "${between[@]}" --steps 1 "${prompt[@]}" >out 2>err
    result "and none to sample" "$([ $? = 1 ] && grep -q "this run does not fit" err || cat err)"
    mib=$(sed -n 's/.*4 ranks of this process take \([0-9.]*\) MiB.*/\1/p' err)
    for part in 0.99 1.001; do
        timeout -s KILL 60 "$gpt_train" "${sampling[@]}" --steps 1 "${prompt[@]}" \
            --device-memory "$(awk "BEGIN {printf \"%d\", ${mib:-0} / 4 * 1048576 * $part}")" >out 2>err
        result "a rank takes what the plan says: $part of it" \
            "$([ $? = "$([ $part = 0.99 ] && echo 1 || echo 0)" ] || cat err)"
    done
    run "a model to sample from" "${sampling[@]}" --steps 1 --save sampled
    "${between[@]}" --steps 0 "${prompt[@]}" --resume sampled >out 2>err
    result "nor where nothing is trained" "$([ $? = 1 ] && grep -q "this run does not fit" err || cat err)"
fi

# Sizes of Llama 3.1 405B on 16,384 ranks, all strategies: 0.4 s, three times that on any machine, and twice the memory that is
# promised.
if [ "$sanitized" != --sanitized ]; then
    python "a plan of 405 billion parameters" '
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:] + ["--json", "big.json"], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
if used.ru_utime + used.ru_stime > 1.2 or used.ru_maxrss > 400000: print(used)
big = json.load(open("big.json"))
if big["model"]["parameters"] != 405853388800: print(big["model"])' \
        "$gpt_train" --plan --arch llama --n-layer 126 --n-embd 16384 --n-head 128 --n-kv-head 8 \
        --ffn 53248 --vocab-size 128256 --seq-len 8192 --tp 8 --dp 2048 \
        --global-batch-size 2048 --sequence-parallel
    python "a plan of 1000 blocks takes four times as long as one of 250" '
import resource, subprocess, sys
def seconds(blocks):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(sys.argv[1:] + ["--n-layer", blocks], stdout=subprocess.DEVNULL, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
small, large = min(seconds("250") for i in range(3)), seconds("1000")
if large > 9 * small: print(small, large)' \
        "$gpt_train" --plan --arch llama --dp 4 --strategy full_shard --dropout 0.1
fi

finish
