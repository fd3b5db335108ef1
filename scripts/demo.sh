#!/bin/bash
# demo.sh [OPTION...] - from a bare machine to a trained model in one command: installs what is
# missing, builds, takes a corpus, and trains a small GPT on a 2 x 2 mesh for about two minutes on
# 2 cores. Options go to gpt_train, where the last of two wins: demo.sh --tp 4 --dp 1
set -euo pipefail

cd "$(dirname "$0")/.."
scripts/install_packages.sh --no-tests
scripts/build.sh build -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF
scripts/corpus.sh build/corpus.txt

exec build/apps/gpt_train --tp 2 --dp 2 --arch gpt2 --data build/corpus.txt \
    --n-layer 4 --n-head 8 --n-embd 256 --seq-len 128 --global-batch-size 16 \
    --steps 800 --lr 3e-3 --min-lr 3e-4 --warmup-steps 80 --clip-grad 1 \
    --eval-interval 100 --eval-iters 4 --sample 400 "$@"
