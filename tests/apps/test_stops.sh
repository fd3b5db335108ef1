#!/bin/bash
# test_stops.sh GPT_TRAIN - what happens to a run from outside while it goes: it is asked to stop in an evaluation, its directory of
# checkpoints is moved, removed or unmounted.
#
# ctest: arguments gpt_train sanitized
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# gone NAME HOW PATTERN WHERE: a directory that is moved or removed under a run, before its first save; what it says then,
# and where the checkpoint is, with the lock.
gone()
{
    local name=$1 how=$2 pattern=$3 where=$4 got
    begun "^step" "${tiny[@]}" --steps 1000000 --save gone --eval-interval 0 --dp 2
    eval "$how"
    kill -TERM $!
    wait $!
    got=$?
    result "$name" "$([ $got = 75 ] && [ -f "$where/latest" ] && [ -f "$where/lock" ] && grep -qE "$pattern" err &&
        [ "$(wc -l <err)" = 1 ] && tail -n 1 out | grep -q "^saved .*$where/step-" || cat err out)"
    rm -rf gone moved
}
gone "a directory that is moved" "mv gone moved" "warning: gone was moved to /.*/moved while the run saves there" moved
result "is not recreated" "$([ ! -e gone ] || ls gone)"
gone "and replaced" "mv gone moved; mkdir gone" "warning: gone was moved to /.*/moved while" moved
gone "a directory that is removed" "rm -r gone" "warning: gone was removed or unmounted while the run saves there: it is recreated" gone
if unshare -rm true 2>/dev/null; then
    # in a namespace of mounts of its own, which ends with it
    result "a directory that is unmounted" "$(mkdir -p gone && unshare -rm bash -c '
        mount -t tmpfs none gone || exit
        "$@" >out 2>err &
        while ! grep -q ^step out 2>/dev/null && kill -0 $!; do sleep 0.05; done
        umount -l gone && kill -TERM $!
        wait $!
        [ $? = 75 ]' - "$gpt_train" "${tiny[@]}" --steps 1000000 --save gone/run --eval-interval 0 2>&1 &&
        grep -q "warning: gone/run was removed or unmounted while the run saves there: it is recreated" err &&
        [ -f gone/run/latest ] || cat err out)"
    rm -rf gone
fi

# unevaluated NAME FLAG..: SIGTERM in an evaluation of many minutes ends it at once: the step that was made is saved and logged,
# without a value of a part, and no other one is made.
unevaluated()
{
    local name=$1 problem
    shift
    rm -rf halt halt.jsonl
    problem=$(python3 - "$gpt_train" "${tiny[@]}" --save halt --log-jsonl halt.jsonl --steps 3 --eval-interval 1 "$@" 2>&1 <<'END'
import json, os, signal, subprocess, sys, time
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
reported = "the evaluation after step 1 was stopped: a run that is resumed does not make it up\n"
next((line for line in run.stdout if line.startswith("data:")), None)
time.sleep(1)
run.send_signal(signal.SIGTERM)
asked = time.time()
try:
    status = run.wait(timeout=20)
    reported = reported in run.stdout.read()
except subprocess.TimeoutExpired:
    run.kill()
    status = "waits"
rows = [json.loads(line) for line in open("halt.jsonl")][1:]
said = [status, [(row["step"], row["val_loss"], row.get("acc")) for row in rows], os.listdir("halt")]
if status != 75 or reported is not True or time.time() - asked > 5 or [row["step"] for row in rows] != [1] or "acc" in rows[0] or \
        not os.path.exists("halt/step-00000001") or (rows[0]["val_loss"] is None) != ("--eval-requests" not in sys.argv):
    print(said, time.time() - asked)
END
    )
    result "$name" "$problem"
}
unevaluated "stopped in an evaluation" --eval-iters 1000000
unevaluated "of stages and replicas" --eval-iters 1000000 --pp 2 --n-layer 2 --dp 2
unevaluated "after the last step" --eval-iters 1000000 --steps 1
for ((i = 0; i < 20000; i++)); do
    echo "{\"doc_id\": $i, \"label\": 0, \"request\": {\"context\": \"On day\", \"continuation\": \" five\"}}"
done >questions.jsonl
unevaluated "in questions" --eval-iters 1 --eval-requests questions.jsonl --n-layer 8 --n-embd 64
finish
