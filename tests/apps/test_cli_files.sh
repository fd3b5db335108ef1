#!/bin/bash
# test_cli_files.sh BIN FAILING_CALLS [--sanitized] - what gpt_train, gpt_export, ckpt and gpt_diff do
# with directories and files that are not as they should be: left by others, damaged, hostile.
# FAILING_CALLS is the library of tests/campaign; --sanitized leaves out what is preloaded.
#
# ctest: arguments build/apps file_call_faults sanitized
set -uo pipefail

bin=$1 failing=$2 sanitized=${3:-}
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"
for i in $(seq 1 400); do
    echo "On day $i the cat sat on mat number $((i * i % 89)) and thought."
done >text.txt
tiny=(--data text.txt --n-layer 1 --n-head 4 --n-embd 16 --seq-len 16 --global-batch-size 4
    --eval-interval 0 --threads-per-rank 1 --device cpu)

# ends NAME STATUS PATTERN PROGRAM FLAG...: PATTERN is on stderr, or '' where nothing need be.
ends()
{
    local name=$1 status=$2 pattern=$3 program=$4 got problem=''
    shift 4
    timeout -s KILL 60 "$bin/$program" "$@" >out 2>err
    got=$?
    [ $got = "$status" ] || problem+=" exit status $got, not $status;"
    [ -z "$pattern" ] || grep -qE -- "$pattern" err || problem+=" '$pattern' is not said;"
    result "$name" "$problem"
}

train()
{
    local name=$1
    shift
    ends "$name" 0 '' gpt_train "${tiny[@]}" "$@"
}

same()
{
    result "$1" "$(cmp "$2" "$3" 2>&1)"
}

# A directory in which another model was trained before: `latest` fits.
train "a model" --steps 2 --save mix --save-interval 1
train "another one in the same directory" --steps 4 --save mix --save-interval 4 --n-embd 32 \
    --resume none
result "has deleted nothing" "$(find mix -maxdepth 1 -name 'step-0000000[124]' | wc -l | grep -vx 3)"
train "continues" --steps 5 --save mix --n-embd 32
result "from latest" "$(grep -q "^continuing from mix/step-00000004, after step 4$" out || echo no)"
ends "the first one does not" 2 "mix/step-00000005 is of another model: --n-embd 16 .it has 32." gpt_train \
    "${tiny[@]}" --steps 5 --save mix

# What decides numbers and is not in the flags, or was not compared.
cp text.txt grows.txt
own=("${tiny[@]:2}" --data grows.txt)
ends "a run" 0 '' gpt_train "${own[@]}" --steps 1 --save own
ends "the same, gone on with" 0 '' gpt_train "${own[@]}" --steps 1 --save own
result "nothing is reported" "$(grep 'from here on' err)"
echo "And on it went." >>grows.txt
ends "the data have grown" 0 'the files of --data have .[0-9]+. bytes; .* was made with .[0-9]+.' \
    gpt_train "${own[@]}" --steps 2 --save own
ends "other parameters are frozen" 2 'or is frozen.*; --freeze is "embed", and was null; or take its parameters alone, by --reset-optimizer' \
    gpt_train "${own[@]}" --steps 3 --save own --freeze embed
ends "gradients are summed in another type" 0 'from here on --reduce-dtype is "bf16"; .*"fp32"' \
    gpt_train "${own[@]}" --steps 3 --save own --reduce-dtype bf16
ends "sums have one chunk" 0 'from here on --exact-tp is "1"; .*"8"' gpt_train "${own[@]}" --steps 4 --save own --exact-tp 1
result "which are other numbers" "$(grep -q 'computed by other rules (numerics' err || cat err)"

# The best loss is that of all runs.
train "the best checkpoint" --steps 3 --eval-interval 1 --save best --save-best
best=$(cat best/best/latest)
train "gone on with badly" --steps 5 --eval-interval 1 --save best --save-best --lr 9 --min-lr 9
result "the best one stays" "$([ "$(cat best/best/latest)" = "$best" ] || cat best/best/latest)"

# What was being saved when numbers ended is a state from before.
ends "numbers end" 7 'is not finite' gpt_train "${tiny[@]}" --steps 99 --lr 1000 --warmup-steps 0 \
    --optimizer sgd --clip-grad 0 --save nan --save-interval 1 --async-save on --dp 2
