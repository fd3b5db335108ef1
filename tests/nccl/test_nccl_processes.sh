#!/bin/bash
# test_nccl_processes.sh BUILD [--sanitized] - the transport's cases with ranks that are processes, over
# the emulated NCCL: started as torchrun starts them, with nothing but NCCL between them, and by
# mpirun, whose MPI carries what the hosts say.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100, timeout 120
set -uo pipefail
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/../hosts/common.sh"
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

problem='' # two processes are started by mpirun below
under_torchrun 6 "$build/tests/test_comm_nccl" || problem="$? processes failed"
[ "$(grep -lE 'asserts +[1-9]' out.* | wc -l)" = 6 ] || problem+=" not all processes have asserted"
result "test_comm under torchrun, 6 processes" "$problem"
[ -z "$problem" ] || tail -n 5 out.*
rm -f out.*

# trains N RANKS-OPTIONS...: gpt_train on the emulated GPU has the digest of its ranks as threads.
trains()
{
    local n=$1 problem='' want
    shift
    rm -f log
    WEFT_PLUGINS=$build/tests/cuda "$gpt_train" "${model[@]}" --device cuda --steps 2 "$@" \
        --transport threads --log-jsonl log >out 2>err || problem="threads: exit status $?;"
    want=$(digests log)
    rm -f log
    WEFT_PLUGINS=$build/tests/cuda WEFT_EMULATOR=eager under_torchrun "$n" "$gpt_train" "${model[@]}" \
        --device cuda --steps 2 "$@" --log-jsonl log || problem+=" $? processes failed;"
    { [ "$(wc -l <<<"$want")" = 2 ] && [ "$(digests log)" = "$want" ]; } || problem+=" other digests;"
    result "gpt_train --device cuda under torchrun, $n processes: $*" "$problem"
    [ -z "$problem" ] || tail -n 5 out.*
    rm -f out.*
}

if [ -e "$build/tests/cuda/libweft_cuda.so" ]; then
    write_text
    model=(--data text --n-layer 1 --n-embd 32 --n-head 4 --vocab-size 257 --seq-len 16
        --global-batch-size 4 --eval-interval 0 --digest)
    trains 4 --tp 2 --dp 2
    problem='' # and ranks that are threads of one process, with a GPU each
    for transport in threads nccl; do
        WEFT_PLUGINS=$build/tests/cuda WEFT_EMULATOR_DEVICES=2 timeout -s KILL 60 "$gpt_train" "${model[@]}" \
            --device cuda --steps 2 --tp 2 --transport $transport --log-jsonl "$transport" >out 2>err ||
            problem+=" $transport: exit status $?;"
    done
    { [ "$(wc -l <threads)" -ge 2 ] && [ "$(digests threads)" = "$(digests nccl)" ]; } || problem+=" other digests;"
    result "gpt_train --device cuda --transport nccl, 2 threads with a GPU each" "$problem"
    rm -f threads nccl
    problem=''
    WEFT_PLUGINS=$build/tests/cuda WEFT_EMULATOR=eager under_torchrun 2 "$gpt_train" "${model[@]}" \
        --device cuda --steps 3 --pp 2
    [ $? = 2 ] || problem="not all processes have failed;"
    [ "$(grep -h 'one group, in which pipeline ranks would wait' out.* | wc -l)" = 1 ] ||
        problem+=" not reported once"
    result "pipeline ranks over nccl are refused" "$problem"
    rm -f out.*
fi
problem=''
under_torchrun 2 "$build/tests/test_nccl_faults" >/dev/null
grep -q 'started 2 processes for 4 ranks: under torchrun each process is one rank' out.0 ||
    problem="no word of ranks that are no processes"
result "more ranks than processes under torchrun" "$problem"
[ -e "$build/libweft_mpi.so" ] || finish
problem=''
timeout -s KILL 60 "${mpirun[@]}" -np 2 "$build/tests/test_comm_nccl" >out 2>err ||
    problem="exit status $?"
[ "$(lines 'asserts +[1-9]')" = 2 ] || problem+=" not all processes have asserted"
result "test_comm under mpirun, 2 processes" "$problem"
finish
