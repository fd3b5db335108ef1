#!/bin/bash
# test_slurm.sh BUILD [--sanitized] - a real Slurm on four simulated hosts starts the app as the README
# says: srun, sbatch, and mpirun in an allocation, on two and on four of them; the digests are those
# of one rank.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/common.sh
. "$here/common.sh"

if [ "${INSIDE:-}" != yes ]; then
    cd "$here" && rm -rf "$work"
    INSIDE=yes exec "$here/slurm.sh" 4 bash "$here/test_slurm.sh" "$build"
fi

# All jobs come to their end, within 20 s. (sbatch --wait looks after 2 s, and then after 8 more.)
queue_is_empty()
{
    for _ in $(seq 200); do
        [ -n "$("$here/hosts.sh" --on node0 squeue -h)" ] || return 0
        sleep 0.1
    done
    return 1
}

# started NAME SECONDS LINE...: the line, on node0, trains as one rank does.
started()
{
    local name=$1 limit=$2 problem=''
    shift 2
    rm -f log
    timeout -s KILL "$limit" "$here/hosts.sh" --on node0 "cd $work && $*" >out 2>err ||
        problem="exit status $?;"
    queue_is_empty || problem+=" the job does not end;"
    [ -f log ] && digests log >got || : >got
    cmp -s got alone || problem+=" other digests;"
    cat weft-*.out >>out 2>/dev/null
    result "$name" "$problem"
}

write_text
"$gpt_train" "${model[@]}" --steps 3 --log-jsonl log >out 2>err
digests log >alone
problem=''
[ "$(wc -l <alone)" = 3 ] || problem="$(wc -l <alone) steps"
result "one rank" "$problem"
export GPT_TRAIN=$gpt_train
train="${model[*]} --steps 3 --log-jsonl $work/log"
for hosts in 2 4; do
    started "srun, $hosts hosts, a process per rank" 60 srun --nodes $hosts --ntasks-per-node 2 \
        --mpi=pmix "$gpt_train" "$train" --tp 2 --dp $hosts
    started "srun, $hosts hosts, a process per host" 60 srun --nodes $hosts --ntasks-per-node 1 \
        --mpi=pmix --cpu-bind=none "$gpt_train" "$train" --tp 2 --dp $hosts
    started "sbatch, $hosts hosts" 60 sbatch --nodes $hosts "$here/../../scripts/weft.sbatch" \
        "$train" --tp 2 --dp $hosts
    started "mpirun in an allocation, $hosts hosts" 60 salloc --quiet --nodes $hosts \
        --ntasks-per-node 2 mpirun -np $((2 * hosts)) "$gpt_train" "$train" --tp 2 --dp $hosts
done
problem=''
queue_is_empty || problem="jobs are left"
result "nothing is left in the queue" "$problem"
finish
