#!/bin/bash
# mpirun_hosts.sh [--elastic] HOST[,HOST...] RANKS_PER_HOST PROGRAM ARGUMENT... - starts a program of Weft on a
# list of hosts with OpenMPI: one process per host, whose ranks are its threads, so that only what
# crosses hosts goes over MPI. The program and its data lie at the same path on every host.
#
#     scripts/mpirun_hosts.sh node1,node2 8 gpt_train --data text --tp 8 --dp 2
#
# For a process per rank instead: PROCESSES=8 (per host). RANKS_PER_HOST is checked against --pp, --tp and
# --dp, whose product is that of hosts and ranks per host. mpirun heeds its own OMPI_MCA_* variables:
# OMPI_MCA_btl_tcp_if_include=10.0.0.0/8 chooses a network.
#
# With --elastic gpt_train, or a program on wf_par_run, is restarted where a host or process is lost, on the
# hosts that answer, and continues from what these hold in /dev/shm (--elastic, --recovery-dir). Hosts are asked by the agent that mpirun takes
# (OMPI_MCA_plm_rsh_agent, ssh). One that answers later rejoins at the next step: they are asked every PROBE
# seconds (10). A run that fails MAX_RESTARTS times (100) ends, and so does one that a signal has asked to. Run it
# where no host that may be lost takes it along, or restart it with the same WEFT_RUN, its name, and a
# larger WEFT_RESTARTS (0): scripts/weft_elastic.sbatch does.
set -euo pipefail

usage()
{
    sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
    exit 2
}

elastic=no
if [ "${1:-}" = --elastic ]; then
    elastic=yes
    shift
