#!/bin/bash
# test_cli.sh GPT_TRAIN [--sanitized] - gpt_train as a user meets it. What cannot work is refused
# within 5 s with one line on stderr, nothing on stdout and the exit status of --help; what can
# work prints and logs what it promises. A sanitizer's shadow memory needs more address space than
# the limits of some cases leave: --sanitized leaves those out.
#
# ctest: arguments gpt_train sanitized, builds plain
set -uo pipefail

gpt_train=$1 sanitized=${2:-}
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# Ranks, memory, layouts
refuse "more ranks than a machine runs" 2 "8192 ranks.*4096" "${tiny[@]}" --tp 4096 --dp 2
refuse "tokens over ranks of tp that are none" 2 "--sequence-parallel splits tokens over .*, and --tp is 1" "${tiny[@]}" --dp 2 --sequence-parallel
refuse "a bit to flip after the last step" 2 "--flip-bit 9:0:embed.table:0:0 is of step 9 and rank 0, and the run has steps 1 to 3" \
    "${tiny[@]}" --steps 3 --flip-bit 9:0:embed.table:0:0
refuse "a bit to flip of no rank" 2 "of step 1 and rank 9, and the run has steps 1 to 3 and ranks 0 to 0" \
    "${tiny[@]}" --steps 3 --flip-bit 1:9:embed.table:0:0
if [ "$sanitized" != --sanitized ]; then
    limit=2000000
    refuse "more ranks than can be started" 1 \
        "(only [0-9]+ of 4096 ranks can be started|no (thread|memory) to watch .*ranks).*ask for fewer ranks" \
        "${tiny[@]}" --tp 1024 --dp 4 --memory-check off
    refuse "the same, reported before one is started" 1 \
        "does not fit: 4096 ranks of 1 thread take .* without their tensors, .* start fewer ranks" \
        "${tiny[@]}" --tp 1024 --dp 4
    refuse "more worker threads than can be started" 1 "rank .* thread .* did not start" \
        "${tiny[@]}" --tp 4 --threads-per-rank 1024 --memory-check off
    refuse "the same, reported before" 1 "4 ranks of 1024 threads take .* start fewer" \
        "${tiny[@]}" --tp 4 --threads-per-rank 1024
    refuse "a model that does not fit" 1 "rank [0-3].*out of memory: [0-9]+ bytes for parameters" \
        "${tiny[@]}" --tp 2 --dp 2 --n-embd 131072 --memory-check off
    refuse "the same, reported before anything is allocated" 1 \
        "not fit: the tensors of the 4 ranks .* most for [a-z ]+, and RLIMIT_AS .ulimit -v. .* leaves" \
        "${tiny[@]}" --tp 2 --dp 2 --n-embd 131072
    limit=''
fi
# What a step would find is found by the plan of the start, before a rank opens, so that no rank, host or step is named.
tiled=("${tiny[@]}" --lora-rank 2 --lora-targets down --lora-dropout 0.1 --tiled-mlp 64)
for how in "--memory-check on" "--memory-check off" --plan; do
    # shellcheck disable=SC2086 # flags are words
    refuse "what a step cannot do, before one: $how" 2 \
        "^gpt_train: in block.0.mlp.down: .* leave dropout of its last linear's adapter out, or compute it whole$" "${tiled[@]}" $how
done
run "a batch that dp does not divide" "${tiny[@]}" --dp 3
result "is said" "$(grep -q '^batches: --micro-batch-size 1 .* 3 data-parallel ranks take 4 sequences; in the last of 2 micro-steps 2 of them are idle$' \
    out || cat out)"
refuse "a batch whose gradients are summed once" 2 "take micro-batches of 1 whose gradients are reduced" "${tiny[@]}" --dp 3 \
    --accumulate local
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
refuse "units by type and by size" 2 "both choose units" "${tiny[@]}" --wrap-type mlp \
    --wrap-min-params 20000
