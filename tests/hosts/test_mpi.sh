#!/bin/bash
# test_mpi.sh BUILD [--sanitized] - ranks in several processes on this machine: every case of the
# transports' test, and what goes wrong: an error on every rank, soon, reported once, nothing left over.
# Cases mostly wait, so a few run at a time, each in a folder of its own.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100
set -uo pipefail
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/common.sh"
at_once=4 started=0

# start NAME COMMAND...: the command prints what is wrong, or nothing.
start()
{
    local name=$1
    shift
    while [ "$(jobs -rp | wc -l)" -ge $at_once ]; do
        wait -n
    done
    started=$((started + 1))
    mkdir "case$started"
    echo "$name" >"case$started/name"
    (cd "case$started" && "$@" >problem) &
}

# Results of all that were started, in their order.
collect()
{
    wait
    for ((i = 1; i <= started; i++)); do
        cd "$work/case$i" || exit 1
        result "$(<name)" "$(<problem)"
    done
    cd "$work" || exit 1
}

# shellcheck disable=SC2317 # it is called through start, as others are
every_case()
{
    WEFT_TEST_TRANSPORT=mpi timeout -s KILL 120 "${mpirun[@]}" -np "$2" "$build/tests/$1" \
        >out 2>err || echo "exit status $?"
    [ "$(lines 'asserts +[1-9]')" = "$2" ] || echo "not all processes have asserted"
}

# expect NAME PROCESSES RANKS: sets what a case of mpi_ranks has to say, and on how many lines.
# shellcheck disable=SC2317
expect()
{
    times=$2
    case $1 in
    several_parts) pattern='rank [0-9]: status 0' times=$3 ;;
    background) pattern='rank [0-9]: all 8388608 elements came' times=$3 ;;
    differ) pattern='process.*(all_reduce\(sum\).*barrier|barrier.*all_reduce\(sum\))' ;;
    differ_large) pattern='process .*all_reduce\(sum\) of 41943(04|24|84) bytes' ;;
    differ_blocks) pattern='process .*rank 1 sends .* which expects' ;;
    differ_message) pattern='process .*(send|recv) of 6[04] bytes.*(send|recv) of 6[04] bytes' ;;
    differ_split) pattern='process .*list' ;;
    fail | fail_in_flight) pattern='process .*: status [0-9]+ .*rank 1: the disk is full' ;;
    leave) pattern='process .*rank 1 has finished, rank [0-9] waits for it in barrier' ;;
    die) pattern='process .*\(here\).*: rank [01]: lost: process [01] .* has ended' times=1 ;;
    esac
}

# ranks PROCESSES RANKS CASE...: cases of mpi_ranks, in one launch.
# shellcheck disable=SC2317
ranks()
{
    local processes=$1 ranks=$2 name status begun=$SECONDS
    shift 2
    ln -s "$build/tests/hosts/mpi_ranks" . # its path is known by this folder
    timeout -s KILL 60 "${mpirun[@]}" -np "$processes" "$PWD/mpi_ranks" "$ranks" "$@" >out 2>err
    status=$?
    for name in "$@"; do
        expect "$name" "$processes" "$ranks"
        [ "$(lines "^$name: $pattern")" = "$times" ] ||
            echo "$name: '$pattern' on $(lines "^$name: $pattern") lines, not $times;"
        [ "$name" != die ] || continue # mpirun ends the others
        # Every process knows, soon; one of them tells.
        [ "$(lines "^$name: process .* in [0-9]\.[0-9]* s")" = "$processes" ] ||
            echo "$name: not on all;"
        [[ $name == several_parts || $name == background ]] ||
            [ "$(lines "^$name: process .*: status [1-9].*\(here\)")" = 1 ] ||
            echo "$name: reported more or less than once;"
    done
    [ "$status" != 0 ] || echo "exit status 0;" # that of the last case, which fails
    [ $((SECONDS - begun)) -le 20 ] || echo "took $((SECONDS - begun)) s;"
    ! pgrep -f "^$PWD/mpi_ranks" >/dev/null || echo "processes are left;"
}

# segments JOB: how many files of shared memory OpenMPI has for it.
# shellcheck disable=SC2317
segments()
{
    find /dev/shm -maxdepth 1 -name "vader_segment.*.$1.*" | wc -l
}

# mpirun is killed, and with it what it started: nothing of that stays in memory.
# shellcheck disable=SC2317
launcher_killed()
{
    local pid job tries=0
    ln -s "$build/apps/gpt_train" ../text .
    "${mpirun[@]}" -np 2 "$PWD/gpt_train" "${model[@]}" --steps 1000000 --tp 2 >out 2>err &
    pid=$!
    disown
    until grep -qs 'step *2/' out || [ $((tries += 1)) -gt 300 ]; do
        sleep 0.1
    done
    job=$(tr '\0' '\n' <"/proc/$(pgrep -P "$pid" gpt_train | head -1)/environ" |
        sed -n 's/^PMIX_NAMESPACE=//p')
    job=$(printf %x "${job:-0}")
    [ "$(segments "$job")" = 2 ] || echo "OpenMPI has $(segments "$job") segments before, not 2;"
    kill -KILL "$pid"
    ! left "^$PWD/gpt_train" || echo "processes are left;"
    for ((tries = 0; tries < 50; tries++)); do
        [ "$(segments "$job")" != 0 ] || return
        sleep 0.1
    done
    echo "$(segments "$job") segments are left;"
}

