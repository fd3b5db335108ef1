#!/bin/bash
# test_cli.sh GPT_TRAIN [--sanitized] - gpt_train as a user meets it. What cannot work is refused
# within 5 s with one line on stderr, nothing on stdout and the exit status of --help; what can
# work prints and logs what it promises. A sanitizer's shadow memory needs more address space than
# the limits of some cases leave: --sanitized leaves those out.
set -uo pipefail

gpt_train=$1 sanitized=${2:-}
bin=$(dirname "$1") # where the other programs are
reference=$(cd "$(dirname "$0")/../reference" && pwd)
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"
limit='' # of address space in KiB

# refuse NAME STATUS PATTERN FLAG...: PATTERN is in the one line of stderr.
refuse()
{
    local name=$1 status=$2 pattern=$3 got problem=''
    shift 3
    (
        [ -z "$limit" ] || ulimit -S -v "$limit"
        exec timeout -s KILL 5 "$gpt_train" "$@" >out 2>err
    )
    got=$?
    sed -i -E '/^(model|mesh|data): /d' out # of a run that has begun
    [ $got = "$status" ] || problem+=" exit status $got, not $status;"
    [ "$(wc -l <err)" = 1 ] || problem+=" $(wc -l <err) lines on stderr;"
    grep -q '^gpt_train: ' err || problem+=" not said by gpt_train;"
    grep -qE -- "$pattern" err || problem+=" '$pattern' is not said;"
    [ ! -s out ] || problem+=" something on stdout;"
    result "$name" "$problem"
}

# other NAME STATUS PATTERN PROGRAM ARGUMENT...: another program says no, in one line as well.
other()
{
    local name=$1 status=$2 pattern=$3 program=$4 got problem=''
    shift 4
    timeout -s KILL 5 "$bin/$program" "$@" >out 2>err
    got=$?
    [ $got = "$status" ] || problem+=" exit status $got, not $status;"
    [ "$(wc -l <err)" = 1 ] || problem+=" $(wc -l <err) lines on stderr;"
    grep -q "^$program" err || problem+=" not said by $program;"
    grep -qE -- "$pattern" err || problem+=" '$pattern' is not said;"
    result "$name" "$problem"
}

# run NAME FLAG...: ends well; its stdout is in out, its stderr in err.
run()
{
    local name=$1
    shift
    if timeout -s KILL 120 "$gpt_train" "$@" >out 2>err; then
        result "$name" ""
    else
        result "$name" "exit status $?"
    fi
}

# shows NAME PATTERN...: each is in stdout of the last run.
shows()
{
    local name=$1 problem='' pattern
    shift
    for pattern; do
        grep -qE -- "$pattern" out || problem+=" '$pattern' is missing;"
    done
    result "$name" "$problem"
}

# python NAME PROGRAM ARGUMENT...: what it prints is wrong.
python()
{
    result "$1" "$(python3 -c "${@:2}" 2>&1)"
}

for i in $(seq 1 600); do
    echo "On day $i the cat sat on mat number $((i * i % 89)) and thought."
done >text.txt
head -c 100 text.txt >short.txt
: >empty.txt
mkdir folder
echo '{"tp": 2,' >broken.json
echo '[1]' >list.json
echo '{"tpp": 2}' >unknown.json
echo '{"tp": "two"}' >word.json
echo '{"help": true}' >command.json
tiny=(--data text.txt --n-layer 1 --n-head 4 --n-embd 16 --seq-len 16 --global-batch-size 4
    --steps 3)

# Ranks, memory, layouts
refuse "more ranks than a machine runs" 2 "8192 ranks.*4096" "${tiny[@]}" --tp 4096 --dp 2
if [ "$sanitized" != --sanitized ]; then
    limit=2000000
    refuse "more ranks than can be started" 1 "only [0-9]+ of 4096 ranks can be started" \
        "${tiny[@]}" --tp 1024 --dp 4 --memory-check off
    refuse "the same, told before one is started" 1 \
        "does not fit: 4096 ranks of 1 thread take .* without their tensors, .* start fewer ranks" \
        "${tiny[@]}" --tp 1024 --dp 4
    refuse "more worker threads than can be started" 1 "rank .* thread .* did not start" \
        "${tiny[@]}" --tp 4 --threads-per-rank 1024 --memory-check off
    refuse "the same, told before" 1 "4 ranks of 1024 threads take .* start fewer" \
        "${tiny[@]}" --tp 4 --threads-per-rank 1024
    refuse "a model that does not fit" 1 "rank [0-3].*out of memory: [0-9]+ bytes for parameters" \
        "${tiny[@]}" --tp 2 --dp 2 --n-embd 131072 --memory-check off
    refuse "the same, told before anything is taken" 1 \
        "not fit: the tensors of the 4 ranks .* most for [a-z ]+, and RLIMIT_AS .ulimit -v. .* leaves" \
        "${tiny[@]}" --tp 2 --dp 2 --n-embd 131072
    limit=''
fi
refuse "a batch that dp can't form" 2 "--global-batch-size 4 .*--dp 3; use .* 3 or 6" \
    "${tiny[@]}" --dp 3
refuse "a batch that micro-batches can't form" 2 "--micro-batch-size 3.*use --global-batch-size" \
    "${tiny[@]}" --micro-batch-size 3
