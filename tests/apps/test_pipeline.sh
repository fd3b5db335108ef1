#!/bin/bash
# test_pipeline.sh GPT_TRAIN [--sanitized] - training over pipeline stages as a user meets it: losses, validation losses, digests
# and samples are those of one rank, the first lines say what runs, and what cannot run is refused.
#
# ctest: arguments gpt_train sanitized, builds plain, cost 50
set -uo pipefail

gpt_train=$1 sanitized=${2:-}
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"
schedule=$bin/schedule

plain=(--data text.txt --n-layer 6 --n-head 4 --n-embd 16 --seq-len 16 --global-batch-size 8
    --micro-batch-size 1 --dropout 0.1 --steps 4 --digest)
small=("${plain[@]}" --eval-interval 2 --eval-iters 2)

# same NAME FLAG...: every step, evaluation and sample is as it was on one rank.
same()
{
    local name=$1
    shift
    rm -f log.jsonl
    run "$name" "${small[@]}" --sample 12 "$@" --log-jsonl log.jsonl
    sed -n '/^--- sample/,$p' out >sample.txt
    [ -s one_sample.txt ] || cp log.jsonl one.jsonl
    [ -s one_sample.txt ] || cp sample.txt one_sample.txt
    python "$name: the numbers of one rank" '
import json
keys = ("step", "loss_bits", "grad_norm", "digest", "val_loss")
a, b = ([[row.get(key) for key in keys] for row in map(json.loads, open(name)) if "step" in row]
        for name in ("one.jsonl", "log.jsonl"))
if len(a) != 4 or not a[3][4] or a[0][3] == a[3][3]: print("no numbers:", a)
for mine, other in zip(a, b):
    if mine != other: print(other, "and not", mine)
if len(a) != len(b): print(len(b), "steps")'
    result "$name: the sample of one rank" "$(diff one_sample.txt sample.txt)"
}

# Tables: made, and turned round by hand.
"$schedule" gen zb-h1 --pp 2 --micro 8 >mine.sched
sed -e 's/place 0 1/place 1 0/' -e 's/^0:/x:/; s/^1:/0:/; s/^x:/1:/' mine.sched >turned.sched
"$schedule" lower zb-h1 --pp 2 --micro 8 --depth 3 --tied >lowered.sched
printf '0F0,0F1,,,0F2,0B0,0F3,0B1,0F4,0B2,0F5,0B3,0F6,0B4,0F7,0B5,0B6,0B7\n' >torch.csv
printf ',1F0,1F1,1B0,1B1,1F2,1B2,1F3,1B3,1F4,1B4,1F5,1B5,1F6,1B6,1F7,1B7\n' >>torch.csv
sed -E '/^0:/s/ I(0\.[0-9])/ R\1 I\1/g' mine.sched >again.sched
cat >overlap.sched <<'END'
weft-schedule 1
stages 3  micro 4  place 0 1 0
0: F0.0 F0.1 F2.0 (F0.2 + B2.0) F2.1 (F0.3 + B2.1) B0.0 F2.2 B2.2 B0.1 F2.3 B2.3 B0.2 B0.3
1: F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3
END

{
    printf 'weft-schedule 1\nstages 2  micro 8  place 0 1\n'
    for r in 0 1; do
        echo "$r:" F$r.{0..7} I$r.{0..7} W$r.{0..7}
    done
} >last.sched

same "one rank"
python "its flags as a config" '
import json
with open("config.json", "w") as file: json.dump(json.loads(open("one.jsonl").readline())["options"], file)'
run "the same from that" --config config.json --log-jsonl none.jsonl
shows "is no pipeline" "^mesh: tp 1 x dp 1 on cpu"
same "two ranks" --pp 2
shows "its schedule, and that it was proved" "^mesh: pp 2 x tp 1 x dp 1 on cpu, " \
    "^schedule 1f1b: 2 ranks, 2 stages, 8 micro-batches, 32 actions, 16 messages, at most [0-9]+ in flight; no deadlock; peak 2 activations$"
