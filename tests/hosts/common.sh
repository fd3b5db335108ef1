# shellcheck shell=bash disable=SC2034 # for those who source it
# tests/hosts/common.sh - sourced by the tests here, with the build folder as $1: mpirun as they use
# it, and what is the same on every launch.
build=$(cd "$1" && pwd)
gpt_train=$build/apps/gpt_train
export WEFT_PLUGINS=$build
# shellcheck source=tests/cases.sh
. "$(dirname "${BASH_SOURCE[0]}")/../cases.sh"

command -v mpirun >/dev/null || skip "mpirun is not here (Debian: openmpi-bin)"
[ "${2:-}" != --sanitized ] || skip "OpenMPI is not built for sanitizers"
if [ "$(id -u)" = 0 ]; then # which OpenMPI refuses otherwise
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
mpirun=(mpirun --quiet --oversubscribe --bind-to none)

# lines PATTERN: how many of the last run's there are.
lines()
{
    cat out err | grep -cE -- "$1"
}

# A text to train on, the same everywhere.
write_text()
{
    awk 'BEGIN { srand(1); for (i = 0; i < 20000; i++) printf "%s%s", substr("banoriselendormitu", 1 + 2 * int(9 * rand()), 2), rand() < 0.3 ? " " : "" }' >text
}

model=(--data text --n-layer 2 --n-embd 48 --n-head 12 --vocab-size 257 --seq-len 32
    --global-batch-size 16 --lr 3e-3 --eval-interval 0 --digest)

# digests FILE: the digest of every step of a log.
digests()
{
    sed -n 's/.*"digest": "\([0-9a-f]*\)".*/\1/p' "$1"
}

steps=${STEPS:-3} # of each layout; CI has little time

# bits FILE: the losses and the digest of every layout, without its name; seats FILE NAME: hosts.
bits()
{
    sed -n 's/^bits [^:]*: //p' "$1"
}

seats()
{
    sed -n "s/^seats $2: //p" "$1"
}

# What threads and one rank give is a file `wanted`: one line, if all agree, as often as there are
# layouts. Losses that stay the same would prove nothing.
by_threads()
{
    local problem=''
    "$build/tests/hosts/layouts" "$steps" >out 2>err || problem="exit status $?;"
    [ "$(bits out | sort -u | wc -l)" = 1 ] || problem+=" other bits;"
    [ "$(bits out | wc -l)" = 7 ] || problem+=" $(bits out | wc -l) layouts, not 7;"
    [ "$(bits out | head -1 | tr ' ' '\n' | sort -u | wc -l)" = $((steps + 1)) ] ||
        problem+=" the same loss twice;"
    bits out | tail -6 >wanted
    result "threads, 6 layouts of 8 ranks, and one rank" "$problem"
}

# same NAME LAUNCH... [-- ORDER] - the layouts, started as said, have the bits of threads.
same()
{
    local name=$1 problem='' launch=() order=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        launch+=("$1")
        shift
    done
    [ $# -eq 0 ] || order=("$2")
    timeout -s KILL 200 "${launch[@]}" "$build/tests/hosts/layouts" "$steps" "${order[@]}" \
        >out 2>err || problem="exit status $?;"
    bits out >got
    cmp -s got wanted || problem+=" other bits on $(diff got wanted | grep -c '^>') layouts;"
    result "$name" "$problem"
}

# left PATTERN: no process with it in its command line is there after at most 5 s.
left()
{
    for _ in 1 2 3 4 5; do
        pgrep -f -- "$1" >/dev/null || return 1
        sleep 1
    done
}

# killed NAME SECONDS LAUNCH...: of eight ranks' processes, one is killed in the middle of training.
killed()
{
    local name=$1 limit=$2 problem='' job victim start status
    shift 2
    "$@" "$gpt_train" "${model[@]}" --steps 100000 --tp 2 --dp 4 --seed 4711 >out 2>err &
    job=$!
    for _ in $(seq 100); do
        [ "$(lines 'step +[0-9]+/')" -lt 1 ] || break
        sleep 0.1
    done
    victim=$(pgrep -f -- "^$gpt_train .*--seed 4711" | tail -1)
    start=$(date +%s%N)
    kill -KILL "$victim" || problem+=" no process to kill;"
    timeout 60 tail --pid=$job -f /dev/null || kill -KILL $job
    wait $job
    status=$?
    [ $status != 0 ] || problem+=" exit status 0;"
    [ $(($(date +%s%N) - start)) -le $((limit * 1000000000)) ] ||
        problem+=" noticed after $((($(date +%s%N) - start) / 1000000)) ms;"
    [ "$(lines '^gpt_train: rank [0-9]: lost: process [0-9] .* has ended; .* on \w+, shard')" = 1 ] &&
        [ "$(lines '^gpt_train: ')" = 1 ] || problem+=" told on $(lines '^gpt_train: ') lines;"
    ! left "--seed 4711" || problem+=" processes are left;"
    result "$name: a process is killed" "$problem"
}