refuse "a rank that there is not" 2 "--rank 4 is not one of the 4 ranks" "${tiny[@]}" --tp 2 \
    --dp 2 --plan --rank 4
refuse "a plan's file without a plan" 2 "--json belongs to a plan" "${tiny[@]}" --json p.json
refuse "a search without a size" 2 "--find-batch needs .* --device-memory SIZE" "${tiny[@]}" \
    --plan --find-batch
refuse "a size that is none" 2 "'80gigs' is not a size.*80GiB" "${tiny[@]}" --device-memory 80gigs
refuse "memory that is capped" 1 \
    "out of memory: [0-9]+ bytes for .*, when .*, most for [a-z ]+: [0-9]+, of a limit of 20480" \
    "${tiny[@]}" --tp 2 --dp 2 --device-memory 20KiB
refuse "groups without their size" 2 "say how many .*shard-group-size.*or use full_shard" \
    "${tiny[@]}" --dp 4 --strategy hybrid_shard
refuse "groups that do not make up dp" 2 "dp 4 is not 2 groups of 3 ranks" "${tiny[@]}" --dp 4 \
    --strategy mics --dp-replicate 2 --shard-group-size 3
refuse "a group size that does not divide dp" 2 "dp 4 .*shard-group-size 3: .*divides dp" \
    "${tiny[@]}" --dp 4 --strategy mics --shard-group-size 3
refuse "a number of groups that does not divide dp" 2 "dp 4 .*dp-replicate 8: .*divides dp" \
    "${tiny[@]}" --dp 4 --strategy hybrid_shard --dp-replicate 8
refuse "groups of a strategy that has none" 2 "full_shard has no groups" "${tiny[@]}" --dp 4 \
    --dp-replicate 2
refuse "units by type and by size" 2 "two ways to choose units" "${tiny[@]}" --wrap-type mlp \
    --wrap-min-params 20000
WEFT_PLUGINS=$PWD CUDA_VISIBLE_DEVICES=-1 refuse "a device that is not here" 2 "--device cuda: .*use --device cpu" "${tiny[@]}" --device cuda
refuse "rounded products on the CPU" 2 "--tf32 is for GPUs; use --device cuda" "${tiny[@]}" --tf32 --device cpu
refuse "a graph of the CPU's work" 2 "--cuda-graph on is for GPUs; use --device cuda" "${tiny[@]}" --cuda-graph on
refuse "a graph of several ranks" 2 "--cuda-graph on records .* 4 ranks .*--tp 1 --dp 1, or --cuda-graph off" "${tiny[@]}" --cuda-graph on --device cuda --tp 2 --dp 2
CUDA_VISIBLE_DEVICES=-1 refuse "a transport between GPUs" 2 "transport nccl (joins GPUs, and there is none here|is not here)" "${tiny[@]}" --transport nccl
refuse "processes that nobody started" 2 "--launcher mpi.*mpirun -np N" "${tiny[@]}" --launcher mpi
refuse "a transport for processes" 2 "--transport mpi.*launcher is threads.*mpirun" "${tiny[@]}" --transport mpi
refuse "training that moves nothing" 2 "--transport fake.*--steps 0" "${tiny[@]}" --transport fake

# Data and files
refuse "no data" 2 "--data is missing.*--data FILE" --steps 3
refuse "a missing file" 3 "cannot open data file missing.txt: No such file" --data missing.txt
refuse "an empty file" 2 "data file empty.txt is empty" --data empty.txt
refuse "an empty file among others" 2 "empty.txt is empty" --data text.txt empty.txt
refuse "a directory" 3 "folder is a directory" --data folder
refuse "a sequence longer than the data" 2 "--seq-len 4096 needs 4097 bytes.*has 90 " \
    --data short.txt --seq-len 4096
refuse "a sequence longer than the validation part" 2 "validation part has 10 of" \
    --data short.txt --seq-len 16
refuse "a log where nobody can write" 3 "cannot open log file folder/no/log.jsonl" "${tiny[@]}" \
    --log-jsonl folder/no/log.jsonl
refuse "a log that is a directory" 3 "log file folder: " "${tiny[@]}" --log-jsonl folder
refuse "a log on a full disk" 3 "log file /dev/full: No space left" "${tiny[@]}" \
    --log-jsonl /dev/full
refuse "a report where nobody can write" 3 "cannot write report folder/no/r.json: No such file" \
    "${tiny[@]}" --report-json folder/no/r.json
refuse "a plan's file where nobody can write" 3 "cannot write report folder: Is a directory" \
    "${tiny[@]}" --plan --json folder
refuse "a missing config file" 3 "--config missing.json: No such file" --config missing.json
refuse "a config file that is no JSON" 2 "--config broken.json, line 2, column" \
    --config broken.json
refuse "a config file that is no object" 2 "list.json must hold one JSON object" \
    --config list.json
refuse "a config file with an unknown key" 2 "unknown.json.*unknown key.*tp" --config unknown.json
refuse "a config file with a wrong type" 2 "word.json.*must be" --config word.json
refuse "a config file with a command" 2 "command.json.*cannot stand in a config file" \
    --config command.json

cp text.txt mine.txt && ln mine.txt other.txt
for flag in --log-jsonl --trace --report-json; do
    refuse "to write over the data by $flag" 2 "$flag other.txt is the file of --data mine.txt too" \
        --data mine.txt --steps 3 $flag other.txt