same "all weights at the end, four micro-batches a product" --pp 2 --pp-schedule last.sched
"$schedule" lower last.sched >out
shows "products of four" "W0.0-3 W0.4-7 "
same "four ranks, weights later" --pp 4 --pp-schedule zb-h1 --pp-split 2,3,0,3
shows "its schedule" "^schedule zb-h1: 4 ranks, 4 stages, "
same "parts of messages" --pp 2 --tp 2 --pp-send split
same "a V, tensor and data parallel" --pp 2 --tp 2 --dp 2 --pp-schedule zb-v
shows "its schedule and mesh" "^mesh: pp 2 x tp 2 x dp 2 on cpu, full_shard, " "^schedule zb-v: 2 ranks, 4 stages, 4 micro"
same "stages of one rank" --pp 1 --pp-schedule interleaved --pp-virtual 3
shows "its stages" "^mesh: pp 1 x " "^schedule interleaved: 1 ranks, 3 stages, .*, 0 messages"
same "more than the usual stages" --pp 4 --pp-schedule looped-bfs --dp 2 --pp-resident 1 --strategy shard_grad_op
same "cut by names" --pp 2 --pp-schedule list --pp-split block.4 --pp-depth 4
same "a file of a table" --pp 2 --pp-schedule mine.sched
shows "its name" "^schedule mine.sched: 2 ranks, 2 stages, "
same "the last stage on the first rank" --pp 2 --pp-schedule turned.sched
same "a table with its messages" --pp 2 --pp-schedule lowered.sched
shows "of which there are three at a time" "^schedule lowered.sched: .*, at most 3 in flight"
same "stages recomputed" --pp 4 --pp-schedule zb-h1 --recompute stage
same "one stage recomputed" --pp 2 --pp-schedule again.sched
same "a table of PyTorch" --pp 2 --pp-schedule torch.csv
# As torch 2.15 writes them (scripts/peers/torch_schedules.py): messages, waits, gathers and reductions too.
torch=$(cd "$(dirname "$0")/../parallel/torch_schedules" && pwd)
for name in gpipe looped_bfs interleaved interleaved_zb zbv dualpipe_v; do
    same "PyTorch's $name" --pp 2 --pp-schedule "$torch/$name.csv"
done
refuse "PyTorch's 1f1b, whose last rank leaves out the first micro-batch" 2 \
    "1f1b.csv: rank 0, at the end of its row: F0.8 is not in it" "${small[@]}" --pp 2 --pp-schedule "$torch/1f1b.csv"
same "two stages on one rank, gathered where they overlap" --pp 2 --dp 2 --strategy shard_grad_op \
    --pp-schedule overlap.sched

# Nothing is trained in the first half of it, to which no gradient comes back.
frozen=("${small[@]}" --arch llama --freeze 'embed,block.0,block.1,block.2')
run "frozen, on one rank" "${frozen[@]}"
grep -o 'digest .*' out >one_frozen.txt
run "frozen, on four" "${frozen[@]}" --pp 4 --pp-schedule zb-h1
result "with the same digests" "$(grep -o 'digest .*' out | diff one_frozen.txt -)"

run "a plan" "${small[@]}" --pp 2 --plan
shows "of its fullest rank" "^plan of rank [01] of 2: pp 2 x "

# Memory: a step takes what the one before has given back.
steps=$([ -n "$sanitized" ] && echo 8 || echo 40)
run "many steps" "${plain[@]}" --steps "$steps" --eval-interval 0 --pp 4 --pp-schedule zb-h1 --dp 2
result "take no more memory" "$(sed -n 's/^step *\([0-9]*\)\/.*  mem \([0-9.]* [A-Za-z]*\) .*/\1 \2/p' out |
    awk -v steps="$steps" '$1 == 3 { at = $2 $3 } $1 > 3 && $2 $3 != at { print "step", $0, "and not", at } END { if ($1 != steps) print "no " steps " steps" }')"

# Mistakes
refuse "a schedule that is none" 2 "no schedule is called zb-h3; there are: 1f1b interleaved " "${small[@]}" \
    --pp 2 --pp-schedule zb-h3
refuse "more stages than steps" 2 "10 stages are more than the model's 8 steps: take fewer" "${small[@]}" \
    --pp 5 --pp-schedule zb-v
refuse "a table for other ranks" 2 "mine.sched is for 2 ranks, and the run has pp 4" "${small[@]}" \
    --pp 4 --pp-schedule mine.sched
refuse "a table for other stages" 2 "mine.sched has 2 stages on 2 ranks, and 2 a rank were asked for" \
    "${small[@]}" --pp 2 --pp-schedule mine.sched --pp-virtual 2
refuse "a table for other micro-batches" 2 "mine.sched is for 8 micro-batches, and a step has 4: change" \
    "${small[@]}" --pp 2 --dp 2 --pp-schedule mine.sched
sed 's/ W1\.5//' mine.sched >short.sched
refuse "an action that is missing" 2 "schedule short.sched: rank 1, at the end of its row: W1\.5 is not in it" \
    "${small[@]}" --pp 2 --pp-schedule short.sched
sed 's/ RECVD_F1\.3//' lowered.sched >cut.sched
refuse "a message that never ends" 2 "schedule cut.sched: rank 1, .*F1\.3" "${small[@]}" \
    --pp 2 --pp-schedule cut.sched
sed 's/ F0\.0 F0\.1/ F0.1 F0.0 F0.9/' mine.sched >wrong.sched
refuse "a micro-batch that is none" 3 "wrong.sched:3:[0-9]+: rank 0: F0\.9, but micro-batches go from 0 to 7" \
    "${small[@]}" --pp 2 --pp-schedule wrong.sched
