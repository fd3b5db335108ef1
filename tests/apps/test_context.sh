#!/bin/bash
# test_context.sh BUILD - ranks that split the tokens of each sequence (--cp): checkpoints of any --cp continue on any other, a
# sample is that of one rank, plans know the axis, and what is not there is refused with what to use instead.
#
# ctest: arguments build, builds plain, timeout 200
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
gpt_train=$(cd "$1" && pwd)/apps/gpt_train
# shellcheck source=tests/cases.sh
. "$here/../cases.sh"

for ((i = 0; i < 1500; i++)); do
    echo "On day $i the cat sat on mat $((i * i % 89))."
done >text
common=(--data text --arch llama --n-layer 1 --n-embd 24 --n-head 12 --n-kv-head 3 --vocab-size 257 --seq-len 2049
    --global-batch-size 2 --eval-interval 1 --eval-iters 1 --threads-per-rank 1 --digest)

# The steps of a run: their number, loss, loss of the validation part, digest.
steps()
{
    "$gpt_train" "${common[@]}" --steps 2 "$@" >out 2>err
    awk '/^step/ { for (i = 1; i <= NF; i++) if ($i == "val") v = $(i + 1); print $2, $4, v, $NF }' out
}

# refused WORDS FLAG..
refused()
{
    local words=$1
    shift
    if "$gpt_train" "${common[@]}" --steps 1 "$@" >out 2>err; then
        result "$* is refused" "it runs"
    else
        result "$* is refused" "$(grep -qF -- "$words" err || echo "not by: $words")"
    fi
}

one=$(steps --save whole --save-interval 1 --keep 0)
got=$(steps --save parts --save-interval 1 --keep 0 --cp 2 --tp 2 --micro-batch-size 2)
result "the bits of one rank" "$([ "$one" = "$got" ] || echo "$got in place of $one")"
second=$(tail -n 1 <<<"$one")
got=$(steps --resume parts/step-00000001)
result "a checkpoint of --cp 2 on one rank" "$([ "$second" = "$got" ] || echo "$got in place of $second")"
got=$(steps --resume whole/step-00000001 --cp 2 --dp 2)
result "one of one rank on --cp 2 x --dp 2" "$([ "$second" = "$got" ] || echo "$got in place of $second")"

"$gpt_train" "${common[@]}" --steps 0 --resume whole/step-00000002 --sample 24 >one 2>err
"$gpt_train" "${common[@]}" --steps 0 --resume whole/step-00000002 --sample 24 --cp 2 --tp 2 >out 2>err
result "a sample" "$(grep -aq -- "--- sample" one || echo "there is none"; cmp <(sed -n "/--- sample/,\$p" one) <(sed -n "/--- sample/,\$p" out) 2>&1 || true)"

"$gpt_train" "${common[@]}" --steps 1 --cp 2 --tp 2 --comm-report >run 2>err
"$gpt_train" "${common[@]}" --steps 1 --cp 2 --tp 2 --plan >plan 2>err
rows()
{
    grep -aE '^  (tp|cp) +2 ' "$1" | head -n "$(grep -acE '^  (tp|cp) +2 ' run)"
}
result "traffic as planned" "$([ "$(rows run)" = "$(rows plan)" ] || diff <(rows run) <(rows plan))"
result "which moves tokens for heads" "$(grep -aq '^  cp .*all_to_all' run || echo "no all_to_all over cp")"

first=$(head -n 1 <<<"$one" | cut -d " " -f 2)
got=$(steps --exact off --cp 2 --micro-batch-size 2 | head -n 1 | cut -d " " -f 2)
result "two sequences at a time, in the usual order of sums" "$([ "$first" = "$got" ] || echo "a loss of $got in place of $first")"
for plan in "" --plan; do # the first stage sums nothing
    "$gpt_train" "${common[@]}" --steps 1 --seq-len 64 --pp 3 --cp 2 --freeze embed $plan >out 2>err
    result "a reason that other stages have${plan:+, planned}" "$(grep -aq "not layout-exact: .* cp splits" out err || echo "none is reported")"
done

refused "use --cp-form gather" --cp 2 --tp 2 --sequence-parallel --cp-form heads
refused "use at most --cp 6, a smaller --tp, or --cp-form gather" --cp 8 --tp 2 --cp-form heads
refused "and --cp is 1" --cp-form gather

got=$(steps --cp 2 --tp 2 --pp 2 --pp-send split)
result "messages of stages in parts" "$([ "$one" = "$got" ] || echo "$got in place of $one")"
for search in "" --search; do
    "$gpt_train" "${common[@]}" --cp 2 --plan $search --machine "$here/../../docs/machines/h100.json" >out 2>err
    result "what it takes on a machine${search:+, searched}" "$(grep -aq " %  context-parallel collectives" out || cat err)"
done
finish
