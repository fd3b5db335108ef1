#!/bin/bash
# test_gpt_train.sh GPT_TRAIN EMULATED BUILD - gpt_train --device as a user meets it: on the emulated
# device in folder EMULATED, and with the plugin for GPUs in BUILD (where nvcc was found), which has
# to load and to say in one line what is wrong where there is no driver or GPU.
#
# ctest: arguments gpt_train build/tests/cuda build, builds plain, cost 20
set -uo pipefail

gpt_train=$1 emulated=$2 build=$3
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"
for i in $(seq 200); do echo "line $i of a text that is quite easy to learn"; done >text.txt
head -n 20 text.txt >short.txt
tiny=(--data text.txt --n-layer 1 --n-head 2 --n-embd 16 --ffn 32 --seq-len 16
    --global-batch-size 4 --steps 2 --eval-interval 0)

# run NAME FLAG...: ends well.
run()
{
    local name=$1
    shift
    if timeout -s KILL 120 "$gpt_train" "${tiny[@]}" "$@" >out 2>err; then
        result "$name" ""
    else
        result "$name" "exit status $?"
    fi
}

# refuse NAME PATTERN FLAG...: exits with 2 after one line that has PATTERN.
refuse()
{
    local name=$1 pattern=$2 problem=''
    shift 2
    timeout -s KILL 20 "$gpt_train" "${tiny[@]}" "$@" >out 2>err
    local got=$?
    [ $got = 2 ] || problem+=" exit status $got, not 2;"
    [ "$(wc -l <err)" = 1 ] || problem+=" $(wc -l <err) lines on stderr;"
    grep -qE -- "$pattern" err || problem+=" '$pattern' is not said;"
    result "$name" "$problem"
}

# The most that kernels of a plan take beside tensors, in bytes.
workspace()
{
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["memory"]["most"]["kernel_workspace"])' "$1"
}

digest()
{
    grep -oE 'digest [0-9a-f]{16}' out | tail -1
}

export WEFT_PLUGINS=$emulated
run "on the emulated device, with a sample from it, saved" --device cuda --digest --tp 1 --dp 1 --sample 4 --save there
one=$(digest)
run "four ranks on it" --device cuda --digest --tp 2 --dp 2
[ -n "$one" ] && [ "$(digest)" = "$one" ] && result "they have one digest" "" ||
    result "they have one digest" "'$one' and '$(digest)'"
WEFT_EMULATOR_DEVICES=4 run "four ranks on GPUs of their own, by graphs" --device cuda --digest --tp 2 --dp 2 --cuda-graph on
[ -n "$one" ] && [ "$(digest)" = "$one" ] && result "they have that one too" "" ||
    result "they have that one too" "'$one' and '$(digest)'"
run "two pipeline ranks on it" --device cuda --digest --pp 2 --pp-schedule zb-h1 --micro-batch-size 1
[ -n "$one" ] && [ "$(digest)" = "$one" ] && result "they have that digest" "" ||
    result "they have that digest" "'$one' and '$(digest)'"
run "steps as graphs" --device cuda --digest --steps 4 --dropout 0.1 \
    --micro-batch-size 2 --eval-interval 2
graphs=$(digest)
grep -q '^each step is finished before the next one is launched: a digest after each step$' out && result "says what steps wait for" "" ||
    result "says what steps wait for" "$(head -4 out)"
run "steps without" --device cuda --digest --cuda-graph off --steps 4 --dropout 0.1 --micro-batch-size 2 \
    --eval-interval 2
[ -n "$graphs" ] && [ "$(digest)" = "$graphs" ] && result "they have one digest too" "" ||
    result "they have one digest too" "'$graphs' and '$(digest)'"
terms=(--label-smoothing 0.1 --z-loss 0.01)
run "label smoothing and a z-loss" --device cuda --digest --cuda-graph off "${terms[@]}"
cp out smooth
run "as graphs" --device cuda --digest "${terms[@]}"
[ "$(digest)" = "$(grep -oE 'digest [0-9a-f]{16}' smooth | tail -1)" ] && result "with one digest" "" ||
    result "with one digest" "'$(digest)' and '$(tail -1 smooth)'"
