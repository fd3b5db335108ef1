#!/bin/bash
# test_gpt_attention.sh GPT_TRAIN EMULATED - attention of bf16 as a user chooses it, on an emulated Hopper with a cuDNN: with
# WEFT_CUDNN=off the trainer, gpt_eval and chunks through the cache have the same log probabilities of a text, and without it
# they have not; it is another rule of numbers, and nothing else may be asked for.
#
# ctest: arguments gpt_train build/tests/cuda, builds plain
set -uo pipefail

gpt_train=$1
apps=$(dirname "$1")
export WEFT_PLUGINS=$2 WEFT_EMULATOR_CAPABILITY=90 WEFT_EMULATOR_CUDNN=91900
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"
for i in $(seq 60); do echo "line $i of a text"; done >text.txt
head -c 35 text.txt >book # a sequence of 34 tokens and their targets
train()
{
    timeout -s KILL 60 "$gpt_train" --arch gpt2 --data text.txt --n-layer 1 --n-head 2 --n-embd 16 --seq-len 34 --global-batch-size 1 \
        --eval-interval 0 --dtype bf16 --device cuda "$@" >out 2>err
}

# sums NAME: nats of the text by the trainer, by gpt_eval and through the cache.
sums()
{
    timeout -s KILL 60 "$gpt_train" --resume there --data book --val-fraction 0 --steps 3 --eval-interval 0 --device cuda \
        --log-jsonl "$1.jsonl" >out 2>err || cat err
    "$apps/gpt_eval" perplexity there --data book --dtype bf16 --device cuda --seq-length 34 --json >eval 2>err || cat err
    "$apps/gpt_generate" there --prompts one --dtype bf16 --device cuda --max-new-tokens 1 --json --logprobs 0 --echo --prefill-chunk 5 \
        >generated 2>err || cat err
    python3 - "$1.jsonl" <<'END'
import json, sys
loss = [row["loss"] for row in map(json.loads, open(sys.argv[1])) if "loss" in row][-1]
print(repr(34 * loss), repr(json.load(open("eval"))["nats"]), repr(-sum(json.loads(open("generated").readline())["prompt_logprobs"])))
END
}

python3 -c 'import json; print(json.dumps({"ids": list(open("book", "rb").read())}))' >one
problem=$(WEFT_CUDNN=off train --steps 2 --save there || cat err)
result "a model is trained" "$problem"
WEFT_CUDNN=off sums own >own
sums by_cudnn >by_cudnn
cat own by_cudnn
finish
