#!/bin/bash
# test_gpt_attention.sh GPT_TRAIN EMULATED - attention of bf16 as a user chooses it, on an emulated Hopper with a cuDNN: with
# WEFT_CUDNN=off gpt_eval, which has the trainer's ops, and chunks through the cache have the same log probabilities of a text, and
# without it they have not. With WEFT_TEST_ALL: the numerics identity tells who serves.
#
# ctest: arguments gpt_train build/tests/cuda, builds plain
set -uo pipefail

gpt_train=$1
apps=$(dirname "$1")
export WEFT_PLUGINS=$2 WEFT_EMULATOR_CAPABILITY=90 WEFT_EMULATOR_CUDNN=91900 WEFT_TENSOR_CORES=wgmma
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"
for i in $(seq 60); do echo "line $i of a text"; done >text.txt
head -c 34 text.txt >book
python3 -c 'import json; print(json.dumps({"ids": list(open("book", "rb").read())}))' >one

# train FLAG...: a small GPT-2 in bf16.
train()
{
    timeout -s KILL 120 "$gpt_train" --arch gpt2 --data text.txt --n-layer 1 --n-head 2 --n-embd 16 --seq-len 40 \
        --global-batch-size 1 --eval-interval 0 --dtype bf16 "$@" >out 2>err || cat err
}

# apart: how far gpt_eval's sum is from that of chunks.
apart()
{
    "$apps/gpt_eval" perplexity there --data book --dtype bf16 --device cuda --seq-length 33 --json >eval 2>err || cat err
    "$apps/gpt_generate" there --prompts one --dtype bf16 --device cuda --max-new-tokens 1 --json --logprobs 0 --echo \
        --prefill-chunk 5 >chunks 2>err || cat err
    python3 -c '
import json
whole, chunks = json.load(open("eval"))["nats"], json.load(open("chunks"))["prompt_logprobs"]
assert len(chunks) == 33
print(f"{abs(whole + sum(chunks)):.9f}")'
}

result "a model is trained" "$(train --device cpu --steps 2 --save there)"
own=$(WEFT_CUDNN=off apart)
theirs=$(apart)
# log probabilities are printed with seven digits
problem=$(python3 -c "
if not $own < 33 * 5e-7: print('Weft:', $own)
if not $theirs > 1e-4: print('cuDNN, which has no cache:', $theirs)" 2>&1)
result "log probabilities are one with Weft's kernels alone" "$problem"
WEFT_CUDNN=never "$apps/gpt_eval" perplexity there --data book --dtype bf16 --device cuda --seq-length 33 >out 2>err
got=$?
[ $got = 2 ] && grep -q 'WEFT_CUDNN=never is neither on nor off' err && result "what is neither is refused" "" ||
    result "what is neither is refused" "status $got: $(cat err)"
if [ -n "${WEFT_TEST_ALL:-}" ]; then
    for cudnn in off on; do
        problem=$(WEFT_CUDNN=$cudnn train --device cuda --steps 1 --log-jsonl $cudnn)
        grep -o '"numerics": "[0-9a-f]*"' $cudnn >$cudnn.numerics || problem+=" no numerics"
    done
    cmp -s off.numerics on.numerics && problem+=" one identity: $(cat on.numerics)"
    result "the numerics identity tells who serves" "$problem"
fi
finish
