#!/bin/sh
# test_diffusion.sh DIFFUSION - diffusion.c on pp 2 x tp 2 x dp 2: the digest of one rank, from a checkpoint on other meshes too,
# and traffic and memory as planned.
# shellcheck disable=SC2086
set -eu
program=$1 short="--steps 16 --warmup-steps 3 --lr-decay-steps 4" mesh="--pp 2 --tp 2 --dp 2 --micro-batch-size 1 $short"
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=docs/examples/layouts.sh
. "$here/layouts.sh"

one=$("$program" $short 2>/dev/null | tail -1)
case $one in digest*) ;; *) fail "no digest" ;; esac
"$program" $mesh --save saved --save-interval 10 --rank 7 --log-jsonl log.jsonl >eight 2>/dev/null
[ "$(tail -1 eight)" = "$one" ] || fail "another digest on eight ranks"
grep -q '"losses": {"balance": [0-9]' log.jsonl || fail "the loss of balance is not logged"
[ "$("$program" --resume saved/step-00000010 --dp 4 $short 2>/dev/null | tail -1)" = "$one" ] ||
    fail "another digest on four ranks from a checkpoint of eight"
[ "$("$program" --resume saved/step-00000010 --tp 4 --strategy no_shard $short 2>/dev/null | tail -1)" = "$one" ] ||
    fail "another digest on tp 4 from a checkpoint of eight"
moves_as_planned $mesh --rank 7