done
result "which is as it was" "$(cmp text.txt mine.txt)"
echo '{"global-batch-size": 2, "global_batch_size": 4}' >twice.json
refuse "a key that is there twice" 2 "twice.json: \"global_batch_size\" is there as \"global-batch-size\"" \
    --config twice.json
mkfifo pipe
refuse "a log into a pipe that nobody reads" 3 "log file pipe: No such device" "${tiny[@]}" --log-jsonl pipe
refuse "a report into one" 3 "report pipe: No such device" "${tiny[@]}" --report-json pipe
refuse "a config file that nobody writes" 2 "--config pipe, line 1" --config pipe
refuse "a timeline that is a pipe" 3 "cannot write timeline pipe: " "${tiny[@]}" --trace pipe

# Flags
refuse "an unknown flag" 2 "unknown flag --tq; did you mean --tp" --tq 2
refuse "a flag with a typing mistake" 2 "did you mean --global-batch-size" --global-batchsize 2
refuse "a flag that is like no other" 2 "--xyzzyxyzzy; --help lists all" --xyzzyxyzzy
refuse "a single dash" 2 "unknown flag -tp; did you mean --tp" -tp 2
refuse "a flag without its value" 2 "--tp needs a value" "${tiny[@]}" --tp
refuse "a flag followed by a flag" 2 "--tp needs a value" "${tiny[@]}" --tp --dp 2
refuse "a value without a flag" 2 "unexpected argument 'book.txt'" book.txt
refuse "a value for a bare flag" 2 "--digest takes no value" "${tiny[@]}" --digest yes
refuse "a word for a number" 2 "--tp 'two' is not a whole number" "${tiny[@]}" --tp two
refuse "a fraction for a count" 2 "--steps '1.5' is not a whole number" --steps 1.5
refuse "a number with a tail" 2 "--lr '1e-3x' is not a number" --lr 1e-3x
refuse "an empty value" 2 "--tp '' is not a whole number" --tp ""
refuse "no ranks" 2 "--tp 0 is not in \[1, 4096\]" --tp 0
refuse "negative ranks" 2 "--dp -1 is not in" --dp -1
refuse "a number beyond 64 bits" 2 "does not fit in 64 bits" --steps 99999999999999999999
refuse "no number" 2 "--lr 'nan' is not a number" --lr nan
refuse "an infinite rate" 2 "--lr 1e999 is not in" --lr 1e999
refuse "a dropout of all" 2 "--dropout 1 is not in \[0, 1\)" --dropout 1
refuse "a vocabulary without all bytes" 2 "--vocab-size 255 is not in \[256" --vocab-size 255
refuse "an unknown architecture" 2 "--arch 'gpt3' is unknown; use one of: gpt2, llama" \
    --arch gpt3
refuse "an unknown strategy" 2 "--strategy 'zero9' is unknown" --strategy zero9
refuse "a switch with a wrong word" 2 "--exact 'maybe' is neither on nor off" --exact maybe
refuse "heads that don't divide the width" 2 "--n-embd 16 .*--n-head 3; use --n-embd 15 or 18" \
    "${tiny[@]}" --n-head 3
refuse "grouped queries in gpt2" 2 "use --arch llama" "${tiny[@]}" --n-kv-head 2
refuse "groups that don't divide the heads" 2 "--n-kv-head 3 does not divide" "${tiny[@]}" \
    --arch llama --n-kv-head 3
refuse "an odd head with RoPE" 2 "odd head size 1.*RoPE" "${tiny[@]}" --arch llama --n-head 16
refuse "a rate that rises" 2 "--min-lr 1 is above --lr 0.1" "${tiny[@]}" --lr 0.1 --min-lr 1
refuse "a warmup beyond the end" 2 "--warmup-steps 4 is more than --steps 3" "${tiny[@]}" \
    --warmup-steps 4
refuse "an evaluation without data" 2 "--eval-interval 1 needs validation data" "${tiny[@]}" \
    --val-fraction 0 --eval-interval 1
refuse "a time for what nobody saves" 2 "--exit-duration-in-mins.* belongs to --save DIR" \
    "${tiny[@]}" --exit-duration-in-mins 1
refuse "a sample of random weights" 2 "--sample 9 with --steps 0.*--resume PATH or --init-from" \
    --steps 0 --sample 9
refuse "a sample that moves nothing" 2 "--transport fake .*cannot make --sample 9" --steps 0 \
    --sample 9 --transport fake
refuse "a sample of nothing" 2 "--sample-prompt is empty" "${tiny[@]}" --sample 5 \
    --sample-prompt ""
refuse "an unknown shell" 2 "--completion 'fish' is unknown" --completion fish

# What works
run "help" --help
shows "help says all" "^Usage: gpt_train --data FILE" "--sequence-parallel" "^Exit status"
run "help wins over a missing file" --data text.txt --help
run "completion" --completion bash
shows "completion for bash" "complete -F"
run "a version wins too" --data text.txt --version
shows "version says all" "^gpt_train of Weft [0-9.]+, commit ([0-9a-f]+|unknown)" "^compiled by (gcc|clang) [0-9]" \
    "^built in: threads"