WEFT_PLUGINS=$PWD CUDA_VISIBLE_DEVICES=-1 refuse "a device that is not here" 2 "--device cuda: .*use --device cpu" "${tiny[@]}" --device cuda
refuse "rounded products on the CPU" 2 "--tf32 is for GPUs; use --device cuda" "${tiny[@]}" --tf32 --device cpu
refuse "a graph of the CPU's work" 2 "--cuda-graph on is for GPUs; use --device cuda" "${tiny[@]}" --cuda-graph on
refuse "a graph that copies to the host" 2 "--cuda-graph on: steps are not captured with --offload, which copies.*leave that out, or use --cuda-graph off" "${tiny[@]}" --cuda-graph on --device cuda --recompute block --offload activations
refuse "graphs of ranks that may be lost" 2 "--cuda-graph on: .*--elastic on, whose ranks may be lost.*--cuda-graph off" "${tiny[@]}" --cuda-graph on --device cuda --tp 2 --dp 2 --elastic on
CUDA_VISIBLE_DEVICES=-1 refuse "a transport between GPUs" 2 "transport nccl (joins GPUs, and there is none here|is not here)" "${tiny[@]}" --transport nccl
refuse "processes that were not started" 2 "--launcher mpi.*mpirun -np N" "${tiny[@]}" --launcher mpi
refuse "a transport for processes" 2 "--transport mpi.*launcher is threads.*mpirun" "${tiny[@]}" --transport mpi
refuse "training that moves nothing" 2 "--transport fake.*--steps 0" "${tiny[@]}" --transport fake

# Data and files
refuse "no data" 2 "--data is missing.*--data FILE" --steps 3
: >pair.idx
refuse "token ids by the name of both files" 3 "no data file pair: give pair.idx" --data pair
refuse "a missing file" 3 "cannot open data file missing.txt: No such file" --data missing.txt
refuse "an empty file" 2 "data file empty.txt is empty" --data empty.txt
refuse "an empty file among others" 2 "empty.txt is empty" --data text.txt empty.txt
refuse "a directory" 3 "folder is a directory" --data folder
refuse "a sequence longer than the data" 2 "--seq-len 4096 needs 4097 bytes.*has 90 " \
    --data short.txt --seq-len 4096
refuse "a sequence longer than the validation part" 2 "validation part has 10 of" \
    --data short.txt --seq-len 16
for flag in --log-jsonl --trace --report-json --save-config --tensorboard --log-digests --memory-timeline; do
    refuse "$flag where nothing can be" 3 "$flag: cannot make folder text.txt: Not a directory" "${tiny[@]}" \
        $flag text.txt/no/file
done
refuse "a log that is a directory" 3 "--log-jsonl: cannot write folder: Is a directory" "${tiny[@]}" --log-jsonl folder
refuse "a log on a full disk" 3 "log file /dev/full: No space left" "${tiny[@]}" \
    --log-jsonl /dev/full
refuse "a plan's file that cannot be written" 3 "--json: cannot write folder: Is a directory" \
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
for flag in --log-jsonl --trace --report-json --memory-timeline; do
    refuse "to write over the data by $flag" 2 "$flag other.txt is the file of --data mine.txt too" \
        --data mine.txt --steps 3 $flag other.txt
done
result "which is as it was" "$(cmp text.txt mine.txt)"
echo '{"global-batch-size": 2, "global_batch_size": 4}' >twice.json
refuse "a key that is there twice" 2 "twice.json: \"global_batch_size\" is there as \"global-batch-size\"" \
    --config twice.json
mkfifo pipe
refuse "a log into a pipe without a reader" 3 "--log-jsonl: cannot write pipe: No such device" "${tiny[@]}" --log-jsonl pipe
refuse "a report into one" 3 "--report-json: cannot write pipe: No such device" "${tiny[@]}" --report-json pipe
refuse "a config file that is an empty pipe" 2 "--config pipe, line 1" --config pipe
refuse "a timeline that is a pipe" 3 "--trace: cannot write pipe: No such device" "${tiny[@]}" --trace pipe

# Flags
refuse "an unknown flag" 2 "unknown flag --tq; did you mean --tp" --tq 2
refuse "a flag with a typing mistake" 2 "did you mean --global-batch-size" --global-batchsize 2
refuse "a flag that is like no other" 2 "--xyzzyxyzzy; gpt_train --help lists all" --xyzzyxyzzy
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
# Numbers that a float does not hold would mean the opposite: never clip, divide by 0, keep nothing.
while read -r flag value float; do
    refuse "$flag $value" 2 "^gpt_train: $flag $value becomes $float as the 32-bit float that it is used as" "${tiny[@]}" "$flag" "$value"
