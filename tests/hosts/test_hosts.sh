#!/bin/bash
# test_hosts.sh BUILD [--sanitized] - the same digests over two simulated hosts, with a process per
# rank and with one process of several threads per host; a killed process on one of them; and that
# hosts leave nothing behind, also when they are killed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/common.sh
. "$here/common.sh"

if [ "${INSIDE:-}" != yes ]; then
    cd "$here" && rm -rf "$work"
    INSIDE=yes exec "$here/hosts.sh" 2 - bash "$here/test_hosts.sh" "$build"
fi
trap 'rm -rf "$work"' EXIT

# mpirun on node0, over a list of hosts, with TCP between them and ours as ssh.
over=("$here/hosts.sh" --on node0 exec mpirun --bind-to none --mca plm_rsh_agent
    "'$here/hosts.sh --on'" --mca btl_tcp_if_include 10.77.0.0/24
    --mca oob_tcp_if_include 10.77.0.0/24 -wdir "$work" -x WEFT_PLUGINS --host)

train_alone
"${over[@]}" node0:2,node1:2 hostname >out 2>err
problem=''
[ "$(lines '^node0$')" = 2 ] && [ "$(lines '^node1$')" = 2 ] || problem="hosts have other names"
result "two processes on each host" "$problem"
same "2 hosts x 4 processes" "${over[@]}" node0:4,node1:4
same "2 hosts x 1 process x 4 threads" "${over[@]}" node0:1,node1:1

# The launch line of scripts/.
problem=''
OMPI_MCA_plm_rsh_agent="$here/hosts.sh --on" OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 \
    OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 "$here/hosts.sh" --on node0 "cd $work && \
    $here/../../scripts/mpirun_hosts.sh node0,node1 4 $gpt_train ${model[*]} --steps 20 --tp 4 \
    --dp 2 --log-jsonl $work/log" >out 2>err || problem="exit status $?;"
digests log >got
cmp -s got alone || problem+=" other digests;"
result "scripts/mpirun_hosts.sh" "$problem"
problem=''
"$here/../../scripts/mpirun_hosts.sh" node0,node1 4 "$gpt_train" --tp 2 --dp 2 >out 2>err && problem="exit status 0;"
[ "$(lines '2 x --dp 2 = 4 ranks, but 2 hosts x 4 ranks = 8')" = 1 ] || problem+=" not said"
result "scripts/mpirun_hosts.sh with another mesh" "$problem"
killed "2 hosts x 2 processes" 15 "${over[@]}" node0:2,node1:2

# Hosts in hosts: the inner ones' maker is killed while something runs there.
"$here/hosts.sh" 2 - "$here/hosts.sh" --on node1 "sleep 4712" >out 2>err &
for _ in $(seq 50); do
    pgrep -f "^sleep 4712" >/dev/null && break
    sleep 0.1
done
problem=''
pgrep -f "^sleep 4712" >/dev/null || problem="nothing runs there;"
kill -KILL $!
wait $! 2>/dev/null
! left "sleep 4712" || problem+=" processes are left;"
result "hosts that are killed leave nothing" "$problem"
finish