problem=''
for program in gpt_train gpt_export gpt_diff ckpt mesh_info recorder_diff bench; do
    "$bin/$program" --help >out 2>err || problem+=" $program --help ends with $?;"
    "$bin/$program" --version >out 2>err || problem+=" $program --version ends with $?;"
    grep -q "^$program of Weft " out || problem+=" not the version of $program;"
    "$bin/$program" --help >/dev/full 2>err
    [ $? = 3 ] && grep -q "^$program: cannot write standard output: No space" err ||
        problem+=" the help of $program is lost;"
    "$bin/$program" --version >&- 2>err
    [ $? = 3 ] && grep -q "^$program: cannot write standard output" err ||
        problem+=" the version of $program goes nowhere;"
done
result "every program says its help and version, or that it cannot" "$problem"

run "training on 2 x 2" "${tiny[@]}" --tp 2 --dp 2 --log-jsonl run.jsonl --digest \
    --eval-interval 2 --eval-iters 1 --sample 20 --show-layout --comm-report --strategy fsdp
result "and nothing to complain of" "$(cat err)"
shows "first of all model, mesh and data" \
    "^model: gpt2, layers 1, heads 4, width 16, vocabulary 256; 7664 parameters in fp32$" \
    "^mesh: tp 2 x dp 2 on c[a-z]+, full_shard, [0-9]+ threads? a rank$" \
    "^data: text.txt: [0-9]+ bytes to train on, [0-9]+ to validate on; a step is 4 sequences of 16 "
shows "progress" "^step 1/3  loss 5\.[0-9]+  norm .* lr .* ms .* tok/s .* GFLOP/s  mem .* eta " \
    "^step 3/3 .* val 5\.[0-9]+  digest [0-9a-f]{16}$"
shows "the layout" "embed.table +\[256,16\] +\[tp/shard\] +\[64,16\]" \
    "head.weight .* tied to embed" "who holds what" \
    "block.0.mlp.down.weight +\[16,64\] +\[shard, tp\] +\[8,32\]" \
    "64:128 +\|\.{8}#{8}\.{16}\|  0:16 +rank 2$" \
    "128:192 +\|\.{16}#{8}\.{8}\|  0:16 +rank 1$"
shows "the units" "^  \(root\) +4384 +4672 +9344  kept until after backward$" \
    "^  block.0 +3280 +3376 +6752  freed after forward$"
shows "the collectives" "tp +2 all_reduce +[0-9]+ +[0-9]+$" "shard +2 all_gather +3 " \
    "shard +2 reduce_scatter +2 " "shard +2 all_reduce +1 " \
    "world +4 broadcast +1 " "world +4 send +1 "
python "the sample" '
text = open("out", "rb").read()
sample = text.split(b"\n--- sample ---\n")[1].split(b"\n--------------\n")[0]
if not sample.startswith(b"The ") or len(sample) != 24: print("not 4 + 20 bytes:", sample)'
python "the log" '
import json, struct
first, *rows = [json.loads(line) for line in open("run.jsonl")]
if first["mesh"] != {"pp": 1, "replicate": 1, "shard": 2, "tp": 2}: print(first["mesh"])
if (first["world"], first["transport"]) != (4, "threads"): print(first["world"])
if (first["options"]["n_embd"], first["options"]["ffn"]) != (16, 64): print(first["options"])
keys = "step loss loss_bits grad_norm lr ms tokens_per_s val_loss digest".split()
if len(rows) != 3: print(len(rows), "rows")
for i, row in enumerate(rows):
    if list(row) != keys: print("keys:", *row)
    if row["step"] != i + 1: print("step", row["step"])
    if struct.pack(">f", row["loss"]).hex() != row["loss_bits"]: print(row["loss_bits"])
    if (row["val_loss"] is None) != (i == 0): print("val_loss", row["val_loss"])
    if len(row["digest"]) != 16 or not row["grad_norm"] > 0 or not row["ms"] > 0: print(row)'

python "options to a config file" '
import json
options = json.loads(next(open("run.jsonl")))["options"]
options["log_jsonl"] = "again.jsonl"
json.dump(options, open("run.json", "w"))'
run "training from a config file, another layout" --config run.json --tp 4 --dp 1
python "the same losses and digests" '
import json
a, b = ([[json.loads(line).get(key) for key in ("loss_bits", "grad_norm", "val_loss", "digest")]
         for line in open(name)][1:] for name in ("run.jsonl", "again.jsonl"))
if a != b or len(a) != 3: print(a, b)'

run "a log without digest or evaluation" "${tiny[@]}" --log-jsonl plain.jsonl --eval-interval 0
python "the log without them" '
import json
for row in [json.loads(line) for line in open("plain.jsonl")][1:]:
    if "digest" in row or row["val_loss"] is not None: print(row)'
run "several files" "${tiny[@]}" --data short.txt
shows "which it says" "^data: text.txt and 1 more: "
run "more entries than bytes" "${tiny[@]}" --vocab-size 300 --tp 2 --eval-interval 1
result "which is told once" "$(grep -c "vocab-size 300 is more than the 256 bytes" err | grep -vx 1)"
run "a layout that is not exact" "${tiny[@]}" --tp 3 --seq-len 8 --device cpu
python "which says so once" '
text = open("err").read()
if text != "not layout-exact: tp 3 does not nest in the 8 chunks\n": print(text)'
run "a layout of 512 ranks, without data" --steps 0 --show-layout --transport fake --tp 8 --dp 64 \
    --global-batch-size 64 --n-head 8 --n-layer 1 --strategy no_shard