done <<'END'
--clip-grad 1e-46 0
--clip-grad 1e39 inf
--lr 1e-60 0
--eps 1e-50 0
--weight-decay 1e-46 0
--beta1 0.999999999 1
--beta2 0.99999999999 1
--dropout 0.999999999 1
--norm-eps 1e-320 0
--lora-alpha 1e-300 0
--attention-scale 1e-46 0
--sample-temperature 1e-308 0
END
echo '{"clip_grad": 1e-46}' >tiny.json
refuse "the same of a config file" 2 "clip_grad.* 1e-46|becomes 0 as the 32-bit float" "${tiny[@]}" --config tiny.json
run "what a float just holds" "${tiny[@]}" --clip-grad 1e-37 --beta2 0.9999999 --eps 1e-37 --steps 1 --eval-interval 0
other "a temperature of generation" 2 "--temperature 1e-308 becomes 0 as a 32-bit float: a number from 0 to 100" gpt_generate m \
    --prompt a --temperature 1e-308
other "NaN of generation" 2 "--temperature nan: a number from 0 to 100" gpt_generate m --prompt a --temperature nan
refuse "weights without a sum" 2 "the weights of the 2 sources of a mixture have no finite sum" --data a=1e308:text.txt b=1e308:text.txt
refuse "a weight that is never read" 2 "the weight 1e-09 of source b is less than one sequence in 65536" \
    --data a=1:text.txt b=1e-9:text.txt
refuse "an infinite rate" 2 "--lr 1e999 is not in" --lr 1e999
refuse "a dropout of all" 2 "--dropout 1 is not in \[0, 1\)" --dropout 1
refuse "a vocabulary of one token" 2 "--vocab-size 1 is not in \[2" --vocab-size 1
refuse "an unknown architecture" 2 "--arch 'gpt3' is unknown; use one of: gpt2, llama" \
    --arch gpt3
refuse "an unknown strategy" 2 "--strategy 'zero9' is unknown" --strategy zero9
refuse "a switch with a wrong word" 2 "--exact 'maybe' is neither on nor off" --exact maybe
refuse "heads that don't divide the width" 2 "--n-embd 16 .*--n-head 3; use --n-embd 15 or 18" \
    "${tiny[@]}" --n-head 3
refuse "groups that don't divide the heads" 2 "--n-kv-head 3 does not divide" "${tiny[@]}" \
    --arch llama --n-kv-head 3
refuse "an odd head with RoPE" 2 "odd head size 1.*RoPE" "${tiny[@]}" --arch llama --n-head 16
refuse "a rate that rises" 2 "--min-lr 1 is above --lr 0.1" "${tiny[@]}" --lr 0.1 --min-lr 1
refuse "a warmup beyond the end" 2 "--warmup-steps 4 is more than --steps 3" "${tiny[@]}" \
    --warmup-steps 4
refuse "an evaluation without data" 2 "--eval-interval 1 needs validation data" "${tiny[@]}" \
    --val-fraction 0 --eval-interval 1
refuse "a time limit without --save" 2 "--exit-duration-in-mins.* belongs to --save DIR" \
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
programs="gpt_train gpt_check gpt_data gpt_eval gpt_export gpt_generate gpt_diff ckpt mesh_info recorder_diff schedule"
[ "$sanitized" = --sanitized ] || programs+=" bench" # which a sanitizer's build leaves out
for program in $programs; do
    "$bin/$program" --help >out 2>err || problem+=" $program --help ends with $?;"
    "$bin/$program" --version >out 2>err || problem+=" $program --version ends with $?;"
    grep -q "^$program of Weft " out || problem+=" not the version of $program;"
    "$bin/$program" --help >/dev/full 2>err
    [ $? = 3 ] && grep -q "^$program: cannot write standard output" err ||
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
shows "the collectives" "tp +2 all_reduce +[0-9]+ +[0-9]+ +0 +[0-9]+$" "shard +2 all_gather +3 " \
    "shard +2 reduce_scatter +2 " "shard +2 all_reduce +1 " \
    "world +4 broadcast +1 " "world +4 send +1 "