# A stage's gradients take several buckets, which are reduced one after each action.
wide=(--data text.txt --n-layer 4 --n-head 8 --n-embd 800 --seq-len 8 --global-batch-size 8 --micro-batch-size 1
    --dp 2 --strategy zero1 --steps 1 --eval-interval 0 --digest)
run "wide stages, two a rank" "${wide[@]}" --pp 2 --pp-schedule interleaved
grep -o 'digest .*' out >two_digest.txt
if [ -z "$sanitized" ]; then
    run "wide stages" "${wide[@]}"
    result "their digest is that of one stage" \
        "$([ -s two_digest.txt ] || echo none; grep -o 'digest .*' out | diff two_digest.txt -)"
fi

refuse "a table that is a folder" 3 "cannot read schedule folder" "${small[@]}" --pp 2 \
    --pp-schedule folder
refuse "too few buffers" 2 "schedule zb-v: deadlock: rank 0 waits in .* for .* of rank 1, which waits after" \
    "${small[@]}" --pp 2 --pp-schedule zb-v --pp-depth 1
refuse "buffers of a table that has its messages" 2 \
    "schedule lowered.sched: it is lowered, so its messages, .* stand in it: leave out depth" \
    "${small[@]}" --pp 2 --pp-schedule lowered.sched --pp-depth 4
"$schedule" lower 1f1b --pp 2 --micro 4 --group 2 >groups.sched
refuse "gradients in groups" 2 "groups.sched: it reduces gradients of 2 micro-batches at a time, and a run those of all 4" \
    "${small[@]}" --pp 2 --dp 2 --pp-schedule groups.sched
refuse "forward recomputed twice" 2 "schedule again.sched: rank 0, action [0-9]+ of [0-9]+, R0\.0: .* had that already" \
    "${small[@]}" --pp 2 --pp-schedule again.sched --recompute stage
refuse "forward recomputed in a table that has all" 2 "schedule lowered.sched: it is lowered, .* leave out .* recompute" \
    "${small[@]}" --pp 2 --pp-schedule lowered.sched --recompute stage
refuse "a cut that does not add up" 2 "the counts of the split '4,3' sum up to 7, but the model has 8 steps" \
    "${small[@]}" --pp 2 --pp-split 4,3
refuse "a cut for other stages" 2 "the split '4,2,2' has 3 counts and there are 2 stages" "${small[@]}" \
    --pp 2 --pp-split 4,2,2
refuse "a first stage without a step" 2 "the split '0,8' leaves stage 0 without a step" "${small[@]}" \
    --pp 2 --pp-split 0,8
refuse "a cut at a module that is none" 2 "no step of the model begins with module 'block.6'" "${small[@]}" \
    --pp 2 --pp-split block.6
refuse "parts of messages of one rank" 2 "--pp-send split is for activations that .* alike, and --tp is 1; leave it out" \
    "${small[@]}" --pp 2 --pp-send split
refuse "parts of parts" 2 "--pp-send split is for .* --sequence-parallel splits them" "${small[@]}" --pp 2 --tp 2 \
    --sequence-parallel --pp-send split
refuse "stages that 1f1b has not" 2 "1f1b has 1 stage a rank: 4 stages on 2 ranks are more; make v 1" \
    "${small[@]}" --pp 2 --pp-virtual 2
refuse "half a V" 2 "zb-v has 2 stages a rank, on a V: 2 stages on 2 ranks are not 4" "${small[@]}" \
    --pp 2 --pp-schedule zb-v --pp-virtual 1
refuse "too few micro-batches" 2 "dualpipe-v needs twice as many micro-batches as ranks: 2 are fewer than 4" \
    "${small[@]}" --pp 2 --pp-schedule dualpipe-v --micro-batch-size 4
refuse "one stage gathered where two overlap" 2 "dualpipe-v: rank 0 has two actions on different stages .*resident 2 or more" \
    "${small[@]}" --pp 2 --dp 2 --pp-schedule dualpipe-v --pp-resident 1
refuse "a graph of pipeline ranks" 2 "--cuda-graph on: .*the schedule of a pipeline" \
    "${small[@]}" --pp 2 --cuda-graph on
refuse "a graph of several stages" 2 "--cuda-graph on: .*the schedule of a pipeline" "${small[@]}" \
    --pp 1 --pp-schedule zb-v --cuda-graph on
for flag in "schedule zb-v" "virtual 2" "split 4,4" "depth 2" "send split" "resident 1"; do
    # shellcheck disable=SC2086 # a flag and its value
    refuse "--pp-$flag without --pp" 2 "--pp-${flag% *} belongs to --pp N" "${small[@]}" --pp-$flag
done

finish
