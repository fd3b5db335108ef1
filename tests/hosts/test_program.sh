#!/bin/bash
# test_program.sh BUILD - a program of a user on wf_par_run (docs/examples/digits.c) in two processes, of which one is killed: the
# other one leaves its state, and the same command, in one process, continues with it and has the digest of an undisturbed run.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100
set -uo pipefail
data=$(cd "$(dirname "$0")/../.." && pwd)/docs/examples/digits.txt
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/common.sh"

dir=$(mktemp -d /dev/shm/weft-program-XXXXXX)
trap 'rm -rf "$dir" "$work"' EXIT

# start PROCESSES LOSS FLAG..
start()
{
    local processes=$1
    export WEFT_LOSE=$2
    shift 2
    timeout -s KILL 60 "${mpirun[@]}" -x WEFT_LOSE -np "$processes" "$build/tests/hosts/digits_faulty" --data "$data" \
        --steps 24 --stall-timeout 10 --dp 2 "$@" >out 2>err
}

elastic=(--redundancy buddy --elastic on --recovery-dir "$dir/held" --nnodes 2 --log-jsonl log)
"$build/tests/hosts/digits_faulty" --data "$data" --steps 24 >out 2>err
whole=$(grep '^digest' out)
result "a run that loses no rank" "$([ -n "$whole" ] || cat err)"
start 2 '' --redundancy buddy --elastic on
result "processes without memory that outlives them" "$([ $? = 2 ] && grep -q 'give --recovery-dir DIR' err || cat out err)"
start 2 'kill 1 6' "${elastic[@]}"
result "one of two processes is killed" "$([ $? != 0 ] && [ -n "$(find "$dir/held" -name '*.safetensors')" ] || cat out err)"
start 1 '' "${elastic[@]}" --steps 25
result "another job is refused" "$([ $? = 2 ] && grep -q 'was left by another job (--steps 24 there and 25 here)' err || cat err)"
start 1 '' "${elastic[@]}"
result "the other one continues alone" "$([ $? = 0 ] && [ "$(grep '^digest' out)" = "$whole" ] &&
    grep -q 'continuing after step 5 with what hosts have kept in .*, --dp 1 --tp 1, ' err || cat out err)"
result "each step is logged once" "$([ "$(grep -c '"step"' log)" = 24 ] || echo "$(grep -c '"step"' log) rows")"
result "nothing is left on the host" "$([ ! -e "$dir/held" ] || find "$dir")"
finish