shows "512 ranks" "block.0.attn.qkv.q.weight +\[384,384\] +\[tp\] +\[48,384\]" "7,15,23,.*,511$"
run "a layout of 4096 ranks" --steps 0 --show-layout --transport fake --tp 8 --dp 512 \
    --global-batch-size 512 --n-head 8 --n-layer 1 --strategy mics --shard-group-size 16
shows "4096 ranks, a part of each picture" "^    \.\.\. and 64 parts more$" \
    " rank 0,128,256,.*,3968$" "^  block.0 +1774464 .* freed after forward$"
run "units by number of parameters" --steps 0 --show-layout --dp 2 --n-head 4 --n-embd 16 --n-layer 1 \
    --wrap-min-params 1000
shows "which they are of" "^  block.0.mlp.up +1088 " "^  block.0.mlp.down +1040 "
run "nothing to do" --steps 0

# Plans: the same flags with --plan and without write the same, but for the key "plan".
same='
import json
plan, ran = json.load(open("plan.json")), json.load(open("ran.json"))
del plan["plan"]
if plan != ran or not ran["memory"]["peak"] or not ran["flops"]: print(plan, ran)'
for flags in "" "--tp 4 --sequence-parallel" "--dp 4 --micro-batch-size 1 --dropout 0.1" \
    "--dp 2 --dtype bf16 --strategy zero1" "--dp 2 --tp 2 --param-dtype bf16" \
    "--tp 2 --dp 2 --arch llama --n-kv-head 2 --rank 1" "--tp 3 --seq-len 8 --optimizer sgd"; do
    read -ra more <<<"$flags"
    run "a run with $flags" "${tiny[@]}" "${more[@]}" --report-json ran.json --eval-interval 1
    run "its plan" "${tiny[@]}" "${more[@]}" --plan --json plan.json --eval-interval 1
    python "they agree" "$same"
done
shows "a plan" "^plan of rank 2 of 3: pp 1 x replicate 1 x shard 1 x tp 3; strategy [a-z0-9_]+$" \
    "^  root +1 +4256 +[0-9.]+ KiB +-$" "^  block +1 +3280 " \
    "parameters +[0-9.]+ KiB +[0-9.]+ KiB$" "^  peak +[0-9.]+ KiB in (for|back)ward of " \
    "bytes per parameter" "tp +3 all_reduce +[0-9]+ +[0-9]+$" "FLOPs"
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

# A giant, of whose activations a plan takes more than 16 TiB in all: scripts/giants.py has them all.
giant=(--plan --arch llama --n-layer 126 --n-head 128 --n-kv-head 8 --n-embd 16384 --ffn 53248
    --vocab-size 128256 --seq-len 8192 --tp 8 --dp 8 --dtype bf16 --sequence-parallel
    --recompute block --device cpu)
run "405 billion parameters" "${giant[@]}" --micro-batch-size 4 --global-batch-size 32
shows "the giant" "llama of 126 blocks, 405[0-9]{9} parameters"
run "the batch of a giant" "${giant[@]}" --find-batch --micro-batch-size 1 --global-batch-size 8 \
    --device-memory 400GiB
shows "it" "^the largest micro-batch that fits: --micro-batch-size [0-9]+ "

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
    if e["cat"] == "phase": continue # contains the others
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
python "ranks are in order" '
import json
events = json.load(open("t.json"))
if sorted({e["pid"] for e in events}) != list(dict.fromkeys(e["pid"] for e in events)): print("not in the file")
place = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
if place != {r: r for r in range(4)}: print(place)'

# begun PATTERN FLAG...: a run in the background until PATTERN is in its stdout; then $! is it.
begun()
{
    local pattern=$1
    shift
    "$gpt_train" "$@" >out 2>err &
    timeout 20 sh -c "until grep -q '$pattern' out; do sleep 0.02; done"
}
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
refuse "a timeline where nobody can write" 3 "cannot write timeline folder/no/t.json: No such" \
    "${tiny[@]}" --trace folder/no/t.json
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

# Sizes of Llama 3.1 405B on 16,384 ranks; twice the time and memory that are promised.
if [ "$sanitized" != --sanitized ]; then
    python "a plan of 405 billion parameters" '
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:] + ["--json", "big.json"], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
if used.ru_utime + used.ru_stime > 1 or used.ru_maxrss > 400000: print(used)
big = json.load(open("big.json"))
if big["model"]["parameters"] != 405853388800: print(big["model"])' \
        "$gpt_train" --plan --arch llama --n-layer 126 --n-embd 16384 --n-head 128 --n-kv-head 8 \
        --ffn 53248 --vocab-size 128256 --seq-len 8192 --tp 8 --dp 2048 \
        --global-batch-size 2048 --sequence-parallel
    python "a plan of 4000 blocks takes four times as long as one of 1000" '
