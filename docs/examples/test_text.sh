#!/bin/sh
# test_text.sh TEXT EXAMPLES - text.c on several meshes, from a checkpoint, planned; what it leaves, and mistakes.
set -eu
program=$1 here=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

run()
{
    "$program" --tokenizer bytes --a "$here/README.md" --b "$here/text.c" "$@"
}

fail()
{
    echo "text: $1" >&2
    exit 1
}

one=$(run | tail -2)
[ "$(run --tp 2 --dp 2 --log-jsonl log.jsonl --tensorboard events --trace trace.json | tail -2)" = "$one" ] ||
    fail "another digest or text on four ranks"
[ "$(wc -l <log.jsonl)" = 41 ] || fail "the log has other rows"
ls events/*tfevents* >/dev/null
grep -q '"name"' trace.json || fail "the trace is empty"
run --save saved --save-interval 20 --dp 2 --strategy no_shard >/dev/null
[ "$(run --resume saved/step-00000020 --tp 2 | tail -2)" = "$one" ] || fail "another digest after a checkpoint"
run --plan --dp 4 --tp 2 --rank 7 >plan
grep -q 'plan of rank 7 of 8' plan || fail "no plan"
grep -q 'all_gather' plan || fail "a plan without collectives"
run --plan --search --ranks 4 --machine "$here/../machines/h100.json" >search
grep -q 'layouts of 4 ranks on' search && grep -q '^   1 .* --' search || fail "no search"
run --help | grep -q -- '--prompt TEXT *what the model continues (default: The)' || fail "no help"
echo '{"steps": 6, "eval_interval": 0}' >config.json
[ "$(run --config config.json | grep -c '^step')" = 6 ] || fail "the config is not taken"
run --learning-rate 1 2>error && fail "a flag that is none is taken"
grep -q -- 'unknown flag --learning-rate; did you mean --lr?' error || fail "another error"
run --a nosuch.txt 2>error && fail "a file that is not there is taken"
grep -q 'nosuch.txt: No such file' error || fail "another error of a file"
echo '{"nosuch": 3}' >config.json
run --config config.json 2>error && fail "a key that is no flag is taken"
grep -q '"nosuch" is an unknown key' error || fail "another error of a config"
