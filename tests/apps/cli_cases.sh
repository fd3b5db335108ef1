# shellcheck shell=bash disable=SC2034,SC2154 # for files that source it
# tests/apps/cli_cases.sh - sourced by tests of gpt_train as a user meets it, which have set $gpt_train:
# how a case is reported, and the files that cases read.
bin=$(dirname "$gpt_train") # where the other programs are
reference=$(cd "$(dirname "$0")/../reference" && pwd)
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"
limit='' # of address space in KiB

# refuse NAME STATUS PATTERN FLAG...: PATTERN is in the one line of stderr.
refuse()
{
    local name=$1 status=$2 pattern=$3 got problem=''
    shift 3
    (
        [ -z "$limit" ] || ulimit -S -v "$limit"
        exec timeout -s KILL 30 "$gpt_train" "$@" >out 2>err
    )
    got=$?
    sed -i -E '/^(model|adapters|mesh|data): /d' out # of a run that has begun
    [ $got = "$status" ] || problem+=" exit status $got, not $status;"
    [ "$(wc -l <err)" = 1 ] || problem+=" $(wc -l <err) lines on stderr;"
    grep -q '^gpt_train: ' err || problem+=" not said by gpt_train;"
    grep -qE -- "$pattern" err || problem+=" '$pattern' is not said;"
    [ ! -s out ] || problem+=" something on stdout;"
    result "$name" "$problem"
}

# other NAME STATUS PATTERN PROGRAM ARGUMENT...: another program says no, in one line as well.
other()
{
    local name=$1 status=$2 pattern=$3 program=$4 got problem=''
    shift 4
    timeout -s KILL 30 "$bin/$program" "$@" >out 2>err
    got=$?
    [ $got = "$status" ] || problem+=" exit status $got, not $status;"
    [ "$(wc -l <err)" = 1 ] || problem+=" $(wc -l <err) lines on stderr;"
    grep -q "^$program" err || problem+=" not said by $program;"
    grep -qE -- "$pattern" err || problem+=" '$pattern' is not said;"
    result "$name" "$problem"
}

# run NAME FLAG...: ends well; its stdout is in out, its stderr in err.
run()
{
    local name=$1
    shift
    if timeout -s KILL 120 "$gpt_train" "$@" >out 2>err; then
        result "$name" ""
    else
        result "$name" "exit status $?"
    fi
}

# shows NAME PATTERN...: each is in stdout of the last run.
shows()
{
    local name=$1 problem='' pattern
    shift
    for pattern; do
        grep -qE -- "$pattern" out || problem+=" '$pattern' is missing;"
    done
    result "$name" "$problem"
}

# python NAME PROGRAM ARGUMENT...: what it prints is wrong.
python()
{
    result "$1" "$(python3 -c "${@:2}" 2>&1)"
}

# plan_is_run WHAT FLAG...: the same flags with --plan and without write the same, but for the key "plan".
plan_is_run()
{
    local what=$1
    shift
    run "a run $what" "$@" --report-json ran.json
    run "its plan" "$@" --plan --json plan.json
    python "they agree" '
import json
plan, ran = json.load(open("plan.json")), json.load(open("ran.json"))
del plan["plan"]
for key in sorted(plan.keys() | ran.keys()):
    if plan.get(key) != ran.get(key): print(key, plan.get(key), ran.get(key))
if not ran["memory"]["peak"] or not ran["flops"]: print(ran)'
}

for i in $(seq 1 600); do
    echo "On day $i the cat sat on mat number $((i * i % 89)) and thought."
done >text.txt
head -c 100 text.txt >short.txt
: >empty.txt
mkdir folder
echo '{"tp": 2,' >broken.json
echo '[1]' >list.json
echo '{"tpp": 2}' >unknown.json
echo '{"tp": "two"}' >word.json
echo '{"help": true}' >command.json
tiny=(--data text.txt --n-layer 1 --n-head 4 --n-embd 16 --seq-len 16 --global-batch-size 4
    --steps 3)

# some: passes the rows of a table on; in a sanitizer's build (sanitized is set) the last alone, for the others are the same code.
some()
{
    if [ -n "${sanitized:-}" ]; then tail -n 1; else cat; fi
}

# begun PATTERN FLAG...: a run in the background until PATTERN is in its stdout; then $! is it.
begun()
{
    local pattern=$1
    shift
    : >out # what the last run has said is not this one's
    "$gpt_train" "$@" >out 2>err &
    timeout 20 sh -c "until grep -q '$pattern' out; do sleep 0.02; done"
}

# a_base FLAG...: the folder base, a small Llama that has learnt a little, as one of Hugging Face; its checkpoint is in based.
a_base()
{
    run "a base" --data text.txt --arch llama --n-layer 2 --n-head 6 --n-kv-head 3 --n-embd 48 --seq-len 16 \
        --global-batch-size 4 --steps 20 --lr 1e-2 --eval-interval 0 --save based "$@"
    result "as a folder" "$("$bin/gpt_export" based base 2>&1)"
}