run "on the CPU" --device cpu "${terms[@]}"
cp out cpu
run "and without" --device cpu
result "they are what the CPU makes of both" "$(python3 -c '
import re
gpu, cpu, plain = ([float(x) for x in re.findall(r"^step .* loss ([0-9.]+)", open(f).read(), re.M)] for f in ("smooth", "cpu", "out"))
if not gpu or max(abs(a - b) for a, b in zip(gpu, cpu)) > 2e-4 or abs(cpu[0] - plain[0]) < 1e-2: print(gpu, cpu, plain)')"
# same NAME FLAG...: the digest of $wanted.
same()
{
    run "$@" --device cuda --digest
    [ -n "$wanted" ] && [ "$(digest)" = "$wanted" ] && result "$1: one digest" "" ||
        result "$1: one digest" "'$wanted' and '$(digest)'"
}

mixture=(--arch mixtral --n-expert 4 --moe-z-weight 0.1 --moe-shared 16)
run "a mixture of experts" --device cuda --digest "${mixture[@]}"
wanted=$(digest)
cp out mixture
grep -q '^steps run op by op, and not as CUDA graphs: losses that experts add' out && result "says why it is not captured" "" ||
    result "says why it is not captured" "$(head -4 out)"
same "its experts on four ranks" "${mixture[@]}" --tp 2 --dp 2 --ep 4
same "their features on two of these" "${mixture[@]}" --tp 2 --dp 2 --etp 2 --ep 2
run "on the CPU" --device cpu "${mixture[@]}"
result "near the CPU's losses" "$(python3 -c '
import re
gpu, cpu = ([float(x) for x in re.findall(r"(?:loss|norm|router_z) +([0-9.]+)", open(f).read())] for f in ("mixture", "out"))
if len(gpu) != 6 or max(abs(a - b) for a, b in zip(gpu, cpu)) > 1e-3: print(gpu, cpu)')"
many=(--arch mixtral --n-expert 8 --moe-top-k 1)
run "experts of which few are chosen" --device cuda --digest "${many[@]}"
wanted=$(digest)
same "gathered, which is what there is" "${many[@]}" --dp 4 --ep 4
full=(--arch mixtral --n-expert 4 --moe-expert-capacity-factor 0.5)
run "experts with a capacity" --device cuda --digest "${full[@]}"
wanted=$(digest)
cp out full
same "on four ranks, by features and experts" "${full[@]}" --tp 2 --dp 2 --etp 2 --ep 2
same "all of whose ranks split experts" "${full[@]}" --tp 2 --dp 2 --ep 4
run "the capacity on the CPU" --device cpu "${full[@]}"
result "near the CPU's losses" "$(python3 -c '
import re
gpu, cpu = ([float(x) for x in re.findall(r"(?:loss|norm) +([0-9.]+)", open(f).read())] for f in ("full", "out"))
if len(gpu) < 2 or len(gpu) != len(cpu) or max(abs(a - b) for a, b in zip(gpu, cpu)) > 1e-3: print(gpu, cpu)')"
adapted=(--arch mixtral --n-expert 4 --lora-rank 2 --lora-targets experts)
run "adapters of experts" --device cuda --digest "${adapted[@]}"
wanted=$(digest)
same "split over features" "${adapted[@]}" --tp 4 --etp 4
balanced=(--arch mixtral --n-expert 4 --moe-balance sequence --n-layer 2)
run "experts balanced by a loss" --device cuda --digest "${balanced[@]}"
wanted=$(digest)
same "which stages add up" "${balanced[@]}" --pp 2 --micro-batch-size 2
run "tokens over two ranks, by heads" --device cuda --digest --arch llama --cp 2
wanted=$(digest)
same "by gathered keys" --arch llama --cp 2 --cp-form gather
for way in "" --plan; do
    # shellcheck disable=SC2086
    refuse "a buffer of experts $way" "a GPU has room for the rows of any choice alone: leave --moe-buffer out" --device cuda \
        --arch mixtral --n-expert 4 --moe-buffer 1.25 $way
