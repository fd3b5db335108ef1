#!/bin/bash
# test_witness.sh BUILD [--make] - fixed training runs have the digests of witness.txt: a change
# that is not meant to change numbers has not. --make prints a new witness.txt, for a change that is:
# its commit says which numbers changed, and why.
#
# The runs differ in layout, strategy, optimizer, dtype and data path, and no two of them share a
# model, but for the two of bf16, so that a digest says where to look. They hold on any machine with any number of cores.
#
# ctest: arguments build, builds plain address thread, timeout 120
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
gpt_train=$(cd "$1" && pwd)/apps/gpt_train
# shellcheck source=tests/cases.sh
. "$here/../cases.sh"

for ((i = 0; i < 400; i++)); do
    echo "On day $i the cat sat on mat $((i * i % 89))."
done >text

# The name of a run, and its flags.
runs=(
    "gpt2 --n-layer 2 --n-embd 32"
    "gpt2_tp_dp --n-layer 2 --n-embd 48 --tp 2 --dp 2 --sequence-parallel"
    "gpt2_uneven --n-layer 1 --n-embd 36 --n-head 12 --vocab-size 257 --tp 8"
    "llama --arch llama --n-layer 2 --n-embd 48 --n-head 6 --n-kv-head 3 --tp 4 --dp 2"
    "llama_zero1 --arch llama --n-layer 3 --n-embd 32 --dp 4 --strategy zero1"
    "bf16 --n-layer 2 --n-embd 64 --dtype bf16 --dp 2"
    "bf16_storage --n-layer 2 --n-embd 64 --dtype bf16 --compute fp32 --dp 2"
    "dropout --n-layer 2 --n-embd 40 --dropout 0.1 --tp 2"
    "muon --n-layer 2 --n-embd 56 --optimizer muon --dp 3 --micro-batch-size 4"
    "recompute --n-layer 3 --n-embd 24 --recompute block --micro-batch-size 2"
    "sgd --n-layer 1 --n-embd 16 --optimizer sgd --strategy no_shard --tp 2"
)

# digest FLAG..: the digest and the validation loss after the last of six steps.
digest()
{
    "$gpt_train" --data text --steps 6 --seq-len 16 --global-batch-size 12 --n-head 4 --lr 3e-3 \
        --warmup-steps 2 --clip-grad 1 --eval-interval 3 --eval-iters 2 --device cpu --digest "$@" \
        >out 2>err || return
    sed -n 's/^step 6\/6 .*  val \([0-9.]*\)  digest \([0-9a-f]*\)$/\2 \1/p' out
}

for run in "${runs[@]}"; do
    name=${run%% *}
    # shellcheck disable=SC2086 # flags are words
    got=$(digest ${run#* }) || got="failed: $(tail -n 1 err)"
    if [ "${2:-}" = --make ]; then
        echo "$name $got"
        continue
    fi
    said=$(grep "^$name " "$here/witness.txt" || true)
    result "$name" "$([ "$said" = "$name $got" ] || echo "${said:-no line in witness.txt}, now $got")"
done
[ "${2:-}" = --make ] || finish