# A process whose peers never come has its error, and ends: MPI sees it alone.
# shellcheck disable=SC2317
peer_never_comes()
{
    SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 \
        SLURM_STEP_TASKS_PER_NODE=2 timeout -s KILL 20 "$gpt_train" "${model[@]}" --data ../text --tp 2 \
        >out 2>err
    [ $? = 2 ] || echo "exit status $?;"
    grep -q "srun started 2 processes .* sees 1" err || echo "says: $(head -c 300 err);"
}

# Another program in place of a process: the wait is said after 20 s, and ends with the limit.
# shellcheck disable=SC2317
another_program()
{
    timeout -s KILL 60 "${mpirun[@]}" -np 1 "$gpt_train" "${model[@]}" --data ../text --tp 2 --stall-timeout 22 \
        : -np 1 true >out 2>err
    [ $? = 4 ] || echo "exit status $?;"
    grep -q "still waits for the run's start after 20 s, .*: process 1 has not come. It is another program" err &&
        grep -q 'the run has not started within 22 s, .*: process 1 has not come' err ||
        echo "says: $(head -c 400 err);"
}

# other_numbers WORDS VARIABLE VALUE...: processes of which each has a value of its own in that variable
# all end, with 2, and one of them says what MPI and the environment have.
# shellcheck disable=SC2317
other_numbers()
{
    local words=$1 variable=$2
    shift 2
    cat >changed <<EOF
#!/bin/bash
all=($*)
mine=\$OMPI_COMM_WORLD_RANK
export $variable=\${all[\$mine]}
"$gpt_train" ${model[*]} --data ../text --tp 2 --stall-timeout 5
echo "\$?" >status\$mine
exit 2
EOF
    chmod +x changed
    timeout -s KILL 40 "${mpirun[@]}" -np 2 --mca orte_abort_on_non_zero_status 0 ./changed >out 2>err
    [ "$(cat status0 status1 2>&1)" = $'2\n2' ] || echo "statuses $(cat status0 status1 2>&1);"
    [ "$(lines "$words")" = 1 ] || echo "'$words' on $(lines "$words") lines: $(head -c 300 err);"
}

write_text
start "another program instead of a process" another_program
for n in 1 2 3 4; do
    start "test_comm in $n processes" every_case test_comm $n
    [ $n = 4 ] || # its 6 ranks cannot be shared out evenly over 4
        start "test_comm_groups in $n processes" every_case test_comm_groups $n
done
for processes in 4 2; do
    form="4 ranks in $processes processes"
    faults=(differ differ_large differ_blocks differ_split fail_in_flight leave fail)
    [ $processes = 4 ] || faults=(differ_message "${faults[@]}")
    start "$form, what goes wrong: ${faults[*]}" ranks $processes 4 several_parts background "${faults[@]}"
    start "$form, one dies" ranks $processes 4 die
done

start "mpirun is killed" launcher_killed
start "a peer that never comes" peer_never_comes
start "numbers that are exchanged" other_numbers \
    'process 0 on .* has OMPI_COMM_WORLD_RANK=1 in its environment, and mpi numbers it 0' OMPI_COMM_WORLD_RANK 1 0
start "the same number twice" other_numbers \
    'process 0 on .* has OMPI_COMM_WORLD_RANK=1 in its environment, and mpi numbers it 0' OMPI_COMM_WORLD_RANK 1 1
start "the same number twice on a host" other_numbers \
    'process 1 on .* has OMPI_COMM_WORLD_LOCAL_RANK=0 .* as process 0 has, and is number 1' OMPI_COMM_WORLD_LOCAL_RANK 0 0
start "another number of processes on a host" other_numbers \
    'process 0 on .* has OMPI_COMM_WORLD_LOCAL_SIZE=3 .* there are 2' OMPI_COMM_WORLD_LOCAL_SIZE 3 3

# A timeline of ranks in two processes, which one of them writes.
problem=''
timeout -s KILL 60 "${mpirun[@]}" -np 2 "$gpt_train" "${model[@]}" --steps 3 --tp 2 --dp 2 --trace t.json \
    >out 2>err || problem="exit status $?;"
problem+=$(python3 -c '
import json
events = [e for e in json.load(open("t.json")) if e["ph"] == "X"]
for rank in range(4):
    mine = [e["ts"] for e in events if e["pid"] == rank]
    if not mine or min(mine) < 0 or max(mine) > 6e7: print("rank", rank, mine[:3])' 2>&1)
result "a timeline of two processes" "$problem"

collect
finish