final=$(printf 'step-%08d' "$(grep -c '^step' out)")
ends "the step before is saved" 0 '' ckpt verify "nan/$final"
result "and is the latest" "$(grep -vx "$final" nan/latest)"

# A local checkpoint has what its layout holds, which the type of parameters decides too.
train "local" --steps 1 --dp 2 --strategy zero1 --checkpoint local --save local
ends "the same with parameters of another type" 2 'saved as local.*dtype' gpt_train "${tiny[@]}" \
    --steps 2 --dp 2 --strategy zero1 --checkpoint local --save local --param-dtype bf16

# Links in a directory of checkpoints.
mkdir links elsewhere
echo precious >elsewhere/file
ln -s ../elsewhere/file links/lock
ends "the lock is a link" 8 "links/lock" gpt_train "${tiny[@]}" --steps 1 --save links
rm links/lock
ln elsewhere/file links/lock
ends "or has another name" 8 "links/lock is no file of its own" gpt_train "${tiny[@]}" --steps 1 \
    --save links
rm links/lock
ln -s ../elsewhere links/best
ends "the best ones are elsewhere" 3 "links/best is a symbolic link" gpt_train "${tiny[@]}" \
    --steps 1 --eval-interval 1 --save links --save-best
result "nothing was written there" "$(ls elsewhere | grep -vx file; grep -vx precious elsewhere/file)"
rm links/best

# Without descriptors 0 to 2 nothing is printed into what is opened next.
"$bin/gpt_train" "${tiny[@]}" --steps 1 --save closed <&- >&- 2>&-
result "closed descriptors" "$(grep -vE '^[0-9]+$' closed/lock)"

# Hostile indexes: each is refused within seconds by all that read one.
train "a checkpoint" --steps 1 --save good
for case in 'files|o["files"] = 0|"files" is 0' \
    'step|o["step"] = 2**63 - 1|"step" is 9223372036854775807' \
    'sequences|o["sequences"] = 2**63 - 1|"sequences" is'; do
    IFS='|' read -r name program pattern <<<"$case"
    rm -rf bad && cp -r good bad
    change bad/step-00000001/index.json "$program"
    ends "$name: ckpt" 8 "$pattern" ckpt verify bad
    ends "$name: gpt_diff" 3 "$pattern" gpt_diff bad good
    ends "$name: gpt_export" 3 "$pattern" gpt_export bad exported
    ends "$name: gpt_train" 8 "$pattern" gpt_train "${tiny[@]}" --steps 2 --resume bad/step-00000001
done
for case in 'layers of no model|o["options"]["n_layer"] = "20000000"|3|20000000 is not in' \
    'layers|o["options"]["n_layer"] = "20000"|3|n_layer is 20000, and it has 20 at most' \
    'layers that could be|o["options"]["n_layer"] = "16"|2|is not in it' \
    'a width|o["options"]["n_embd"] = "16384"|2|has 16 in dim' \
    'a vocabulary|o["options"]["vocab_size"] = "9000000"|2|has 256 in dim 0 there and 9000000 here'; do
    IFS='|' read -r name program status pattern <<<"$case"
    rm -rf bad && cp -r good bad
    change bad/step-00000001/index.json "$program"
    (
        [ -n "$sanitized" ] || ulimit -S -v 1000000
        ends "$name that the tensors do not have" "$status" "$pattern" gpt_export bad exported
        exit $failures
    ) || failures=$((failures + 1))
    cases=$((cases + 1))
done
# The same for flags that a run takes from the checkpoint: nothing is built or planned of such a size.
few=(--data text.txt --global-batch-size 4 --eval-interval 0 --threads-per-rank 1 --device cpu)
for case in 'layers|o["options"]["n_layer"] = "65536"|8|"n_layer" is 65536, and it has 20 tensors' \
    'layers that could be|o["options"]["n_layer"] = "16"|2|is not in it' \
    'a vocabulary|o["options"]["vocab_size"] = "16777216"|2|has 256 in dim 0 there and 16777216 here'; do
    IFS='|' read -r name program status pattern <<<"$case"
    rm -rf bad && cp -r good bad
    change bad/step-00000001/index.json "$program"
    ends "$name that a run takes over" "$status" "$pattern" gpt_train "${few[@]}" --steps 2 --resume \
        bad/step-00000001
    ends "$name that a sample takes over" "$status" "$pattern" gpt_train --device cpu --steps 0 \
        --sample 5 --resume bad
    result "and nothing is begun" "$(grep '^model:' out)"
