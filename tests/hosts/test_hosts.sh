#!/bin/bash
# test_hosts.sh BUILD [--sanitized] - the same bits over two and four simulated hosts, with a process
# per rank and with one process of several threads per host; that tp stays inside hosts however the
# launcher deals processes out; and that hosts leave nothing behind, also when they are killed.
# STEPS=20 for more than the few steps of CI, WHOLE=yes for more hosts.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/common.sh
. "$here/common.sh"

if [ "${INSIDE:-}" != yes ]; then
    cd "$here" && rm -rf "$work"
    INSIDE=yes exec "$here/hosts.sh" 4 - bash "$here/test_hosts.sh" "$build"
fi

# mpirun on node0, over a list of hosts, with TCP between them and ours as ssh.
over=("$here/hosts.sh" --on node0 exec mpirun --bind-to none --mca plm_rsh_agent
    "'$here/hosts.sh --on'" --mca btl_tcp_if_include 10.77.0.0/24
    --mca oob_tcp_if_include 10.77.0.0/24 -wdir "$work" -x WEFT_PLUGINS --host)

# inside NAME LAYOUT SIZE: groups of so many neighbouring ranks are on one host each.
inside()
{
    local problem='' group
    # shellcheck disable=SC2046 # paste takes as many words
    seats out "$2" | tr ' ' '\n' | paste -d ' ' $(yes - | head -"$3") >groups
    [ -s groups ] || problem="no seats are reported"
    while read -r group; do
        [ "$(tr ' ' '\n' <<<"$group" | sort -u | wc -l)" = 1 ] || problem="tp over $group"
    done <groups
    result "$1" "$problem"
}

by_threads
"${over[@]}" node0:2,node1:2 hostname >out 2>err
problem=''
[ "$(lines '^node0$')" = 2 ] && [ "$(lines '^node1$')" = 2 ] || problem="hosts have other names"
result "two processes on each host" "$problem"
same "2 hosts x 4 processes, dealt out one by one" "${over[@]}" node0:4,node1:4 --map-by node
inside "tp 4 inside hosts" "tp 4 dp 2 full_shard" 4
inside "tp 2 inside hosts" "tp 2 dp 4 hybrid_shard" 2
problem=''
[ "$(lines '^warning tp 8 dp 1 full_shard: 1 of 1 tp groups of 8 do not sit inside one host')" = 1 ] ||
    problem="not said"
[ "$(lines '^warning')" = 1 ] || problem+=" said of others"
result "tp 8 over both hosts is warned of" "$problem"
if [ "$whole" = yes ]; then
    same "2 hosts x 1 process x 4 threads" "${over[@]}" node0:1,node1:1
    same "4 hosts x 2 processes, dealt out one by one" "${over[@]}" \
        node0:2,node1:2,node2:2,node3:2 --map-by node
    inside "tp 2 inside hosts" "tp 2 dp 4 full_shard" 2
fi
same "4 hosts x 1 process x 2 threads" "${over[@]}" node0:1,node1:1,node2:1,node3:1
same "3 hosts of 2, 4 and 2 processes" "${over[@]}" node0:2,node1:4,node2:2
problem=''
[[ "$(seats out "tp 4 dp 2 full_shard")" =~ ^node0\ .*node1\ node1\ node1\ node1$ ]] ||
    problem="$(seats out "tp 4 dp 2 full_shard")"
result "tp 4 inside the host that has room for it, rank 0 in the first process" "$problem"

# The launch line of scripts/, with the app.
write_text
"$gpt_train" "${model[@]}" --steps 3 --log-jsonl log >out 2>err
digests log >alone
rm log
problem=''
[ "$(wc -l <alone)" = 3 ] || problem+=" one rank has $(wc -l <alone) steps;"
OMPI_MCA_plm_rsh_agent="$here/hosts.sh --on" OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 \
    OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 "$here/hosts.sh" --on node0 "cd $work && \
    $here/../../scripts/mpirun_hosts.sh node0,node1 4 $gpt_train ${model[*]} --steps 3 --tp 4 \
    --dp 2 --log-jsonl $work/log" >out 2>err || problem+=" exit status $?;"
digests log >got
cmp -s got alone || problem+=" other digests;"
result "scripts/mpirun_hosts.sh" "$problem"
problem=''
"$here/../../scripts/mpirun_hosts.sh" node0,node1 4 "$gpt_train" --tp 2 --dp 2 >out 2>err && problem="exit status 0;"
[ "$(lines '2 x --dp 2 = 4 ranks, but 2 hosts x 4 ranks = 8')" = 1 ] || problem+=" not said"
result "scripts/mpirun_hosts.sh with another mesh" "$problem"

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
