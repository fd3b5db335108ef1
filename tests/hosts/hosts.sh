#!/bin/bash
# hosts.sh N RATE COMMAND... - run a command where N simulated hosts exist: node0 .. nodeN-1, each
# with its own name, network (10.77.0.10 and on) and shared memory, joined by a switch. RATE limits
# each link, as tc says it ("1gbit"); "-" does not. Exit status: that of the command, or 77 where
# this machine does not let hosts be made (root and namespaces are needed).
# hosts.sh --on HOST COMMAND... - run it on a host, as ssh would; inside of the above.
#
# All of it lives in namespaces of one process, which is their init: when that ends, killed or not,
# the kernel ends whatever runs on the hosts and takes networks and mounts away. Nothing outside
# is touched.
set -euo pipefail

hosts=/media self=$(readlink -f "$0")

# on HOST COMMAND...
on()
{
    local dir=$hosts/$1
    shift
    [ -e "$dir/net" ] || {
        echo "hosts.sh: no such host: ${dir##*/}" >&2
        exit 255
    }
    # shellcheck disable=SC2016 # for the shell inside
    exec nsenter --net="$dir/net" --uts="$dir/uts" --ipc="$dir/ipc" \
        unshare --mount --propagation private sh -c \
        'mount --bind "$0/shm" /dev/shm && exec sh -c "$*"' "$dir" "$@"
}

limit()
{
    [ "$rate" = - ] || "$@" root tbf rate "$rate" burst 256kb latency 50ms
}

make_host()
{
    local name=node$1 dir=$hosts/node$1
    mkdir -p "$dir/shm"
    chmod 1777 "$dir/shm"
    touch "$dir/net" "$dir/uts" "$dir/ipc"
    unshare --net="$dir/net" --uts="$dir/uts" --ipc="$dir/ipc" \
        sh -c "hostname $name && ip link set lo up"
    ip link add "port$1" type veth peer name eth0 netns "$dir/net"
    ip link set "port$1" up master switch
    nsenter --net="$dir/net" ip addr add "10.77.0.$((10 + $1))/24" dev eth0
    nsenter --net="$dir/net" ip link set eth0 up
    limit tc qdisc add dev "port$1"
    limit nsenter --net="$dir/net" tc qdisc add dev eth0
    echo "10.77.0.$((10 + $1)) $name" >>$hosts/etc
}

# Here the network is the switch, and mounts are ours alone.
make_hosts()
{
    mount -t tmpfs weft-hosts $hosts
    mount --make-private $hosts
    cp /etc/hosts $hosts/etc
    mount --bind $hosts/etc /etc/hosts
    ip link set lo up
    ip link add switch type bridge
    ip link set switch up
    for ((i = 0; i < n; i++)); do
        make_host $i
    done
}

case ${1:-} in
--on)
    shift
    while [[ $1 == -* ]]; do # options of ssh
        shift
    done
    on "$@"
    ;;
--inside)
    n=$2 rate=$3
    shift 3
    make_hosts
    "$@"
    ;;
*)
    [ $# -ge 3 ] || {
        sed -n '2,/^set/p' "$self" | sed '$d; s/^# \{0,1\}//' >&2
        exit 2
    }
    for tool in ip tc nsenter unshare; do
        command -v $tool >/dev/null || {
            echo "skipped: $tool is not here (Debian: iproute2, util-linux)"
            exit 77
        }
    done
    private=(unshare --mount --propagation private --pid --mount-proc --fork --kill-child --net)
    "${private[@]}" sh -c 'mount -t tmpfs none /mnt && ip link add probe type bridge' 2>/dev/null || {
        echo "skipped: no right to make namespaces, networks and mounts here (root has it)"
        exit 77
    }
    exec "${private[@]}" "$self" --inside "$@"
    ;;
esac