done

# A damaged index is reported before what is wrong with flags that it would have completed.
rm -rf bad && cp -r good bad && echo x >>bad/step-00000001/index.json
for path in bad/step-00000001 bad; do
    ends "damaged, with half of the flags: $path" 8 'bad/step-00000001/index.json: no JSON' gpt_train \
        "${few[@]}" --n-embd 30 --n-head 4 --steps 2 --resume "$path"
done
ends "and where it is gone on from by itself" 8 'none of the 1 .* no JSON .*--resume none' gpt_train \
    "${few[@]}" --n-embd 30 --n-head 4 --steps 2 --save bad

# Stages hold parts of a model: every kind of checkpoint goes on with the digest of one rank, of which there is
# one file that all kinds fill. What ckpt shows has the ranks; what an index says of them is checked.
stages=(--n-layer 2 --pp 2 --pp-schedule zb-v --micro-batch-size 2)
train "two layers" --n-layer 2 --steps 2 --micro-batch-size 2 --digest
whole=$(grep -o 'digest .*' out | tail -n 1)
same_end()
{
    result "$1" "$([ "$(grep -o 'digest .*' out | tail -n 1)" = "$whole" ] || echo "another digest")"
}
for kind in sharded full local; do
    train "stages, $kind" "${stages[@]}" --steps 2 --save-interval 1 --save "pp-$kind" \
        --checkpoint "$kind"
    ends "they are whole, $kind" 0 '' ckpt verify "pp-$kind"
    train "stages go on, $kind" "${stages[@]}" --steps 2 --resume "pp-$kind/step-00000001" --digest
    same_end "with the same numbers, $kind"
done
train "stages saved, and one rank" --n-layer 2 --steps 2 --micro-batch-size 2 --digest \
    --resume pp-sharded/step-00000001
same_end "continues with them"
ends "other stages of a local one" 2 'saved as local, with [a-z0-9.]+ on pp 1, which is on pp 0 now' \
    gpt_train "${tiny[@]}" "${stages[@]}" --pp-split 3,0,0,1 --steps 3 --resume pp-local
ends "whose stage it is" 0 '' ckpt show pp-local
result "is shown" "$(grep -q 'with m, v on pp 1$' out || echo "no tensor on pp 1")"
cp -r pp-sharded pp-wrong
change pp-wrong/step-00000002/index.json 'o["tensors"][0]["pp"] = 2'
ends "a rank that is not there" 8 '"pp" is 2, and it has to lie in' ckpt verify pp-wrong/step-00000002
cp pp-sharded/step-00000002/index.json pp-wrong/step-00000002
change pp-wrong/step-00000002/index.json 'o["mesh"][0]["name"] = "qq"'
ends "no axis of pipelines" 8 'no axis "pp" is left' ckpt verify pp-wrong/step-00000002
cp pp-sharded/step-00000002/index.json pp-wrong/step-00000002
change pp-wrong/step-00000002/index.json 'o["tensors"][0]["pp"] = 1 - o["tensors"][0]["pp"]'
ends "another stage's rank" 3 'is missing' gpt_export pp-wrong/step-00000002 pp-exported

# A sample from a local checkpoint: on the layout that it was saved with.
train "the same numbers, sharded" --steps 1 --dp 2 --strategy zero1 --save sharded
ends "a sample of it" 0 '' gpt_train --device cpu --steps 0 --sample 20 --resume sharded
cp out sample
ends "a sample of a local one" 0 '' gpt_train --device cpu --steps 0 --sample 20 --dp 2 --strategy \
    zero1 --resume local
result "is the same" "$(diff <(sed -n '/^--- sample/,$p' sample) <(sed -n '/^--- sample/,$p' out))"
result "and flags of training are not reported" "$(grep 'from here on' err)"
ends "on another layout" 2 'saved as local, so it fits the layout .* zero1 .*load it there' \
    gpt_train --device cpu --steps 0 --sample 20 --resume local

