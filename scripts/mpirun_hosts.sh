#!/bin/bash
# mpirun_hosts.sh HOST[,HOST...] RANKS_PER_HOST PROGRAM ARGUMENT... - starts a program of Weft on a
# list of hosts with OpenMPI: one process per host, whose ranks are its threads, so that only what
# crosses hosts goes over MPI. The program and its data lie at the same path on every host.
#
#     scripts/mpirun_hosts.sh node1,node2 8 gpt_train --data text --tp 8 --dp 2
#
# For a process per rank instead: PROCESSES=8 (per host). RANKS_PER_HOST is checked against --tp and
# --dp, whose product is that of hosts and ranks per host. mpirun heeds its own OMPI_MCA_* variables:
# OMPI_MCA_btl_tcp_if_include=10.0.0.0/8 chooses a network.
set -euo pipefail

if [ $# -lt 3 ]; then
    sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
    exit 2
fi
IFS=, read -ra hosts <<<"$1"
ranks=$2 processes=${PROCESSES:-1} tp=1 dp=1 word=''
shift 2

for argument in "$@"; do
    case $word in
    --tp) tp=$argument ;;
    --dp) dp=$argument ;;
    esac
    case $argument in
    --tp=*) tp=${argument#*=} ;;
    --dp=*) dp=${argument#*=} ;;
    esac
    word=$argument
done
if [ $((tp * dp)) != $((ranks * ${#hosts[@]})) ]; then
    echo "mpirun_hosts: --tp $tp x --dp $dp = $((tp * dp)) ranks, but ${#hosts[@]} hosts x $ranks" \
        "ranks = $((ranks * ${#hosts[@]})); change one of them" >&2
    exit 2
fi

# A process is given the whole host: its ranks' threads share out the cores.
list=$(printf "%s:$processes," "${hosts[@]}")
exec mpirun --host "${list%,}" --bind-to none -x LD_LIBRARY_PATH -x WEFT_PLUGINS "$@"