done
run "a step as graphs" --device cuda --dp 2 --cuda-graph on --report-json ran.json
run "its plan" --device cuda --dp 2 --cuda-graph on --plan --json plan.json
result "moves what was planned, with as much of it for parameters" "$(python3 -c '
import json
plan, ran = (json.load(open(name))["collectives"] for name in ("plan.json", "ran.json"))
if plan != ran or not any(row["parameter_bytes"] for row in ran): print(plan, ran)')"
"$(dirname "$gpt_train")/gpt_data" tokenize short.txt --output ids >out 2>err
tiny[1]=ids.idx
for way in "" --plan; do
    # shellcheck disable=SC2086
    refuse "graphs of documents $way" "--cuda-graph on: steps are not captured with data of which a part is trained on.* use --cuda-graph off" \
        --device cuda --cuda-graph on --documents mask $way
done
tiny[1]=text.txt
run "a plan of graphs" --device cuda --plan
grep -qE '^  captured graphs +[1-9]' out && result "counts their memory" "" ||
    result "counts their memory" "no row of it"
run "what was saved is gone on with on the CPU" --device cpu --resume there --steps 3
grep -q 'step 3/3' out && result "from where it was" "" || result "from where it was" "no step 3"

# generate FLAG...: a line of JSON on stdout, of a text that continues "line 1".
generate()
{
    timeout -s KILL 120 "$(dirname "$gpt_train")/gpt_generate" there --prompt "line 1" --max-new-tokens 6 \
        --json --echo --logprobs 0 "$@" 2>err
}
problem=$(generate --device cuda >wanted || cat err)
for way in "" "--tp 2" "--prefill-chunk 2" "--device auto" "--cuda-graph off" "--cuda-graph on" "--tp 2 --cuda-graph on"; do
    # shellcheck disable=SC2086 # several flags
    [ "$(generate --device cuda $way)" = "$(cat wanted)" ] || problem+=" another text with $way;"
done
generate --device cuda --tp 2 >out
grep -q '^gpt_generate: tokens are made op by op, and not by CUDA graphs: ranks that split a model' err || problem+=" not said: $(cat err)"
generate --device cuda --plan >out
grep -qE '^  captured graphs +[1-9]' out || problem+=" no graphs in the plan: $(cat out err)"
for way in "--device cpu --cuda-graph on" "--cuda-graph yes"; do
    # shellcheck disable=SC2086 # several flags
    generate $way >out
    [ $? = 2 ] && grep -q -- '--cuda-graph' err || problem+=" $way: $(cat err)"
done
result "texts from what was saved" "$problem"
result "near those of the CPU" "$(generate --device cpu | python3 -c '
import json, sys
ours, cpu = json.load(open("wanted")), json.load(sys.stdin)
pairs = list(zip(ours["prompt_logprobs"], cpu["prompt_logprobs"]))
if len(pairs) != 5 or max(abs(a - b) for a, b in pairs) > 1e-5: print(pairs)')"
problem=$("$(dirname "$gpt_train")/gpt_eval" perplexity there --data short.txt --device cuda --json >out 2>err || cat err)
python3 -c 'import json; assert 0 < json.load(open("out"))["nats_per_token"] < 6' 2>/dev/null || problem+=" no figure"
result "how well it foretells a text" "$problem"
"$(dirname "$gpt_train")/gpt_generate" there --prompt x --device gpu >out 2>err
got=$?
[ $got = 2 ] && grep -q -- "--device gpu is none of auto, cpu and cuda" err && result "a device that there is not" "" ||
    result "a device that there is not" "status $got: $(cat err)"
run "a plan" --device cuda --plan --tp 2
WEFT_EMULATOR_DEVICES=2 run "four ranks on two GPUs" --device cuda --digest --tp 2 --dp 2
[ "$(digest)" = "$one" ] && grep -q '^device cuda: 4 ranks share 2 devices' err &&
    result "which is said" "" || result "which is said" "digest '$(digest)', or not said"
problem=''
"$(dirname "$gpt_train")/bench" attention --device cuda --shapes 48x16 --quick --json >out 2>err ||
    problem="exit status $?"
[ "$(grep -cE '"(forward|backward)","by":"(served|weft|mma)".*"tflops":[0-9.]*[1-9]' out)" = 6 ] || problem+=" not six figures: $(cat out)"
result "bench attention" "$problem"
refuse "rounded factors in exact mode" "tf32 rounds factors that exact mode multiplies as they are.*--exact off" \
    --device cuda --tf32