# Folders are checked before a run begins, and one that it has made goes with it.
for path in nowhere/folder text.txt; do
    ends "--recorder-dir $path" 3 "--recorder-dir $path cannot be used: .*name a folder" gpt_train \
        "${tiny[@]}" --steps 1 --recorder-dir "$path"
done
train "--recorder-dir that can be made" --steps 1 --recorder-dir made
ends "a log that cannot be written" 3 'text.txt: Not a directory' gpt_train "${tiny[@]}" --steps 1 --save unused \
    --save-best --eval-interval 1 --log-jsonl text.txt/log
result "leaves no folder" "$(ls -d unused 2>&1 | grep -v 'No such')"
ends "nor one that fails later" 7 'is not finite' gpt_train "${tiny[@]}" --steps 99 --save unused \
    --lr 1000 --warmup-steps 0 --optimizer sgd --clip-grad 0
result "before it has saved" "$(ls -d unused 2>&1 | grep -v 'No such')"
mkdir empty
ends "the same" 3 'text.txt: Not a directory' gpt_train "${tiny[@]}" --steps 1 --save empty --log-jsonl text.txt/log
result "leaves one that was there" "$([ -d empty ] || echo gone)"
# A start that fails leaves what is there, whatever it fails by; folders above outputs are made.
train "a run with all its outputs" --steps 2 --log-jsonl a/new/log --trace a/other/trace --log-digests a/digests --report-json \
    a/report/r --tensorboard a/events/of --save-config a/config/c --save a/saved/here
(cd a && find . -type f | sort | xargs md5sum) >before
fails()
{
    local name=$1 status=$2 words=$3
    shift 3
    ends "$name" "$status" "$words" gpt_train "${tiny[@]}" --steps 9 --log-jsonl a/new/log --trace a/other/trace --log-digests \
        a/digests --report-json a/report/r --tensorboard a/events/of "$@"
    result "and all is as it was" "$( (cd a && find . -type f | sort | xargs md5sum) | diff before - 2>&1)"
}
for flag in --trace --tensorboard --log-digests; do
    ends "$flag where nothing can be" 3 "$flag: cannot make folder text.txt: Not a directory" gpt_train "${tiny[@]}" --steps 9 \
        --resume a/saved/here --log-jsonl a/new/log --report-json a/report/r --save-config a/config/c $flag text.txt/no/t
    result "and all is as it was" "$( (cd a && find . -type f | sort | xargs md5sum) | diff before - 2>&1)"
done
fails "data that are not there" 3 'cannot open data file nothing' --resume a/saved/here --data nothing
fails "a checkpoint that is not there" 8 'there is no checkpoint' --resume nothing
fails "a prompt of no tokenizer" 3 'nothing.*tokenizer|tokenizer.*nothing' --resume a/saved/here --sample 3 --tokenizer nothing
fails "a log of another run" 2 'a/new/log has rows of a run, up to step 2, .*or continue with --resume' --resume none
rm a/new/log
(cd a && find . -type f | sort | xargs md5sum) >before
fails "digests of another run" 2 'a/digests/rank-00000.jsonl has rows of a run, .*or continue with --resume' --resume none
mkfifo pipe
ends "a plan that is a pipe" 3 'pipe is not a plan' mesh_info --plan pipe
ends "a topology that is one" 3 'pipe: it is no regular file' mesh_info --topology pipe
ends "recorder_diff of a pipe" 3 'pipe is not a flight recorder' recorder_diff pipe

change good/step-00000001/index.json 'o["options"]["lr"] = "\x1b[31m1\x7f\x9b5m"'
ends "escapes in a value" 0 '' ckpt show good
result "are not shown" "$(grep -P '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' out)"
ends "nor where it is reported" 0 'from here on --lr' gpt_train "${tiny[@]}" --steps 2 --resume \
    good/step-00000001
result "that it is another one" "$(grep -P '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' err)"

# What is read is not written over.
train "a full checkpoint" --steps 1 --checkpoint full --save whole
cp whole/step-00000001/model.safetensors before
ends "gpt_export onto itself" 2 "whole is what is read" gpt_export whole whole
ends "by another name" 2 "is what is read" gpt_export whole whole/../whole/step-00000001
same "leaves it" before whole/step-00000001/model.safetensors
ends "onto another checkpoint" 2 "mix/step-00000005 is a checkpoint" gpt_export whole mix/step-00000005
ends "a folder" 0 '' gpt_export whole folder
ends "a folder onto itself" 2 "folder is what is read" gpt_export folder folder

