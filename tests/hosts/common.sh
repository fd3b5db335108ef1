# tests/hosts/common.sh - sourced by the tests here, with the build folder as $1: mpirun as they use
# it, and a line per case.
build=$(cd "$1" && pwd)
gpt_train=$build/apps/gpt_train
export WEFT_PLUGINS=$build
cases=0 failures=0

skip()
{
    echo "skipped: $1"
    exit 77
}

command -v mpirun >/dev/null || skip "mpirun is not here (Debian: openmpi-bin)"
[ "${2:-}" != --sanitized ] || skip "OpenMPI is not built for sanitizers"
if [ "$(id -u)" = 0 ]; then # which OpenMPI refuses otherwise
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
mpirun=(mpirun --quiet --oversubscribe --bind-to none)

work=$(mktemp -d)
cd "$work" || exit 1

# result NAME PROBLEM: no problem is a pass.
result()
{
    cases=$((cases + 1))
    if [ -z "$2" ]; then
        echo "ok    $1"
    else
        failures=$((failures + 1))
        echo "FAIL  $1: $2"
        sed 's/^/      /' out err 2>/dev/null | head -20
    fi
}

# lines PATTERN: how many of the last run's there are.
lines()
{
    cat out err | grep -cE -- "$1"
}

finish()
{
    echo "$((cases - failures)) of $cases cases passed"
    [ $failures = 0 ]
    exit
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
