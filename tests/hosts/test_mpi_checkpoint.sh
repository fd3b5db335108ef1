#!/bin/bash
# test_mpi_checkpoint.sh BUILD [--sanitized] - checkpoints of ranks in several processes: saved in
# one form (a process per rank, two ranks in each process, threads), gone on with in another, and
# the digests stay those of one rank; a launcher that is told to end saves first. WHOLE=yes: every
# form goes on from every other.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100
set -uo pipefail
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/common.sh"

# go NAME STATUS COMMAND...: runs gpt_train as started so, with what is in `flags`.
go()
{
    local name=$1 status=$2 got problem=''
    shift 2
    rm -f log
    timeout -s KILL 100 "$@" "$gpt_train" "${model[@]}" --steps 20 "${flags[@]}" --log-jsonl log \
        >out 2>err
    got=$?
    [ $got = "$status" ] || problem="exit status $got, not $status;"
    result "$name" "$problem"
}

# rest NAME STEP: the last run went on behind STEP, with the digests of one rank.
rest()
{
    local problem=''
    digests log >got
    tail -n +$(($2 + 1)) alone >expected
    [ "$(lines "^continuing from .*, after step $2\$")" = 1 ] || problem+=" not reported from where;"
    cmp -s got expected || problem+=" other digests: $(wc -l <got) steps;"
    result "$1" "$problem"
}

# The digests of one rank are a file `alone`.
write_text
"$gpt_train" "${model[@]}" --steps 20 --log-jsonl log >out 2>err
digests log >alone
four=("${mpirun[@]}" -np 4)
two=("${mpirun[@]}" -np 2)
tp=(--tp 2 --dp 2 --strategy full_shard)
dp=(--dp 4 --strategy zero1)

flags=("${tp[@]}" --save four --save-interval 5 --keep 0)
go "saved by 4 processes" 0 "${four[@]}"
flags=("${dp[@]}" --save two --save-interval 5 --keep 0 --checkpoint full --async-save on)
go "one file, saved after the steps by 2 processes x 2 threads" 0 "${two[@]}"
for from in four two; do
    flags=(--resume "$from/step-00000005")
    go "saved by $from, gone on with by one rank" 0 env
    rest "its digests" 5
    if [ $from = two ] || [ "$whole" = yes ]; then
        flags=("${tp[@]}" --resume "$from/step-00000010")
        go "saved by $from, gone on with by 4 processes" 0 "${four[@]}"
        rest "its digests" 10
    fi
    if [ $from = four ] || [ "$whole" = yes ]; then
        flags=("${dp[@]}" --resume "$from/step-00000015")
        go "saved by $from, gone on with by 2 processes x 2 threads" 0 "${two[@]}"
        rest "its digests" 15
    fi
done

# Damage is found by all, and reported once.
printf 'x' | dd of=four/step-00000020/rank-00002.safetensors bs=1 seek=100000 conv=notrunc 2>err
flags=("${tp[@]}" --resume four/step-00000020)
go "a damaged file" 8 "${four[@]}"
result "is reported once" "$([ "$(lines 'rank-00002.safetensors is damaged: tensor')" = 1 ] || echo no)"

# Processes that do not see the same checkpoints: the newest that all of them have.
mkdir other
cp -r two other/two
rm -r other/two/step-00000020
sed -i 's/step-00000020/step-00000015/' other/two/latest
both=("$gpt_train" --data "$work/text" "${model[@]:2}" --steps 20 "${tp[@]}" --resume two --log-jsonl "$work/log")
rm -f log
timeout -s KILL 100 "${mpirun[@]}" -np 2 "${both[@]}" : -np 2 -wdir "$work/other" "${both[@]}" >out 2>err
result "two processes have a newer one" "$([ $? = 0 ] || echo "exit status is not 0")"
rest "its digests" 15

# A directory that hosts do not share is noticed before the first step.
alone=("$gpt_train" --data "$work/text" "${model[@]:2}" --steps 20 "${tp[@]}" --save apart)
timeout -s KILL 100 "${mpirun[@]}" -np 2 "${alone[@]}" : -np 2 -wdir "$work/other" "${alone[@]}" >out 2>err
result "a directory that is another one elsewhere" "$([ $? = 8 ] && [ "$(lines '^step')" = 0 ] &&
    [ "$(lines 'rank 2: apart is not seen here as rank 0 sees it: .* has to be the same on all hosts')" = 1 ] || cat out err)"
result "keeps nothing" "$(find apart other/apart -name 'step-*' 2>/dev/null)"

# Any process may be told to end: all save first. (mpirun itself would kill them a second later.)
"${four[@]}" "$gpt_train" "${model[@]}" --steps 100000 "${tp[@]}" --save ended >out 2>err &
job=$!
for _ in $(seq 200); do
    [ "$(lines 'step +[0-9]+/')" -lt 1 ] || break
    sleep 0.1
done
kill -USR1 $job # which mpirun sends on to every process
for _ in $(seq 100); do
    [ ! -f ended/latest ] || break
    sleep 0.1
done
sleep 1
result "SIGUSR1 saves" "$([ -f ended/latest ] || echo no)"
result "once" "$([ "$(find ended -name 'step-*' | wc -l)" = 1 ] || find ended -name 'step-*')"
kill -TERM "$(pgrep -f -- "^$gpt_train .*--save ended" | tail -1)"
timeout 60 tail --pid=$job -f /dev/null || kill -KILL $job
wait $job
status=$?
result "SIGTERM saves first" "$([ $status = 75 ] && [ -f ended/latest ] || echo "exit status $status")"

# In an evaluation of many minutes, too: one process is signalled, all leave it, and the step that was made is saved.
"${two[@]}" "$gpt_train" "${model[@]}" --steps 3 --eval-interval 1 --eval-iters 1000000 "${tp[@]}" --save halted >out 2>err &
job=$!
timeout 30 sh -c "until grep -q '^data:' out; do sleep 0.05; done"
sleep 2
kill -TERM "$(pgrep -f -- "^$gpt_train .*--save halted" | tail -1)"
timeout 10 tail --pid=$job -f /dev/null || kill -KILL $job
wait $job
status=$?
result "SIGTERM in an evaluation ends it" "$([ $status = 75 ] && [ "$(ls -d halted/step-*)" = halted/step-00000001 ] &&
    [ "$(lines 'the evaluation after step 1 was stopped')" = 1 ] || { echo "exit status $status"; cat out err; })"
finish