python "the sample" '
text = open("out", "rb").read()
sample = text.split(b"\n--- sample ---\n")[1].split(b"\n--------------\n")[0]
text = sample.decode()
if not text.startswith("The ") or not 8 < len(text) <= 24: print("not 4 + 20 bytes, of which some make characters:", sample)'
python "the log" '
import json, struct
first, *rows = [json.loads(line) for line in open("run.jsonl")]
if first["mesh"] != {"pp": 1, "replicate": 1, "shard": 2, "tp": 2}: print(first["mesh"])
if (first["world"], first["transport"]) != (4, "threads"): print(first["world"])
if (first["options"]["n_embd"], first["options"]["ffn"]) != (16, 64): print(first["options"])
keys = "step loss loss_bits grad_norm lr ms tokens_per_s model_flops_per_s mfu val_loss digest".split()
if len(rows) != 3: print(len(rows), "rows")
for i, row in enumerate(rows):
    if list(row) != keys: print("keys:", *row)
    if row["step"] != i + 1: print("step", row["step"])
    if struct.pack(">f", row["loss"]).hex() != row["loss_bits"]: print(row["loss_bits"])
    if (row["val_loss"] is None) != (i == 0): print("val_loss", row["val_loss"])
    if len(row["digest"]) != 16 or not row["grad_norm"] > 0 or not row["ms"] > 0: print(row)'

echo '{"tp": 2, "lr": 0.01}' >some.json
run "the options and where they come from" "${tiny[@]}" --config some.json --lr 0.02 --print-config --save-config saved.json
shows "each source" '^tp +2 +config file$'
shows "the command line wins" '^lr +0\.02 +command line$'
shows "what follows" '^min_lr +0\.002 +follows from others$'
shows "a default" '^pp +1 +default$'
shows "a default that is a rule" '^cuda_graph +on where steps of one rank can be captured +default$'
result "numbers as they are typed" "$(grep -q '"lr": 0\.02,$' saved.json && ! grep -E '[0-9]{14}' saved.json || grep -E 'lr|[0-9]{14}' saved.json | head -3)"
cp out shown
run "the saved config" --config saved.json --print-config
result "has the same options" "$(diff <(awk '{ print $1, $2 }' shown) <(awk '{ print $1, $2 }' out) | head -3)"
refuse "a config that is saved over itself" 2 "--save-config some.json is the file of --config" \
    "${tiny[@]}" --config some.json --save-config some.json

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
result "which is reported once" "$(grep -c "vocab-size 300 is more than the 256 bytes" err | grep -vx 1)"
run "a layout that is not exact" "${tiny[@]}" --tp 3 --seq-len 8 --device cpu
python "which says so once" '
text = open("err").read()
if text != "not layout-exact: tp 3 does not nest in the 8 chunks\n": print(text)'
run "more ranks than --exact-tp says" "${tiny[@]}" --tp 4 --exact-tp 2 --device cpu
python "which is said once" '
text = open("err").read()
if text != "not layout-exact: tp 4 is above exact_tp 2\n": print(text)'
refuse "chunks for sums that have none" 2 "use one of the two" "${tiny[@]}" --exact off --exact-tp 4
refuse "a number of ranks that nest nowhere" 2 "--exact-tp '3' is unknown; use one of: 1" "${tiny[@]}" --exact-tp 3
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

# Steps without an update: the first losses lie above ln 256 = 5.5.
skips=("${tiny[@]}" --eval-interval 0 --digest --skip-steps "nonfinite,loss>5")
run "all steps are skipped" "${skips[@]}" --log-jsonl skips.jsonl
run "on another mesh too" "${skips[@]}" --tp 2 --dp 2 --log-jsonl skips_mesh.jsonl
run "no step is" "${tiny[@]}" --eval-interval 0 --digest --skip-steps "loss>50" --log-jsonl skips_none.jsonl
python "rows say so" '
import json
a, b, c = ([json.loads(line) for line in open(name)][1:] for name in ("skips.jsonl", "skips_mesh.jsonl", "skips_none.jsonl"))
if not a or not all(row.get("skipped") for row in a + b) or any("skipped" in row for row in c): print("skipped is wrong")
if [r["digest"] for r in a] != [r["digest"] for r in b] or len({r["digest"] for r in a}) != 1: print("digests", a, b)'
bound=$(python3 -c 'import json, struct
row = [json.loads(line) for line in open("skips_none.jsonl")][1]
print(repr(struct.unpack(">f", bytes.fromhex(row["loss_bits"]))[0]))')
run "a loss at the bound" "${tiny[@]}" --eval-interval 0 --digest --skip-steps "loss>$bound" --log-jsonl skips_at.jsonl
python "is not above it" '
import json
if "skipped" in [json.loads(line) for line in open("skips_at.jsonl")][1]: print("the first step is skipped")'
refuse "steps that are no steps" 2 "nonfinite, loss>X with X above 0" "${tiny[@]}" --skip-steps "loss>-1"

finish
