#!/bin/bash
# test_services.sh GPT_TRAIN - one run with all that goes on beside training at once: ranks with threads, asynchronous
# saves, logs, a timeline, digests, replicas that are compared, evaluation; stopped, and resumed on another mesh. It has
# the digest of a plain run. ThreadSanitizer's build runs it for the threads that these have.
#
# ctest: arguments gpt_train, builds address thread, timeout 120
set -euo pipefail

gpt_train=$1
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"

for ((i = 0; i < 200; i++)); do
    echo "On day $i the cat sat on mat $((i * i % 89))."
done >text
rm -rf run events digests log.jsonl trace.json

# train NAME FLAG...: the digest of the last step is in $digest.
train()
{
    local name=$1 problem=''
    shift
    "$gpt_train" --data text --arch llama --n-layer 2 --n-embd 32 --n-head 4 --seq-len 16 --global-batch-size 8 \
        --steps 4 --warmup-steps 1 --eval-interval 2 --eval-iters 1 --device cpu --digest "$@" >out 2>err ||
        problem=" exit status $?: $(tail -n 1 err);"
    digest=$(sed -n 's/^step 4\/4 .*  digest \([0-9a-f]*\)$/\1/p' out)
    [ -n "$digest" ] || problem+=" no digest of step 4;"
    result "$name" "$problem"
}

train "a plain run"
plain=$digest
services=(--threads-per-rank 2 --micro-batch-size 2 --save run --save-interval 1 --async-save on --log-jsonl log.jsonl
    --tensorboard events --log-digests digests --check-replicas 1 --prefetch 1)
train "with all services" --tp 2 --dp 2 "${services[@]}" --trace trace.json
result "has the digest of the plain run" "$([ "$digest" = "$plain" ] || echo "$digest, not $plain")"
result "a row for each step" "$([ "$(grep -c '"step"' log.jsonl)" = 4 ] || cat log.jsonl)"
result "a timeline" "$(python3 -c 'import json; len(json.load(open("trace.json"))) > 100 or print("short")' 2>&1)"
result "digests of ranks" "$([ "$(cat digests/*.jsonl | wc -l)" -ge 16 ] || ls digests)"
train "resumed on another mesh" --dp 4 "${services[@]}" --resume run/step-00000002
result "has the digest of the plain run, resumed" "$([ "$digest" = "$plain" ] || echo "$digest, not $plain")"
finish