fi
[ $# -ge 3 ] || usage
IFS=, read -ra hosts <<<"$1"
ranks=$2 processes=${PROCESSES:-1} pp=1 tp=1 dp=1 word=''
shift 2

for argument in "$@"; do
    case $word in
    --pp) pp=$argument ;;
    --tp) tp=$argument ;;
    --dp) dp=$argument ;;
    esac
    case $argument in
    --pp=*) pp=${argument#*=} ;;
    --tp=*) tp=${argument#*=} ;;
    --dp=*) dp=${argument#*=} ;;
    esac
    word=$argument
done
if [ $((pp * tp * dp)) != $((ranks * ${#hosts[@]})) ]; then
    echo "mpirun_hosts: --pp $pp x --tp $tp x --dp $dp = $((pp * tp * dp)) ranks, but ${#hosts[@]} hosts x $ranks" \
        "ranks = $((ranks * ${#hosts[@]})); change one of them" >&2
    exit 2
fi

# over HOST...: the words of mpirun for these. A process is given the whole host: its ranks' threads share out the cores.
over()
{
    local list
    list=$(printf "%s:$processes," "$@")
    launch=(mpirun --host "${list%,}" --bind-to none -x LD_LIBRARY_PATH -x WEFT_PLUGINS)
}

if [ $elastic = no ]; then
    over "${hosts[@]}"
    exec "${launch[@]}" "$@"
fi

read -ra agent <<<"$(sed "s/'//g" <<<"${OMPI_MCA_plm_rsh_agent:-ssh}")"
run=weft-${WEFT_RUN:-$UID-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')} restarts=${WEFT_RESTARTS:-0} watcher='' reaper='' job='' asked=no grows=$(mktemp)
flags=(--elastic on --recovery-dir "/dev/shm/$run" --nnodes $((processes * ${#hosts[@]})))
trap 'rm -f "$grows"; [ -z "$watcher$reaper" ] || kill $watcher $reaper 2>/dev/null || true' EXIT

# A host's folder of the run in /dev/shm, where others could have put one of that name before: it is this user's, and no link.
export WEFT_RUN_ID=$run
own="[ -O /dev/shm/$run ] && [ ! -L /dev/shm/$run ]"

on()
{
    local host=$1
    shift
    timeout 5 "${agent[@]}" "$host" "$@" </dev/null 2>/dev/null
}

# Those that answer, asked at the same time.
answering()
{
    local host
    for host in "$@"; do
        { on "$host" true && echo "$host"; } &
    done | sort
    wait
}

# A signal ends the run, and is none of its failures.
stop()
{
    asked=yes
    [ -z "$job" ] || kill -TERM "$job" 2>/dev/null || true
}
trap stop INT TERM HUP

# watch USED...: until a host that is not one of these answers. Those are then asked to leave what they hold.
watch()
{
    local host others=()
    for host in "${hosts[@]}"; do
        [[ " $* " == *" $host "* ]] || others+=("$host")
    done
    [ ${#others[@]} -gt 0 ] || return 0
    while sleep "${PROBE:-10}"; do
        mapfile -t back < <(answering "${others[@]}")
        mapfile -t alive < <(answering "${hosts[@]}")
        [ ${#back[@]} -gt 0 ] && [ "$("$program" "${flags[@]}" --fit-nodes $((processes * ${#alive[@]})))" -gt \
            $((processes * $#)) ] || continue
        echo yes >"$grows"
        for host in "$@"; do
            on "$host" "mkdir -m 700 /dev/shm/$run; $own && touch /dev/shm/$run/leave" || true
        done
        return 0
    done
}

# reap JOB HOST...: ends mpirun where a host has fallen silent, as by a loss of power, and nothing of the run is left on the
# others: mpirun waits for the daemon of that host, whose connection is not closed.
reap()
{
    local job=$1 host busy answer
    shift
    while sleep "${PROBE:-10}"; do
        mapfile -t answer < <(answering "$@")
        [ ${#answer[@]} -lt $# ] || continue
        busy=no
        for host in "${answer[@]}"; do
            on "$host" "pgrep -af '[w]${run#w}' | grep -v '^[0-9]* [^ ]*mpirun '" >/dev/null && busy=yes
        done
        [ $busy = yes ] || kill -KILL "$job" 2>/dev/null || true
    done
}

# settle HOST...: until no process of the run is there.
settle()
{
    local host
    for host in "$@"; do
        timeout 60 "${agent[@]}" "$host" "while pgrep -f '[w]${run#w}' >/dev/null; do sleep 0.05; done" \
            </dev/null >/dev/null 2>&1 &
    done
    wait
}

# What hosts that are not used hold goes to one that is.
bring()
{
    local host used=$1
    shift
    for host in "$@"; do
        timeout 600 "${agent[@]}" "$host" "$own && cd /dev/shm && tar -c $run && rm -r $run" </dev/null 2>/dev/null |
            timeout 600 "${agent[@]}" "$used" "cd /dev/shm && tar -x" 2>/dev/null || true
    done
}

program=$1
shift
flags=("$@" "${flags[@]}")
while :; do
    mapfile -t alive < <(answering "${hosts[@]}")
    if [ ${#alive[@]} = 0 ]; then
        echo "mpirun_hosts: no host of ${hosts[*]} answers" >&2
        exit 4
    fi
    fit=$("$program" "${flags[@]}" --fit-nodes $((processes * ${#alive[@]}))) || exit $?
    count=$(((fit + processes - 1) / processes))
    used=("${alive[@]:0:count}")
    [ $restarts = 0 ] || bring "${used[0]}" "${alive[@]:count}"
    for host in "${used[@]}"; do
        on "$host" "$own && rm -f /dev/shm/$run/leave" || true
    done
    over "${used[@]}"
    : >"$grows"
    watch "${used[@]}" &
    watcher=$!
    status=0
    # Every host's daemon hangs on mpirun itself, and none on that of another host, which may be lost. What mpirun kills
    # where one is lost is setsid alone: the program has a second or more to leave what it holds.
    WEFT_RESTART_COUNT=$restarts "${launch[@]}" --mca routed direct --mca plm_rsh_no_tree_spawn 1 -x WEFT_RESTART_COUNT -x WEFT_RUN_ID \
        setsid --fork --wait "$program" "${flags[@]}" &
    job=$!
    reap $job "${used[@]}" &
    reaper=$!
    while :; do # a signal ends a wait
        status=0
        wait "$job" || status=$?
        kill -0 "$job" 2>/dev/null || break
    done
    job=''
    kill $watcher $reaper 2>/dev/null || true
    wait $watcher $reaper 2>/dev/null || true
    watcher='' reaper=''
    mapfile -t alive < <(answering "${alive[@]}")
    settle "${alive[@]}"
    [ $asked = no ] || break
    case $status in
    0 | 2 | 3 | 5 | 7) break ;; # it has ended, or would end the same way after a restart
    75) [ -s "$grows" ] || break ;;
    *) [ $((restarts + 1 - ${WEFT_RESTARTS:-0})) -lt "${MAX_RESTARTS:-100}" ] || break ;;
    esac
    restarts=$((restarts + 1))
done
for host in "${hosts[@]}"; do
    on "$host" "rm -rf /dev/shm/$run" || true # of a link that one itself
done
exit $status