# A model that is there is replaced where that is asked for, and what else lies beside it stays.
train "a wider model" --steps 1 --n-embd 32 --save wide
ends "gpt_export onto a model" 2 "folder has a model's config.json, .* give --overwrite" gpt_export wide folder
mkdir folder/additional_chat_templates
echo '{{ tools }}' >folder/additional_chat_templates/tool_use.jinja
ends "a folder with chat templates of names" 0 '' gpt_export folder named
result "keeps them" "$(diff -r folder named 2>&1)"
cp -r folder target
echo mine >target/notes.txt
echo '{}' >target/tokenizer.json
touch target/model-00001-of-00002.safetensors
ends "with --overwrite" 0 '' gpt_export wide target --overwrite
"$bin/gpt_export" wide fresh >out 2>err
same "gives what a new folder has" fresh/model.safetensors target/model.safetensors
result "and leaves what is no model's" "$(find target -mindepth 1 -printf '%f\n' | sort | tr '\n' ' ' |
    grep -vx 'config.json model.safetensors notes.txt ')"
ends "onto a file" 2 "notes.txt is a file" gpt_export wide target/notes.txt
mkdir noted && echo mine >noted/notes.txt
ends "into a folder with other files" 0 '' gpt_export wide noted
cp -r wide bad_export
printf 'x' | dd of=bad_export/step-00000001/rank-00000.safetensors bs=1 seek=9000 conv=notrunc 2>err
cp target/model.safetensors before
ends "of a damaged one" 3 '' gpt_export bad_export target --overwrite
same "leaves the old model" before target/model.safetensors
ends "of a damaged one to a new folder" 3 '' gpt_export bad_export made_by_mistake
result "leaves none" "$(ls -d made_by_mistake 2>/dev/null)"

# Killed at each rename of an export over an old model, and failing there. Folders are exchanged: the old model is there, whole,
# or the new one, and other files stay.
if [ -z "$sanitized" ]; then
    mkdir -p exchanged
    for with in kill 5; do
        for at in 1 2 3; do
            rm -rf exchanged/target again && cp -r folder exchanged/target && mkdir exchanged/target/mine && echo mine >exchanged/target/mine/notes.txt
            { WEFT_FAIL_UNDER=$PWD/exchanged WEFT_FAIL_ONLY=rename WEFT_FAIL_AT=$at WEFT_FAIL_WITH=$with LD_PRELOAD=$failing \
                "$bin/gpt_export" wide exchanged/target --overwrite; } >out 2>err
            got=$?
            problem=$("$bin/gpt_export" exchanged/target again 2>&1 && cmp again/model.safetensors folder/model.safetensors 2>&1)
            [ $got != 0 ] || problem+=" rename $at was not there"
            [ -e exchanged/target/mine/notes.txt ] || problem+=" what is no model's is gone"
            result "an exchange that ends at rename $at with $with" "$problem"
            "$bin/gpt_export" wide exchanged/target --overwrite >out 2>err
            result "and reaches its end" "$(cmp exchanged/target/model.safetensors fresh/model.safetensors 2>&1; ls -A exchanged | grep -vx target;
                find exchanged/target -name '.*'; cat exchanged/target/mine/notes.txt | grep -vx mine)"
        done
    done
    # After the exchange a killed one leaves the new model, and what it had not brought over comes with the next.
    rm -rf exchanged/target && cp -r folder exchanged/target && mkdir exchanged/target/mine && echo mine >exchanged/target/mine/notes.txt
    { WEFT_FAIL_UNDER=$PWD/exchanged WEFT_FAIL_ONLY=rename WEFT_FAIL_AT=4 WEFT_FAIL_WITH=kill LD_PRELOAD=$failing \
        "$bin/gpt_export" wide exchanged/target --overwrite; } >out 2>err
    result "one that is killed after the exchange" "$(cmp exchanged/target/model.safetensors fresh/model.safetensors 2>&1)"
    "$bin/gpt_export" wide exchanged/target --overwrite >out 2>err
    result "and reaches its end too" "$(cmp exchanged/target/model.safetensors fresh/model.safetensors 2>&1; ls -A exchanged | grep -vx target;
        grep -vx mine exchanged/target/mine/notes.txt)"