import resource, subprocess, sys
def seconds(blocks):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(sys.argv[1:] + ["--n-layer", blocks], stdout=subprocess.DEVNULL, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
small, large = min(seconds("1000") for i in range(3)), seconds("4000")
if large > 9 * small: print(small, large)' \
        "$gpt_train" --plan --arch llama --dp 4 --strategy full_shard --dropout 0.1
fi
# Checkpoints: saved on one mesh, gone on with on another, and what does not fit.
saved=("${tiny[@]}" --dropout 0.1 --eval-interval 1 --digest)
run "a run without a stop" "${saved[@]}" --log-jsonl whole.jsonl
run "the same, saved" "${saved[@]}" --save saved --save-interval 2 --tp 2 --dp 2 --save-best
rm -r saved/step-00000003
refuse "latest names what is not there" 8 "latest names step-00000003, which is not there; .*--resume none" \
    "${saved[@]}" --save saved
echo step-00000002 >saved/latest
run "gone on with elsewhere" "${saved[@]}" --save saved --dp 4 --async-save on --log-jsonl rest.jsonl
shows "from where" "^going on from saved/step-00000002, after step 2$"
python "the last step is the same" '
import json
a, b = ([json.loads(line) for line in open(name)][-1] for name in ("whole.jsonl", "rest.jsonl"))
for key in ("step", "loss_bits", "digest", "val_loss"):
    if a[key] != b[key]: print(key, a[key], b[key])'
run "nothing is left to do" "${saved[@]}" --save saved
run "gone on with in bf16" "${saved[@]}" --resume saved/step-00000002 --dtype bf16
result "which is told, of weights too" "$(grep -cE \
    '^from here on --(param-)?dtype is "bf16"; the checkpoint was made with "fp32"$' err |
    grep -vx 2)"
refuse "another model" 2 \
    "saved/step-00000003 is of another model: --n-layer 2 \(it has 1\), --n-embd 32 \(it has 16\); drop" \
    "${saved[@]}" --save saved --n-embd 32 --n-layer 2
run "gone on with without the model's flags" --data text.txt --global-batch-size 4 --steps 4 --save saved
shows "it is the same" "^model: gpt2, layers 1, heads 4, width 16, " "a step is 4 sequences of 16 bytes" \
    "^step 4/4 "
result "and a line for what is saved" "$(grep "^saved" out | grep -vx "saved saved/step-00000004")"
run "a sample after training" "${saved[@]}" --save sampled --sample 20
sed -n '/^--- sample/,$p' out >after
run "a sample of what was saved" --steps 0 --resume sampled --sample 20 --tp 2 --dp 2
result "is the same" "$(sed -n '/^--- sample/,$p' out | diff after - 2>&1 && [ -s after ] || echo "differs")"
run "a plan of what was saved" --plan --resume saved
shows "which has its model" "gpt2 of 1 blocks, 7664 parameters"
refuse "to show what is not there" 8 "--resume nothing: there is no checkpoint" --steps 0 --resume nothing
refuse "a checkpoint that is not there" 8 "--resume nothing: there is no checkpoint" "${tiny[@]}" \
    --resume nothing
refuse "saving without a place" 2 "--save-interval belongs to --save" "${tiny[@]}" --save-interval 2
refuse "one checkpoint alone" 2 "--keep 1 would leave none" "${tiny[@]}" --save saved --keep 1
refuse "a place that cannot be made" 8 "cannot make directory no/where" "${tiny[@]}" --save no/where
mkdir locked && exec 9>locked/lock && flock 9
refuse "a place where another run saves" 8 "another run saves to locked .*use another --save" \
    "${tiny[@]}" --save locked
exec 9>&-
run "the same when that has ended" "${tiny[@]}" --save locked
"$bin/ckpt" verify saved >out 2>err
result "ckpt verify" "$([ $? = 0 ] && grep -q "step-00000004 is whole" out || echo "not whole")"
"$bin/ckpt" diff saved/step-00000002 saved/step-00000003 >out 2>err
result "ckpt diff" "$([ $? = 1 ] && grep -q "^embed.table: .* elements differ" out || echo "not told")"
for file in saved/step-*/index.json; do
    echo " " >>"$file"
done
"$gpt_train" "${saved[@]}" --save saved >out 2>err
result "all are damaged" "$([ $? = 8 ] && grep -q "none of the .* can be used" err || echo "not told")"
"$gpt_train" "${tiny[@]}" --steps 1000000 --save long --exit-duration-in-mins 0.005 --sample 9 >out 2>err
result "a run whose time is over" "$([ $? = 75 ] && [ -f long/latest ] || echo "not saved, or not 75")"
result "makes no sample" "$(grep "^--- sample" out)"
begun "^saved" "${tiny[@]}" --dp 2 --save asked --steps 1 --sample 1000000
kill -TERM $!
wait $!
result "a run that is to stop makes no sample" "$([ $? = 75 ] && ! grep "^--- sample" out || echo "not 75")"

# What happens to a run from outside. Its log, its console and its terminal are not worth its work.
(
    ulimit -f 4
    exec timeout -s KILL 60 "$gpt_train" "${tiny[@]}" --steps 60 --log-jsonl small.jsonl --eval-interval 0
) 2>err | cat >out
result "a log that may not grow" "$([ "${PIPESTATUS[0]}" = 0 ] && grep -q "^step 60/60" out &&
    [ "$(grep -c "warning: cannot write log file small.jsonl: File too large; training goes on" err)" = 1 ] ||
    echo "ended, or not told once")"
