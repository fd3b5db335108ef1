#!/bin/bash
# test_program.sh DIGITS_FAULTY DIGITS.TXT - a program of a user on wf_par_run (docs/examples/digits.c, a vision transformer) loses a
# rank and continues, on the same mesh or a smaller one; is asked to stop, and is resumed; has the digest of an undisturbed run.
#
# ctest: arguments digits_faulty docs/examples/digits.txt, builds plain, timeout 120
set -uo pipefail

digits=$1 data=$2
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"

# run FLAG..: the program; its status is in $got, the digest in $digest.
run()
{
    got=0
    timeout -s KILL 60 "$digits" --data "$data" --steps 20 --stall-timeout 20 "$@" >out 2>err || got=$?
    digest=$(sed -n 's/^digest //p' out)
}

run --log-jsonl whole.jsonl
whole=$digest
result "a run that loses no rank" "$([ $got = 0 ] && [ -n "$whole" ] || cat err)"

# goes_on NAME LOSS LINES PATTERN FLAG..: a loss, after which the run continues, and says so in so many lines.
goes_on()
{
    local name=$1 loss=$2 lines=$3 pattern=$4 problem=''
    shift 4
    rm -f lost.jsonl
    WEFT_LOSE=$loss run --elastic on --log-jsonl lost.jsonl "$@"
    [ $got = 0 ] || problem+=" exit status $got;"
    [ "$digest" = "$whole" ] || problem+=" digest '$digest', not '$whole';"
    [ "$(wc -l <err)" = "$lines" ] && grep -qE -- "$pattern" err || problem+=" $(cat err);"
    [ "$(grep -c '"step"' lost.jsonl)" = 20 ] || problem+=" $(grep -c '"step"' lost.jsonl) rows;"
    [ "$(grep -c '^digest\|images right' out)" = 2 ] || problem+=" its end is printed again;"
    result "$name" "$problem"
}

buddy=(--dp 4 --redundancy buddy)
goes_on "before a step" "lose 1 5" 1 'digits_faulty: rank 1: .*continues after step 4 with what 3 ranks hold, --dp 4 --tp 1, ' "${buddy[@]}"
goes_on "in the update that others make" "late 2 7" 1 'continues after step 7 with what 3 ranks hold' "${buddy[@]}"
goes_on "a smaller mesh, and the larger one when ranks are back" "lose 1 4" 2 '3 ranks hold, --dp 3 --tp 1' "${buddy[@]}" --rejoin-after 3
result "as soon as there are ranks" "$(grep -q 'ranks are back: continuing after step 6, --dp 4 --tp 1' err || cat err)"
goes_on "beside tensor parallelism" "lose 3 3" 1 'what 3 ranks hold, --dp 2 --tp 2' --dp 2 --tp 2 --redundancy buddy

# What lost ranks alone held is named; with a checkpoint the run continues from that.
WEFT_LOSE="lose 1 5" run --dp 2 --elastic on
result "shards without a copy" "$([ $got = 3 ] && grep -q 'no rank that is left has' err && [ "$(wc -l <err)" = 1 ] || cat err)"
goes_on "and with a checkpoint" "lose 1 5" 1 'the run continues from a checkpoint, --dp 2 --tp 1' --dp 2 --save saved --save-interval 4
rm -rf saved
WEFT_LOSE="lose 1 5" run "${buddy[@]}" --elastic on --min-dp 4 --rejoin-after 2
result "too few ranks are left" "$([ $got = 4 ] && grep -q '3 ranks are left, and no --dp from --min-dp 4 on' err || cat err)"

# refuse PATTERN FLAG..
refuse()
{
    local pattern=$1
    shift
    run "$@"
    result "refused: $*" "$([ $got = 2 ] && grep -qE -- "$pattern" err && [ "$(wc -l <err)" = 1 ] || cat err)"
}
refuse '--dp is 1' --elastic on
refuse '--elastic yes: on or off' --elastic yes
refuse '--redundancy both: none or buddy' --redundancy both
refuse '--min-dp belongs to --elastic on' --min-dp 2
refuse '--recovery-dir belongs to --elastic on' --recovery-dir /dev/shm/none
refuse '--save-best needs --save DIR' --save-best
run --dp 3 --elastic on --recovery-dir /dev/shm/none --nnodes 3 --fit-nodes 2
result "how many processes fit" "$([ "$(cat out)" = 2 ] || cat out err)"

# SIGTERM saves and ends with 75; the same command continues. A second run that saves there is refused meanwhile.
"$digits" --data "$data" --steps 100000 --save saved --log-jsonl stop.jsonl --dp 2 >out 2>err &
for ((i = 0; i < 400; i++)); do
    grep -q '"step"' stop.jsonl 2>/dev/null && break
    sleep 0.02
done
"$digits" --data "$data" --save saved >second 2>&1
result "one run at a time saves into a folder" "$([ $? = 8 ] && grep -q 'another run saves to saved' second || cat second)"
kill -TERM $!
wait $!
result "SIGTERM saves first" "$([ $? = 75 ] && [ -f saved/latest ] && ! grep -q '^digest' out || cat out err)"
run --steps 40 --save saved --save-interval 10
newest=$(find saved -name 'step-*' | sort | tail -1)
result "three checkpoints stay" "$([ "$(find saved -name 'step-*' | wc -l)" -le 4 ] || ls saved)"
result "a setting that differs is reported" "$(grep -q -- 'from here on --steps is 40; the checkpoint was made with 100000' err || cat err)"
sed -i 's/./x/40' "$newest/index.json"
run --steps 40 --save saved
result "a damaged checkpoint is reported, and the one before taken" "$([ $got = 0 ] && grep -q "$newest" err &&
    grep -q '^continuing from saved/step-' out || cat out err)"
finish
