# shellcheck shell=bash disable=SC2034 # for files that source it
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
    # numbers of its own: rand() of mawk 1.3.4-20240123 gives others in each run, whatever srand is given
    awk 'function draw() { x = x * 16807 % 2147483647; return x / 2147483647 }
        BEGIN { for (x = 1; i < 20000; i++) printf "%s%s", substr("banoriselendormitu", 1 + 2 * int(9 * draw()), 2), draw() < 0.3 ? " " : "" }' >text
}

model=(--data text --n-layer 2 --n-embd 48 --n-head 12 --vocab-size 257 --seq-len 32
    --global-batch-size 16 --lr 3e-3 --eval-interval 0 --digest)

# digests FILE: the digest of every step of a log.
digests()
{
    sed -n 's/.*"digest": "\([0-9a-f]*\)".*/\1/p' "$1"
}

# CI has little time: STEPS steps of each layout there, and with WHOLE=yes all cases.
steps=${STEPS:-3} whole=${WHOLE:-no}

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