python "its rows are whole" '
import json
if len([json.loads(line) for line in open("small.jsonl")]) < 5: print("too few")'
"$gpt_train" "${tiny[@]}" --steps 20 --eval-interval 0 --save piped 2>err | head -n 1 >out
result "a reader that leaves" "$([ "${PIPESTATUS[0]}" = 0 ] && [ -f piped/latest ] || echo "ended, or unsaved")"
# stopped SIGNAL: 75, and saved. Shells let background jobs ignore SIGINT, so this one is asked to.
stopped()
{
    rm -rf halt
    python3 - "$1" "$gpt_train" "${tiny[@]}" --steps 10000000 --save halt --eval-interval 0 >out 2>err <<'END'
import os, signal, subprocess, sys
for name in ("SIGINT", "SIGHUP", "SIGTERM"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
run = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
run.stdout.readline()
run.send_signal(getattr(signal, sys.argv[1]))
run.stdout.read()
print(run.wait(timeout=60), os.path.lexists("halt/latest"))
END
    result "stopped by $1" "$([ "$(<out)" = "75 True" ] || cat out)"
}
stopped SIGHUP
stopped SIGINT
stopped SIGTERM
# what an MPI that cannot start has allocated is its own to free
ASAN_OPTIONS=detect_leaks=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 refuse "variables of another job" 2 \
    "belongs to another MPI|transport mpi is not here" "${tiny[@]}" --tp 2
mkdir -p up/bin && cp -P "$bin"/../libweft.so* up/bin && echo none >up/libweft_nccl.so
LD_LIBRARY_PATH=$PWD/up/bin CUDA_VISIBLE_DEVICES=-1 refuse "a plugin of the folder above" 2 \
    "transport nccl (joins GPUs|is not here: libweft_nccl.so: cannot open)" "${tiny[@]}" --transport nccl
# Flight recorders of runs that failed: in a folder of one's own, and the newest few.
mkdir tmp elsewhere && ln -s "$PWD/elsewhere" "tmp/weft-recorder-$(id -u)-1" && : >elsewhere/rank-0.rec
for i in $(seq 12); do
    TMPDIR=$PWD/tmp "$gpt_train" "${tiny[@]}" --dp 2 --optimizer sgd --lr 1000 --clip-grad 0 --steps 20 --eval-interval 0 >out 2>err
done
result "recorders of runs that failed" "$(find tmp -maxdepth 1 -type d -name 'weft-recorder-*' -perm 700 |
    wc -l | grep -vx 9; [ -f elsewhere/rank-0.rec ] || echo "a link was followed")"
echo none >libjansson.so.4
run "a library in the working directory" --help
rm libjansson.so.4

# Two runs that differ in one flag, and where that shows first.
run "digests of tensors" "${tiny[@]}" --digest=tensors --tp 2 --log-jsonl a.jsonl
run "the same with another decay" "${tiny[@]}" --digest=tensors --weight-decay 0.2 --log-jsonl b.jsonl
"$bin/gpt_diff" a.jsonl b.jsonl >out 2>err
result "gpt_diff names the step" "$([ $? = 1 ] && grep -q "^step 1: digest is " out || echo no)"
result "and the tensor" "$(grep -qE "^step 1: tensor embed.table differs, the first of " out || echo no)"
python "they add up to the digest" '
import json
for row in map(json.loads, open("a.jsonl")):
    if "step" in row and sum(int(d, 16) for d in row["digests"].values()) % 2**64 != \
            int(row["digest"], 16): print(row)'

run "ranks that share the cores" "${tiny[@]}" --tp 8 --dp 4 --sequence-parallel --steps 2

# Weights of Hugging Face: any layout trains the same from them, and they come out as they went in.
from=(--data text.txt --steps 2 --global-batch-size 4 --digest)
for model in gpt2 llama llama_tied; do
    run "from a $model of transformers" "${from[@]}" --init-from "$reference/hf_$model" \
        --log-jsonl one.jsonl
    run "from the same on 2 x 2" "${from[@]}" --init-from "$reference/hf_$model" --tp 2 --dp 2 \
        --log-jsonl four.jsonl
    timeout -s KILL 60 "$bin/gpt_export" "$reference/hf_$model" "out_$model" \
        >out 2>err
    result "gpt_export of the $model" "$([ $? = 0 ] || echo "exit status $?")"
    run "from what was exported" "${from[@]}" --init-from "out_$model" --log-jsonl again.jsonl
    python "the same digests from all three" '
import json
a, b, c = ([json.loads(line).get("digest") for line in open(name)]
           for name in ("one.jsonl", "four.jsonl", "again.jsonl"))
if not a == b == c or not a[-1]: print(a, b, c)'
done
run "a checkpoint to be exported" "${tiny[@]}" --tp 2 --dp 2 --save made --checkpoint full
for ranks in 1 3; do
    timeout -s KILL 60 "$bin/gpt_export" made "made_$ranks" --ranks $ranks >out 2>err
    result "gpt_export of a checkpoint on $ranks ranks" "$([ $? = 0 ] || echo "exit status $?")"
done
result "the same bytes" "$(cmp made_1/model.safetensors made_3/model.safetensors 2>&1)"
python "its embedding is that of the checkpoint" '
import json, struct
def tensor(path, name):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    begin, end = next(v["data_offsets"] for k, v in header.items() if k.endswith(name))
    return data[8 + n + begin:8 + n + end]
