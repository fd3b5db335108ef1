#!/bin/bash
# test_mpi.sh BUILD [--sanitized] - ranks in several processes on this machine: every case of the
# transports' test, and what goes wrong: an error on every rank, soon, told once, nothing left over.
# Cases mostly wait, so a few run at a time, each in a folder of its own.
set -uo pipefail
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/common.sh"
at_once=4 started=0

# start NAME COMMAND...: the command prints what is wrong, or nothing.
start()
{
    local name=$1
    shift
    while [ "$(jobs -rp | wc -l)" -ge $at_once ]; do
        wait -n
    done
    started=$((started + 1))
    mkdir "case$started"
    echo "$name" >"case$started/name"
    (cd "case$started" && "$@" >problem) &
}

# Results of all that were started, in their order.
collect()
{
    wait
    for ((i = 1; i <= started; i++)); do
        cd "$work/case$i" || exit 1
        result "$(<name)" "$(<problem)"
    done
    cd "$work" || exit 1
}

# shellcheck disable=SC2317 # it is called through start, as fault is
every_case()
{
    WEFT_TEST_TRANSPORT=mpi timeout -s KILL 120 "${mpirun[@]}" -np "$1" "$build/tests/test_comm" \
        >out 2>err || echo "exit status $?"
    [ "$(lines 'asserts +[1-9]')" = "$1" ] || echo "not all processes have asserted"
}

# fault NAME PROCESSES RANKS PATTERN TIMES: a case of mpi_ranks; PATTERN is on so many lines.
# shellcheck disable=SC2317
fault()
{
    local name=$1 processes=$2 ranks=$3 pattern=$4 times=$5 status begun=$SECONDS
    ln -s "$build/tests/hosts/mpi_ranks" . # its path is known by this folder
    timeout -s KILL 60 "${mpirun[@]}" -np "$processes" "$PWD/mpi_ranks" "$name" "$ranks" >out 2>err
    status=$?
    [ $((SECONDS - begun)) -le 10 ] || echo "took $((SECONDS - begun)) s;"
    [ "$(lines "$pattern")" = "$times" ] ||
        echo "'$pattern' on $(lines "$pattern") lines, not $times;"
    case $name in
    several_parts | background)
        [ "$status" = 0 ] || echo "exit status $status;"
        ;;
    die) [ "$status" != 0 ] || echo "exit status 0;" ;;
    *)
        [ "$status" != 0 ] || echo "exit status 0;"
        # Every process knows; one of them tells.
        [ "$(lines 'process .*: status [1-9]')" = "$processes" ] || echo "not on all;"
        [ "$(lines 'process .*\(here\)')" = 1 ] || echo "told more or less than once;"
        ;;
    esac
    ! pgrep -f "^$PWD/mpi_ranks" >/dev/null || echo "processes are left;"
}

ranks()
{
    start "$1: $3 ranks in $2 processes" fault "$@"
}

for n in 1 2 3 4; do
    start "test_comm in $n processes" every_case $n
done
for world in "4 4" "2 4"; do
    # shellcheck disable=SC2086 # two words
    set -- $world
    ranks differ $1 $2 'process.*all_reduce\(sum\).*barrier|process.*barrier.*all_reduce\(sum\)' $1
    ranks differ_large $1 $2 'process .*all_reduce\(sum\) of 41943(04|24|84) bytes' $1
    ranks differ_blocks $1 $2 'process .*rank 1 sends .* which expects' $1
    ranks fail $1 $2 'process .*: status [0-9]+ .*rank 1: the disk is full' $1
    ranks fail_in_flight $1 $2 'process .*: status [0-9]+ .*rank 1: the disk is full' $1
    ranks leave $1 $2 'process .*rank 1 has finished, rank [0-9] waits for it in barrier' $1
    ranks die $1 $2 'process .*\(here\): rank [01]: lost: process [01] .* has ended' 1
    ranks several_parts $1 $2 'rank [0-9]: status 0' $2
    ranks background $1 $2 'rank [0-9]: ended in [0-9]\.[0-9]+ ms' $2
done
# A timeline of ranks in two processes, which one of them writes.
write_text
problem=''
timeout -s KILL 60 "${mpirun[@]}" -np 2 "$gpt_train" "${model[@]}" --steps 3 --tp 2 --dp 2 --trace t.json \
    >out 2>err || problem="exit status $?;"
problem+=$(python3 -c '
import json
events = [e for e in json.load(open("t.json")) if e["ph"] == "X"]
for rank in range(4):
    mine = [e["ts"] for e in events if e["pid"] == rank]
    if not mine or min(mine) < 0 or max(mine) > 6e7: print("rank", rank, mine[:3])' 2>&1)
result "a timeline of two processes" "$problem"

ranks differ_message 2 4 'process .*(send|recv) of 6[04] bytes.*(send|recv) of 6[04] bytes' 2
ranks differ_split 2 4 'process .*list' 2
ranks differ_split 4 4 'process .*list' 4
collect
finish
