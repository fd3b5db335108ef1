# shellcheck shell=bash disable=SC2034 # for those who source it
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

# Six layouts, eight ranks each, and the digests that one rank gives.
layouts=(
    "--tp 4 --dp 2 --strategy full_shard"
    "--tp 2 --dp 4 --strategy full_shard"
    "--tp 2 --dp 4 --strategy hybrid_shard --shard-group-size 2"
    "--tp 1 --dp 8 --strategy shard_grad_op"
    "--tp 8 --dp 1 --sequence-parallel"
    "--tp 4 --dp 2 --strategy no_shard --micro-batch-size 2 --accumulate local"
)

# same NAME LAUNCH... - gpt_train as started so, on every layout, has the digests of `alone`.
same()
{
    local name=$1 layout problem
    shift
    for layout in "${layouts[@]}"; do
        problem=''
        rm -f log
        # shellcheck disable=SC2086 # a layout is words
        timeout -s KILL 100 "$@" "$gpt_train" "${model[@]}" --steps 20 $layout --log-jsonl log \
            >out 2>err || problem="exit status $?;"
        [ -f log ] && digests log >got || : >got
        [ "$(wc -l <got)" = 20 ] || problem+=" $(wc -l <got) steps;"
        cmp -s got alone || problem+=" other digests;"
        result "$name: $layout" "$problem"
    done
}

# Its digests are a file `alone`; a run on another seed differs, or equality would prove nothing.
train_alone()
{
    write_text
    "$gpt_train" "${model[@]}" --steps 20 --log-jsonl log >out 2>err
    digests log >alone
    "$gpt_train" "${model[@]}" --steps 20 --log-jsonl log --seed 2 >out 2>err
    digests log >got
    local problem=''
    [ "$(wc -l <alone)" = 20 ] || problem+=" $(wc -l <alone) steps;"
    cmp -s got alone && problem+=" the seed changes nothing"
    result "one rank, and another seed" "$problem"
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
        [ "$(lines '^step')" -lt 1 ] || break
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
