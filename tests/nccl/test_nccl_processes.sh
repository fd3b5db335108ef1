#!/bin/bash
# test_nccl_processes.sh BUILD [--sanitized] - the transport's cases with ranks that are processes, over
# the emulated NCCL: started as torchrun starts them, with nothing but NCCL between them, and by
# mpirun, whose MPI carries what the hosts say.
set -uo pipefail
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/../hosts/common.sh"
trap 'rm -rf "$work"' EXIT
export WEFT_PLUGINS=$build/tests/nccl WEFT_TEST_TRANSPORT=nccl

# under_torchrun N PROGRAM...: as torchrun would; the exit status is the number of those that failed
under_torchrun()
{
    local n=$1 rank pids=() bad=0 pid
    shift
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$((20000 + $$ % 20000)) TORCHELASTIC_USE_AGENT_STORE=True \
            timeout -s KILL 60 "$@" >"out.$rank" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || bad=$((bad + 1))
    done
    return $bad
}

for n in 2 3 6; do
    problem=''
    under_torchrun $n "$build/tests/test_comm_nccl" || problem="$? processes failed"
    [ "$(grep -lE 'asserts +[1-9]' out.* | wc -l)" = "$n" ] ||
        problem+=" not all processes have asserted"
    result "test_comm under torchrun, $n processes" "$problem"
    [ -z "$problem" ] || tail -n 5 out.*
    rm -f out.*
done
problem=''
under_torchrun 2 "$build/tests/test_nccl_faults" >/dev/null
grep -q 'started 2 processes for 4 ranks: under torchrun each process is one rank' out.0 ||
    problem="no word of ranks that are no processes"
result "more ranks than processes under torchrun" "$problem"
[ -e "$build/libweft_mpi.so" ] || finish
for n in 2 4; do
    problem=''
    timeout -s KILL 60 "${mpirun[@]}" -np $n "$build/tests/test_comm_nccl" >out 2>err ||
        problem="exit status $?"
    [ "$(lines 'asserts +[1-9]')" = $n ] || problem+=" not all processes have asserted"
    result "test_comm under mpirun, $n processes" "$problem"
done
finish