fi

# The same in the current folder, which is not exchanged: a call that fails leaves the old model; a killed
# one leaves it, or none and the old one aside. What comes next replaces all of that.
if [ -z "$sanitized" ]; then
    for with in kill 5; do
        for at in 1 2 3 4 5 6; do
            rm -rf target again && cp -r folder target
            { (cd target && WEFT_FAIL_UNDER=${PWD} WEFT_FAIL_ONLY=rename WEFT_FAIL_AT=$at \
                WEFT_FAIL_WITH=$with LD_PRELOAD=$failing "$bin/gpt_export" ../wide . --overwrite); } >out 2>err
            got=$?
            "$bin/gpt_export" target again >out 2>err
            if [ $? = 0 ]; then
                problem=$(cmp again/model.safetensors folder/model.safetensors 2>&1)
            else
                problem=$([ $with = kill ] && [ $at -gt 3 ] && grep -q 'config.json: No such' err || cat err
                    cmp target/.replaced/config.json folder/config.json 2>&1
                    cmp "$(ls target/.replaced/model.safetensors 2>/dev/null || echo target/model.safetensors)" \
                        folder/model.safetensors 2>&1)
            fi
            [ $got != 0 ] || problem+=" rename $at was not there"
            result "an export in place that ends at rename $at with $with" "$problem"
            "$bin/gpt_export" wide target >out 2>err
            result "which is not written over" "$([ $? = 2 ] && grep -q 'give --overwrite' err || cat err)"
            (cd target && "$bin/gpt_export" ../wide . --overwrite) >out 2>err
            result "or is, whole" "$(cmp target/model.safetensors fresh/model.safetensors 2>&1; find target -mindepth 1 -name '.*')"
        done
    done
fi

# Killed at each rename, and failing there, of a data set that is written over another one of the same sizes: what is read
# is the old one, the new one or nothing, and never a loss mask beside other tokens.
if [ -z "$sanitized" ]; then
    mkdir sets
    for i in 1 2; do
        # documents begin elsewhere, so the masks differ
        for line in 1 2 3 4 5 6; do printf '{"text": "%*s"}\n' $((10 * ((line + i) % 2 + 1))) "$i$line"; done >docs.jsonl
        "$bin/gpt_data" tokenize docs.jsonl --output docs >out 2>err && "$bin/gpt_data" pack docs --seq-len 30 --output "packed$i" >out 2>err
    done
    for with in kill 5; do
        for at in 1 2 3 4 5; do
            rm -f sets/*
            for file in packed1.*; do cp "$file" "sets/packed${file#packed1}"; done
            { WEFT_FAIL_UNDER=$PWD/sets WEFT_FAIL_ONLY=rename WEFT_FAIL_AT=$at WEFT_FAIL_WITH=$with LD_PRELOAD=$failing \
                "$bin/gpt_data" pack docs --seq-len 30 --output "$PWD/sets/packed"; } >out 2>err
            problem=$([ $? != 0 ] || echo "rename $at was not there")
            for named in idx bin; do
                if "$bin/gpt_train" "${tiny[@]}" --data sets/packed.$named --vocab-size 65536 --steps 1 --seq-len 30 >out 2>err; then
                    for old in 1 2; do
                        for part in bin idx loss.bin loss.idx; do cmp -s sets/packed.$part packed$old.$part || echo $part; done >differ$old
                    done
                    [ ! -s differ1 ] || [ ! -s differ2 ] || problem+=" a mixture is trained: $(cat differ1 differ2 | tr '\n' ' ')"
                else
                    [ "$(wc -l <err)" = 1 ] || problem+=" $(cat err)"
                fi
            done
            result "a data set whose writing ends at rename $at with $with" "$problem"
            "$bin/gpt_data" pack docs --seq-len 30 --output sets/packed >out 2>err
            result "and is rewritten" "$(cmp sets/packed.bin packed2.bin 2>&1; cmp sets/packed.loss.bin packed2.loss.bin 2>&1; ls -A sets | grep partial)"
        done
    done
fi
finish
