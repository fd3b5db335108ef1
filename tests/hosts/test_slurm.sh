#!/bin/bash
# test_slurm.sh BUILD [--sanitized] - a real Slurm on four simulated hosts starts the app as the README
# says: srun, sbatch, and mpirun in an allocation, on two and on four of them; the digests are those
# of one rank. A job that loses a node goes on.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/common.sh
. "$here/common.sh"

if [ "${INSIDE:-}" != yes ]; then
    cd "$here" && rm -rf "$work"
    SLURMD_TIMEOUT=15 INSIDE=yes exec "$here/slurm.sh" 4 bash "$here/test_slurm.sh" "$build"
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
rm log
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
# lose HOST: all that runs there, and its memory.
lose()
{
    local network process
    touch "$work/lost-$1"
    network=$(stat -Lc %i "/media/$1/net")
    for process in /proc/[0-9]*; do
        [ "$(stat -Lc %i "$process/ns/net" 2>/dev/null)" != "$network" ] || kill -KILL "${process#/proc/}" 2>/dev/null
    done
    rm -rf "/media/$1/shm"/*
}

cat >agent <<EOF
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
[ ! -e $work/lost-\$1 ] || exit 255
exec $here/hosts.sh --on "\$@"
EOF
chmod +x agent
rm -f log
"$gpt_train" "${model[@]}" --steps 30 --log-jsonl log >out 2>err
digests log >alone
rm -f log
export OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
export RANKS=2 PROBE=1 MPIRUN_HOSTS=$here/../../scripts/mpirun_hosts.sh
"$here/hosts.sh" --on node0 "cd $work && sbatch --nodes 3 --nodelist node1,node2,node3 $here/../../scripts/weft_elastic.sbatch \
    ${model[*]} --steps 30 --log-jsonl $work/log --tp 2 --dp 3 --redundancy buddy" >out 2>err
for _ in $(seq 300); do
    [ "$(cat log 2>/dev/null | grep -c '"step"')" -lt 5 ] || break
    sleep 0.1
done
lose node3
problem=''
queue_is_empty || queue_is_empty || problem="the job does not end;"
digests log >got
cmp -s got alone || problem+=" other digests, of $(wc -l <got) steps;"
cat weft-*.out >>out
grep -q 'what hosts have kept in .*--dp 2 --tp 2' out || problem+=" no smaller mesh;"
result "sbatch, a node is lost" "$problem"
problem=''
queue_is_empty || problem="jobs are left"
result "nothing is left in the queue" "$problem"
finish
