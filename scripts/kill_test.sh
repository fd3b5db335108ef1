#!/bin/bash
# kill_test.sh [N] [--gpt-train FILE] - kills a run that saves all the time N times (default 2000) with
# SIGKILL at random instants. After each kill the next start has to go on from a checkpoint that is
# at least the last one that was said to be saved, with nothing damaged; in the end the digest is
# that of a run that was never stopped. Layouts, kinds and asynchronous saves take turns.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

kills=2000
gpt_train=$PWD/build/apps/gpt_train
while [ $# -gt 0 ]; do
    case $1 in
    --gpt-train) gpt_train=$2; shift ;;
    [0-9]*) kills=$1 ;;
    *)
        echo "usage: $0 [N] [--gpt-train FILE]" >&2
        exit 2
        ;;
    esac
    shift
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for i in $(seq 1 300); do
    echo "On day $i the cat sat on mat number $((i * i % 89)) and thought."
done >text.txt
steps=1000000
tiny=(--data text.txt --n-layer 1 --n-head 4 --n-embd 16 --seq-len 16 --global-batch-size 4
    --steps $steps --warmup-steps 10 --eval-interval 0 --threads-per-rank 1 --dropout 0.1
    --device cpu)
layouts=("--tp 2 --dp 2" "--dp 4 --checkpoint full" "--tp 4 --async-save on" "--dp 2 --strategy zero1"
    "--dp 2 --strategy no_shard --async-save on" "")

fail()
{
    echo "kill_test: after $done_kills kills: $1" >&2
    tail -n 5 out err >&2
    ls run >&2
    exit 1
}

done_kills=0
seen=0 # the last step that was known to be published
while [ "$done_kills" -lt "$kills" ]; do
    read -ra layout <<<"${layouts[done_kills % ${#layouts[@]}]}"
    : >out # what the run before said is not this one's, if it is killed before it is loaded
    : >err
    "$gpt_train" "${tiny[@]}" "${layout[@]}" --save run --save-interval 2 --keep 2 >out 2>err &
    pid=$!
    sleep "0.$(printf %03d $((20 + RANDOM % 120)))"
    kill -KILL $pid 2>/dev/null || fail "the run ended by itself"
    wait $pid 2>/dev/null
    done_kills=$((done_kills + 1))
    ! [ -s err ] || fail "something was said: $(head -1 err)"
    if [ "$seen" -gt 0 ] && grep -q "^step " out; then
        began=$(sed -n 's/^going on from .* after step //p' out)
        [ -n "$began" ] && [ "$began" -ge "$seen" ] || fail "began at '$began', not at $seen or later"
    fi
    # what latest names was committed, and has to be gone on from
    if [ -f run/latest ]; then
        named=$(sed 's/step-0*//' run/latest)
        [ "$named" -ge "$seen" ] || fail "latest fell from $seen to $named"
        seen=$named
    fi
    [ $((done_kills % 100)) != 0 ] || echo "$done_kills kills; step $seen"
done
[ "$seen" -gt 0 ] || fail "nothing was ever saved"

# Nothing was changed silently: as many steps without a stop give the same digest.
last=$((seen + 2))
"$gpt_train" "${tiny[@]}" --save run --save-interval 2 >out 2>err &
pid=$!
for _ in $(seq 1 200); do
    [ "$(sed 's/step-0*//' run/latest)" -lt $last ] || break
    sleep 0.05
done
kill -KILL $pid 2>/dev/null
wait $pid 2>/dev/null
last=$(sed 's/step-0*//' run/latest)
mine=$(sed 's/.*"digest": "\([0-9a-f]*\)".*/\1/' run/$(cat run/latest)/index.json)
"$gpt_train" "${tiny[@]}" --save whole --save-interval "$last" --keep 0 >out 2>err &
pid=$!
while ! [ -f whole/latest ] && kill -0 $pid 2>/dev/null; do
    sleep 0.05
done
kill -KILL $pid 2>/dev/null
wait $pid 2>/dev/null
# the first one: on a loaded machine it may have saved again before it was killed
theirs=$(sed 's/.*"digest": "\([0-9a-f]*\)".*/\1/' "whole/step-$(printf %08d "$last")/index.json")
[ "$mine" = "$theirs" ] || fail "step $last has digest $mine, and without kills $theirs"
echo "$kills kills: none lost, none torn; step $last has the digest of a run without stops: $mine"
