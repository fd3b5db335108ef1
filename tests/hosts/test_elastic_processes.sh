#!/bin/bash
# test_elastic_processes.sh BUILD [--sanitized] - --elastic of ranks in several processes: those that are left leave what they hold,
# and the next start goes on with it, on the mesh of fewer processes and with the digests of one rank; where a rank and its
# buddy are lost at once it goes on from the newest checkpoint, and without one it says what there is to do.
# scripts/proofs/elastic_hosts.py loses hosts.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100
set -uo pipefail
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/common.sh"

dir=$(mktemp -d /dev/shm/weft-elastic-XXXXXX)
trap 'rm -rf "$dir" "$work"' EXIT
elastic=(--dp 4 --micro-batch-size 1 --redundancy buddy --elastic on --recovery-dir "$dir/held" --nnodes 4 --log-jsonl log
    --stall-timeout 5)

# start PROCESSES FAULT FLAG..: gpt_train in so many, of which some have faults.
start()
{
    local processes=$1
    export WEFT_FAULT=$2
    shift 2
    timeout -s KILL 100 "${mpirun[@]}" -x WEFT_FAULT -np "$processes" "$build/tests/hosts/gpt_train_faulty" "${model[@]}" \
        --steps 8 "${elastic[@]}" "$@" >out 2>err
}

# goes_on NAME STATUS PROCESSES WORDS FLAG..: the next start says so, ends so, and where it ends well the digests of all starts are
# those in `expected`.
goes_on()
{
    local name=$1 status=$2 processes=$3 words=$4 got problem=''
    shift 4
    start "$processes" '' "$@"
    got=$?
    [ $got = "$status" ] || problem="exit status $got, not $status;"
    grep -qE -- "$words" out err || problem+=" $(cat err);"
    if [ "$status" = 0 ]; then
        digests log >all
        cmp -s all expected || problem+=" other digests, of $(wc -l <all) steps;"
        [ ! -e "$dir/held" ] || problem+=" something is left on the host;"
    fi
    result "$name" "$problem"
}

write_text
"$gpt_train" "${model[@]}" --steps 8 --log-jsonl log >out 2>err
digests log >alone
rm log

# refused NAME STATUS WORDS FLAG..: what is left is not taken up, and stays as it is.
refused()
{
    local name=$1 status=$2 words=$3 got
    shift 3
    start 2 '' --nnodes 2 --dp 2 "$@"
    got=$?
    result "$name" "$([ $got = "$status" ] && grep -qE -- "$words" err || echo "exit status $got, not $status; $(cat err)")"
    result "and stays" "$([ "$(find "$dir" -name '*.safetensors' | wc -l)" = 1 ] || find "$dir")"
}

# What is left is taken up of this run and job alone, and out of a folder of this user's own (parallel.test_output has more).
rm -f log
export WEFT_RUN_ID=one
start 2 "kill forward 1 4" --nnodes 2 --dp 2
result "one of two processes is killed" "$([ "$(find "$dir/held" -name '*.safetensors')" = "$dir/held/0-0.safetensors" ] || cat err)"
refused "a job with another rate" 2 'was left by another job \(--lr 0.003 there and 0.02 here' --lr 0.02
printf 'other words' | dd of=text bs=1 seek=50 conv=notrunc 2>err
refused "another content of the data" 2 'was left by another job \(content of the data .* there and .* here'
write_text
WEFT_RUN_ID=two
refused "another run" 2 'was left by run one, and this one is run two'
WEFT_RUN_ID=one
mv "$dir/held" "$dir/elsewhere" && ln -s elsewhere "$dir/held"
refused "a link" 3 'it is a symbolic link, and is not followed'
rm "$dir/held" && mv "$dir/elsewhere" "$dir/held"
touch "$dir/held/model.safetensors"
cp alone expected
rm -f log
start 2 '' --nnodes 2 --dp 2
result "the same job of the same run continues" "$(grep -qE 'continuing after step|continues after step' out err || cat err)"
result "and leaves a file that is none of its own" "$([ "$(find "$dir" -name '*.safetensors')" = "$dir/held/model.safetensors" ] || find "$dir")"
rm -r "$dir/held"
unset WEFT_RUN_ID

cp alone expected
rm -f log
start 4 "kill forward 1 4"
result "a process is killed, and the others leave what they hold" \
    "$([ $? != 0 ] && [ "$(find "$dir/held" -name '*.safetensors' | wc -l)" = 3 ] || cat err)"
goes_on "three continue with it" 0 3 'after step 3 .*--dp 3'

rm -f log
start 4 "kill forward 1 6;kill forward 2 6" --save saved --save-interval 3
result "a process is killed, and the one with its buddy" "$([ $? != 0 ] || cat err)"
goes_on "the run continues from its checkpoint, steps 4 and 5 are repeated and logged once" 0 4 'continuing after step 3 with a checkpoint' --save saved --save-interval 3

# Two hosts are the smallest cluster: down to one process, which is asked to leave at once and is started again, and
# back to two. Each step is logged once, with and without checkpoints, which are older than what the survivor holds.
two_of_two()
{
    local how=$1 got
    shift
    rm -rf log saved
    start 2 "kill forward 1 4" --nnodes 2 "$@"
    result "one process of two is killed, $how" "$([ $? != 0 ] && [ -n "$(find "$dir/held" -name '*.safetensors')" ] || cat err)"
    touch "$dir/held/leave"
    start 1 '' --nnodes 2 "$@"
    got=$?
    result "the other one is asked to leave before it has made a step" "$([ $got = 75 ] &&
        [ -n "$(find "$dir/held" -name '*.safetensors')" ] || cat out err)"
    rm "$dir/held/leave"
    start 1 'term forward 0 6' --nnodes 2 "$@"
    got=$?
    if [ $# = 0 ]; then # without --save SIGTERM ends it; what it restored is still there
        result "continues alone, and is killed" "$([ $got != 0 ] && grep -q 'after step 3 with .*--dp 2' err || cat out err)"
    else
        result "continues alone, and is asked to stop" "$([ $got = 75 ] && grep -q 'after step 3 with .*--dp 2' err || cat out err)"
    fi
    goes_on "both continue, $how" 0 2 'after step [3-7] .*--dp 4' --nnodes 2 "$@"
}
two_of_two "nothing is saved"
two_of_two "the run saves" --save saved --save-interval 2

rm -f log
start 4 "kill forward 1 6;kill forward 2 6"
goes_on "without one it says what to do" 3 4 'There is no checkpoint to continue from: start the run where the other shards are kept, or remove'
result "on one line" "$([ "$(lines '^gpt_train: ')" = 1 ] || cat err)"
finish
