#!/bin/bash
# slurm.sh N COMMAND... - run a command where N simulated hosts exist (hosts.sh) and Slurm is up on
# them: its controller on node0, a daemon on each. srun, sbatch and salloc belong to node0:
# hosts.sh --on node0 srun ... Exit status: that of the command, or 77 where Slurm or the right to make
# hosts is missing.
# slurm.sh --install - the Debian packages that this takes.
#
# All daemons, their files and sockets live in the hosts' namespaces, and end with them; the
# machine's own Slurm and munge, if there are any, are not touched.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd) self=$(readlink -f "$0")
export PATH=$PATH:/usr/sbin

up()
{
    local dir=/media/slurm
    mkdir -p $dir/state
    chmod 755 $dir
    cat >$dir/slurm.conf <<CONF
ClusterName=weft
SlurmctldHost=node0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=2
SlurmdTimeout=${SLURMD_TIMEOUT:-300}
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmdLogFile=$dir/slurmd.%n.log
NodeName=node[0-$((n - 1))] CPUs=8 State=UNKNOWN
PartitionName=weft Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    export SLURM_CONF=$dir/slurm.conf
    (umask 077 && head -c 1024 /dev/urandom >$dir/munge.key)
    munged --force --num-threads 2 --socket $dir/munge.socket --key-file $dir/munge.key \
        --pid-file $dir/munged.pid --log-file $dir/munged.log --seed-file $dir/munge.seed \
        >$dir/start.log 2>&1
    "$here/hosts.sh" --on node0 slurmctld >>$dir/start.log 2>&1
    for ((i = 0; i < n; i++)); do
        mkdir "$dir/tmp.node$i"
        "$here/hosts.sh" --on "node$i" slurmd -N "node$i" >>$dir/start.log 2>&1
    done
    for ((i = 0; i < 100; i++)); do
        [ "$("$here/hosts.sh" --on node0 sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$')" != "$n" ] ||
            return 0
        sleep 0.1
    done
    echo "slurm.sh: Slurm is not up after 10 s" >&2
    tail -n 5 $dir/*.log >&2
    return 1
}

case ${1:-} in
--install)
    exec apt-get install -y --no-install-recommends slurm-wlm slurm-wlm-basic-plugins munge \
        libpmix2
    ;;
--inside)
    n=$2
    shift 2
    up
    "$@"
    ;;
*)
    [ $# -ge 2 ] || {
        sed -n '2,/^set/p' "$self" | sed '$d; s/^# \{0,1\}//' >&2
        exit 2
    }
    for tool in slurmctld slurmd srun munged; do
        command -v $tool >/dev/null || {
            echo "skipped: $tool is not here (Debian: $self --install)"
            exit 77
        }
    done
    exec "$here/hosts.sh" "$1" - "$self" --inside "$@"
    ;;
esac
