#!/bin/bash
# demo.sh [OPTION...] - from a bare machine to a trained model in one command: installs what is
# missing, builds gpt_train and what it runs with and nothing else, takes a corpus of English prose, and
# trains a small Llama, byte by byte, on a 2 x 2 mesh: about three minutes on 2 cores, then a sample.
# Options go to gpt_train, where the last of two wins: demo.sh --tp 4 --dp 1
set -euo pipefail

cd "$(dirname "$0")/.."
scripts/install_packages.sh --no-tests
scripts/build.sh --only gpt_train build -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
    -DWEFT_PLUGINS=OFF
scripts/corpus.sh build/corpus.txt

# Muon takes two thirds of the steps that AdamW needs to a loss.
exec build/apps/gpt_train --tp 2 --dp 2 --arch llama --data build/corpus.txt \
    --n-layer 4 --n-head 4 --n-embd 192 --seq-len 128 --global-batch-size 16 \
    --optimizer muon --lr 1e-2 --min-lr 1e-4 --weight-decay 0.01 --steps 1000 --warmup-steps 60 \
    --eval-interval 200 --eval-iters 4 --sample 500 --sample-temperature 0.6 "$@"