a = tensor("made_3/model.safetensors", "wte.weight")
b = tensor("made/step-00000003/model.safetensors", "embed.table")
if a != b or len(a) != 256 * 16 * 4: print(len(a), len(b))'
"$bin/gpt_export" saved made_x >out 2>err
result "gpt_export of a damaged one" "$([ $? = 3 ] && grep -q "saved/step-" err || echo "exit status $?")"
# A Llama whose head is its embedding stays one: trained, saved, exported and trained again.
run "a tied llama, saved" "${from[@]}" --init-from "$reference/hf_llama_tied" --dp 2 --save tied
timeout -s KILL 60 "$bin/gpt_export" tied tied_out >out 2>err
result "gpt_export of a tied llama" "$([ $? = 0 ] || echo "exit status $?")"
python "its head is the embedding still" '
import json, struct
data = open("tied_out/model.safetensors", "rb").read()
names = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
config = json.load(open("tied_out/config.json"))
if "lm_head.weight" in names or not config["tie_word_embeddings"]: print(config, list(names))'
refuse "a tie that contradicts the weights" 2 "--tie-embeddings off contradicts .* has on" \
    "${from[@]}" --init-from "$reference/hf_llama_tied" --tie-embeddings off
refuse "a gpt2 that is not tied" 2 "--tie-embeddings off is for llama" "${tiny[@]}" \
    --tie-embeddings off
run "a plan of a tied llama" "${tiny[@]}" --arch llama --tie-embeddings on --plan --json tied.json
python "a plan of the same untied has a head more" '
import json, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
tied, own = (json.load(open(n))["model"]["parameters"] for n in ("tied.json", "own.json"))
if own - tied != 256 * 16: print(own, tied)' \
    "$gpt_train" "${tiny[@]}" --arch llama --plan --json own.json
refuse "weights from nowhere" 3 "cannot open nowhere/config.json" "${from[@]}" \
    --init-from nowhere
refuse "a flag that contradicts the weights" 2 "--n-head 5 contradicts .* has 3; drop --n-head" \
    "${from[@]}" --init-from "$reference/hf_gpt2" --n-head 5
refuse "sequences longer than the model" 2 "--seq-len 64 is more than .* 32; use --seq-len 32" \
    "${from[@]}" --init-from "$reference/hf_gpt2" --seq-len 64
cp -r "$reference/hf_gpt2" cut && head -c 50000 "$reference/hf_gpt2/model.safetensors" \
    >cut/model.safetensors
refuse "weights that are cut short" 3 "model.safetensors: tensor .* past the end of the file" \
    "${from[@]}" --init-from cut
rm cut/model.safetensors && head -c 1000 text.txt >cut/pytorch_model.bin
refuse "weights in a pickle" 2 "pytorch_model.bin is a pickle, .*save_pretrained" "${from[@]}" \
    --init-from cut

# Mistakes with the other programs.
other "gpt_export of nothing" 2 "it takes two folders" gpt_export
other "gpt_export with an unknown flag" 2 "--foo is no flag" gpt_export --foo made exported
other "gpt_export to a name that is empty" 2 "folder TO is empty" gpt_export made ""
other "gpt_export as another type" 2 "--dtype f64 is none of f32, bf16 and f16" gpt_export made exported --dtype f64
result "which leaves nothing" "$([ ! -e exported ] || echo exported)"
other "gpt_diff of one" 2 "it takes two" gpt_diff a.jsonl
other "gpt_diff of a log that is missing" 3 "cannot read nothing: No such file" gpt_diff a.jsonl nothing
other "gpt_diff of a folder" 3 "folder, row 1: Is a directory.*two checkpoints" gpt_diff a.jsonl folder
other "gpt_diff of a text" 3 "text.txt, row 1: .*it takes two files of --log-jsonl" gpt_diff a.jsonl text.txt
head -c -9 a.jsonl >cut.jsonl
other "gpt_diff of a log that is cut short" 3 "cut.jsonl, row 4: " gpt_diff a.jsonl cut.jsonl
for step in 1 2 1000000000 9000000000000000000 1; do
    echo "{\"step\": $step, \"loss_bits\": \"$step\"}"
done >far.jsonl
timeout -s KILL 5 "$bin/gpt_diff" far.jsonl far.jsonl >out 2>err
result "gpt_diff of steps far away" "$([ $? = 0 ] && [ ! -s err ] || echo "exit status $?")"
tail -n 2 far.jsonl >last.jsonl
sed '1s/"1"}/"2"}/' far.jsonl >earlier.jsonl
timeout -s KILL 5 "$bin/gpt_diff" earlier.jsonl last.jsonl >out 2>err
result "the last row of a step counts" "$([ $? = 0 ] || cat out)"
other "gpt_diff without an end" 3 "/dev/zero, row 1" gpt_diff a.jsonl /dev/zero
other "ckpt of an unknown command" 2 "it takes list DIR, verify PATH" ckpt look saved
other "ckpt list of nothing" 8 "there is no checkpoint in nothing" ckpt list nothing
other "ckpt diff names the one" 8 "^ckpt: nothing is no checkpoint" ckpt diff made nothing
other "mesh_info with an unknown flag" 2 "--foo is no flag" mesh_info --foo
other "mesh_info without a value" 2 "--tp needs a value" mesh_info --tp
other "recorder_diff of nothing" 2 "no file was given" recorder_diff
other "recorder_diff of a text" 3 "text.txt is not a flight recorder" recorder_diff text.txt
other "bench of nothing" 2 "it takes a command" bench
other "bench of an unknown command" 2 "there is no command junk" bench junk
other "bench of no shapes" 2 "--shapes '' is empty" bench gemm --shapes ""

finish