run "and without" --device cuda --tf32 --exact off
near()
{
    result "$1: near the CPU's losses" "$(python3 -c '
import re, sys
gpu, cpu = ([float(x) for x in re.findall(r"^step .* loss ([0-9.]+)", open(f).read(), re.M)] for f in ("stored", "out"))
if len(gpu) < 2 or len(gpu) != len(cpu) or max(abs(a - b) for a, b in zip(gpu, cpu)) > 1e-3: print(gpu, cpu)')"
}
base=(--lora-rank 2 --base-dtype nf4 --n-embd 64 --ffn 128)
for dtype in fp32 bf16; do
    run "a base in 4 bits, $dtype" --device cuda --digest "${base[@]}" --dtype $dtype
    wanted=$(digest)
    cp out stored
    same "on four ranks, $dtype" "${base[@]}" --dtype $dtype --tp 2 --dp 2
    same "op by op, $dtype" "${base[@]}" --dtype $dtype --cuda-graph off
    run "on the CPU, $dtype" --device cpu "${base[@]}" --dtype $dtype
    near "a base in 4 bits, $dtype"
done
run "moments in 8 bits" --device cuda --digest --optimizer adamw8bit --steps 4
wanted=$(digest)
cp out stored
same "of four ranks" --optimizer adamw8bit --tp 2 --dp 2 --steps 4
same "of stages" --optimizer adamw8bit --pp 2 --micro-batch-size 1 --steps 4
same "op by op" --optimizer adamw8bit --cuda-graph off --steps 4
run "on the CPU" --device cpu --optimizer adamw8bit --steps 4
near "moments in 8 bits"
run "momenta in 8 bits" --device cuda --digest --optimizer lion8bit --param-groups 'embed:lr=0.5'
wanted=$(digest)
cp out stored
same "of four ranks, one by one" --optimizer lion8bit --param-groups 'embed:lr=0.5' --tp 2 --dp 2
run "on the CPU" --device cpu --optimizer lion8bit --param-groups 'embed:lr=0.5'
near "momenta in 8 bits"
run "moments of rows and columns" --device cuda --digest --optimizer adafactor
wanted=$(digest)
same "of ranks that have a part of each" --optimizer adafactor --dp 2
run "a log of a run in bf16" --device cuda --dtype bf16 --log-jsonl log
[ -s err ] && result "warns of nothing that it does not have" "$(head -c 300 err)" ||
    result "warns of nothing that it does not have" ""
machine=$(cd "$(dirname "$0")/../.." && pwd)/docs/machines/h100.json
run "a search whose plans are refused" --device cuda --arch mixtral --n-expert 4 --moe-dispatch exchange --plan --search \
    --ranks 2 --machine "$machine"
grep -q 'no layout can be planned, for the reason above' out && grep -q 'refused for another reason than memory: .*are not exchanged yet' out &&
    result "names the reason" "" || result "names the reason" "$(head -c 500 out)"
WEFT_EMULATOR_DEVICES=0 refuse "a driver without a GPU" "--device cuda: no GPU .*use --device cpu" \
    --device cuda
WEFT_EMULATOR_DEVICES=0 run "a plan needs no GPU" --device cuda --plan

if [ -f "$build/libweft_cuda.so" ]; then
    export WEFT_PLUGINS=$build
    CUDA_VISIBLE_DEVICES=-1 refuse "the real plugin, no GPU" \
        "--device cuda: (this machine has no NVIDIA driver|no GPU can be).*use --device cpu" \
        --device cuda
    CUDA_VISIBLE_DEVICES=-1 run "its plan" --device cuda --plan
    if grep -qa libcudnn "$build/libweft_cuda.so"; then
        run "a plan of bf16" --device cuda --plan --dtype bf16 --json bf16.json
        run "and with dropout" --device cuda --plan --dtype bf16 --dropout 0.1 --json ours.json
        [ "$(workspace bf16.json)" -gt "$(workspace ours.json)" ] &&
            result "it has room for cuDNN's attention, which knows no dropout of ours" "" ||
            result "it has room for cuDNN's attention" \
                "$(workspace bf16.json) and $(workspace ours.json) bytes"
    fi
    CUDA_VISIBLE_DEVICES=-1 run "auto, no GPU" --device auto
    grep -qE '^device auto: the CPU serves, since ' err && result "auto says so" "" ||
        result "auto says so" "not said"
fi

finish
