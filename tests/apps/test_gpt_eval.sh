#!/bin/bash
# test_gpt_eval.sh GPT_TRAIN - gpt_eval as a user meets it: each token counts once, the layout changes no bit, the sum
# is that of the log probabilities that gpt_generate has, and mistakes.
#
# ctest: arguments gpt_train, cost 50, builds plain
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# evaluate NAME ARGUMENT...: ends well; its stdout is in out, its stderr in err.
evaluate()
{
    local name=$1
    shift
    if timeout -s KILL 120 "$bin/gpt_eval" perplexity "$@" >out 2>err; then
        result "$name" "$(cat err)"
    else
        result "$name" "exit status $?"
    fi
}

run "a model" --data text.txt --arch llama --n-layer 2 --n-head 6 --n-kv-head 3 --n-embd 24 --seq-len 160 \
    --global-batch-size 4 --steps 30 --lr 0.01 --threads-per-rank 1 --save llama
head -c 1000 text.txt >book.txt
for windows in "" "--seq-length 64" "--seq-length 100 --stride 30" "--seq-length 7 --stride 7"; do
    # shellcheck disable=SC2086 # several flags
    evaluate "windows $windows" llama --data book.txt --json --threads-per-rank 1 $windows
    cp out wanted
    python "all tokens count" '
import json
row = json.loads(open("out").read())
if row["tokens"] != 999 or row["bytes"] != 999: print(row)
if abs(row["nats_per_token"] / 0.6931471805599453 - row["bits_per_byte"]) > 1e-12: print(row)'
    for way in "--tp 2" "--tp 4 --batch-size 1" "--dp 2 --tp 2 --batch-size 3" "--dp 3 --threads-per-rank 2" \
        "--batch-size 64"; do
        # shellcheck disable=SC2086
        evaluate "with $way" llama --data book.txt --json --threads-per-rank 1 $windows $way
        result "the same with $way" "$(cmp out wanted 2>&1)"
    done
done
evaluate "as a sentence" llama --data book.txt --seq-length 64
result "it says it all" "$(grep -qE '^999 tokens in windows of 64, each foretold once: [0-9.]+ nats a token, perplexity [0-9.]+; [0-9.]+ bits a byte of 999$' out || cat out)"

head -c 150 text.txt >sample.txt
evaluate "a text in one window" llama --data sample.txt --json
mv out mine
python3 -c 'import json; print(json.dumps({"ids": list(open("sample.txt", "rb").read())}))' >sample.jsonl
"$bin/gpt_generate" llama --prompts sample.jsonl --max-new-tokens 1 --echo --json --logprobs 0 >out 2>err
python "the log probabilities of gpt_generate" '
import json
p, row = json.loads(open("out").read())["prompt_logprobs"], json.loads(open("mine").read())
if len(p) != 149 or abs(sum(p) + row["nats"]) > 1e-5: print(len(p), sum(p), row)'

# Token ids with a loss mask, by a loop of Python.
printf '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello you"}]}\n%.0s' 1 2 3 >c.jsonl
"$bin/gpt_data" chat c.jsonl --tokenizer bytes --chat-template chatml --output chats >out 2>err
result "conversations" "$([ -e chats.loss.idx ] || cat err)"
evaluate "what is trained on" llama --data chats.idx --json --seq-length 40
cp out wanted
python "and nothing else" '
import json
mask = open("chats.loss.bin", "rb").read()
row = json.loads(open("wanted").read())
if row["tokens"] != sum(mask[1:]) or not 0 < row["tokens"] < len(mask) - 1: print(row, sum(mask), len(mask))'

# choose NAME ARGUMENT...: as evaluate.
choose()
{
    local name=$1
    shift
    if timeout -s KILL 120 "$bin/gpt_eval" choices "$@" >out 2>err; then
        result "$name" "$(cat err)"
    else
        result "$name" "exit status $?"
    fi
}

python3 -c '
import json
text = open("sample.txt").read()
def row(doc, context, continuation, label):
    print(json.dumps({"request": {"context": context, "continuation": continuation}, "doc_id": doc, "label": label}))
row(0, text[0], text[1:], None)
for i in range(3):
    for choice in (text[40:45], "zzzzz", text[40:41]):
        row(i + 1, text[:40], choice, i)
row(4, "The \u3000\u00a0 ", "end", 0)
row(5, "x" * 150, "y" * 40, 0)' >choices.jsonl
choose "choices" llama --requests choices.jsonl --json --threads-per-rank 1
cp out wanted
for way in "--tp 2" "--tp 4" "--dp 2 --tp 2" "--dp 3 --threads-per-rank 2" "--batch-size 1" "--batch-size 2" \
    "--batch-size 64" "--batch-size 3 --dp 2"; do
    # shellcheck disable=SC2086
    choose "choices with $way" llama --requests choices.jsonl --json --threads-per-rank 1 $way
    result "the same with $way" "$(cmp out wanted 2>&1)"
done
tac choices.jsonl >backwards.jsonl
choose "backwards" llama --requests backwards.jsonl --json
result "what is in the cache changes no bit" "$(cmp <(head -n -1 wanted) <(head -n -1 out | tac) 2>&1)"
python "the scores of choices" '
import json
rows = [json.loads(line) for line in open("wanted")]
mine, summary = json.loads(open("mine").read()), rows.pop()
if abs(rows[0]["logprob"] + mine["nats"]) > 1e-5 or rows[0]["tokens"] != 149: print(rows[0], mine)
wanted = [149] + [5, 5, 1] * 3 + [10, 40]  # blanks at the end of a context, also of Unicode, begin what goes on
if [r["tokens"] for r in rows] != wanted: print([r["tokens"] for r in rows])
if summary["questions"] != 6 or summary["labelled"] != 5: print(summary)
best = max(range(3), key=lambda i: rows[1 + i]["logprob"])
norm = max(range(3), key=lambda i: rows[1 + i]["logprob"] / rows[1 + i]["bytes"])
if summary["right"] != 3 or summary["right_by_bytes"] != 3: print(best, norm, summary)'
choose "as a sentence" llama --requests choices.jsonl
result "acc and acc_norm" "$(grep -qE '^12 requests, 5 of 6 questions with a right answer: acc 0.6000, acc_norm 0.6000, [0-9.]+ bits a byte of it$' out || cat out)"

# While a model is trained: the score that gpt_eval has of what is saved, on any layout, and no bit of the training changes.
small=(--data text.txt --arch llama --n-layer 2 --n-head 6 --n-kv-head 3 --n-embd 24 --seq-len 160 --global-batch-size 4 --steps 4
    --lr 0.01 --eval-interval 2 --threads-per-rank 1 --digest)
head -11 choices.jsonl >asked.jsonl
run "without questions" "${small[@]}" --log-jsonl plain.jsonl
run "with questions" "${small[@]}" --eval-requests asked.jsonl --save asked --log-jsonl asked_log.jsonl
result "a line says it" "$(grep -qE '^step +4/4 .* val [0-9.]+  acc [01]\.[0-9]{4}  acc_norm [01]\.[0-9]{4}  digest' out || cat out)"
choose "what was saved" asked --requests asked.jsonl --json --threads-per-rank 1
mv out saved
python "questions while training" '
import json
rows = [json.loads(line) for line in open("asked_log.jsonl")][1:]
plain = [json.loads(line) for line in open("plain.jsonl")][1:]
for a, b in zip(rows, plain):
    if a["digest"] != b["digest"] or a["val_loss"] != b["val_loss"]: print("step", a["step"], "is another one")
    if ("acc" in a) != (a["step"] % 2 == 0) or "acc" in b: print("step", a)
total = json.loads(open("saved").read().splitlines()[-1])
mine = (total["right"] / total["labelled"], total["right_by_bytes"] / total["labelled"], total["bits_per_byte"])
said = (rows[-1]["acc"], rows[-1]["acc_norm"], rows[-1]["answer_bits_per_byte"])
if mine[2] != said[2] or any(abs(a - b) > 1e-8 for a, b in zip(mine, said)): print(mine, said)
open("said", "w").write(json.dumps([[r.get("acc"), r.get("answer_bits_per_byte"), r["digest"]] for r in rows]))'
for way in "--tp 2" "--dp 2" "--dp 2 --tp 2 --sequence-parallel" "--dp 4 --strategy zero1" "--pp 2" "--pp 2 --tp 2"; do
    # shellcheck disable=SC2086
    rm -f way.jsonl
    run "questions with $way" "${small[@]}" --eval-requests asked.jsonl --log-jsonl way.jsonl $way
    python "the same score with $way" '
import json
rows = [json.loads(line) for line in open("way.jsonl")][1:]
if [[r.get("acc"), r.get("answer_bits_per_byte"), r["digest"]] for r in rows] != json.load(open("said")): print(rows)'
done
for way in "" "--tp 2 --dp 2" "--pp 2 --micro-batch-size 1 --rank 1" "--dp 2 --ema 0.9 --eval-ema"; do
    # shellcheck disable=SC2086
    plan_is_run "with questions $way" "${small[@]}" --eval-requests asked.jsonl $way
done
# What questions and a sample take after the steps is in the plan, to the byte: a rank runs with that, and with no byte less.
narrow=("${small[@]}" --seq-len 16 --positions 160 --global-batch-size 1 --steps 2)
python3 -c "print('a b ' * 200)" >words.txt
"$bin/gpt_data" train-bpe words.txt --output words --vocab-size 300 >out 2>err || cat err
for way in "--eval-requests asked.jsonl" "--sample 150 --positions 400 --seq-len 200 --sample-prompt abababab" \
    "--sample 250 --positions 400 --seq-len 200 --vocab-size 300 --tokenizer words --sample-prompt abababab" \
    "--pp 2 --tp 2 --eval-requests asked.jsonl"; do
    # shellcheck disable=SC2086
    run "a plan with $way" "${narrow[@]}" $way --plan --json plan.json
    peak=$(python3 -c 'import json; print(json.load(open("plan.json"))["plan"]["run_peak"])')
    # shellcheck disable=SC2086
    run "runs with what it says" "${narrow[@]}" $way --device-memory "$peak"
    # shellcheck disable=SC2086
    "$gpt_train" "${narrow[@]}" $way --device-memory $((peak - 1)) >out 2>err
    result "and with no less" "$([ $? != 0 ] && grep -q "out of memory" err || cat out err)"
    for room in 0 1; do
        # shellcheck disable=SC2086
        run "a plan with $room bytes less" "${narrow[@]}" $way --plan --json plan.json --device-memory $((peak - room))
        shows "which says so" "$([ $room = 0 ] && echo "^fits in " || echo "^does not fit in .*: 1 B too much")"
        result "as JSON, too" "$(python3 -c 'import json, sys
if json.load(open("plan.json"))["plan"]["fits"] != (sys.argv[1] == "0"): print("other")' $room)"
    done
done
# They take more than these steps, so that they decide what fits: a batch, a stage, all ways of planning it.
narrow+=(--eval-requests asked.jsonl --plan --json plan.json)
run "a plan with questions" "${narrow[@]}"
peak=$(python3 -c 'import json; print(json.load(open("plan.json"))["plan"]["run_peak"])')
run "the batch beside them" "${narrow[@]}" --find-batch --device-memory $((peak - 1))
shows "there is none" "^no micro-batch fits" "1 B too much; the most is keys and values, in what follows the steps" "the cheapest first"
run "the batch in a byte more" "${narrow[@]}" --find-batch --device-memory "$peak"
shows "there is one" "^the largest micro-batch that fits: " "^fits in "
run "a plan of two stages" "${narrow[@]}" --pp 2 --tp 2
peak=$(python3 -c 'import json; print(max(s["run_peak"] for s in json.load(open("plan.json"))["plan"]["stages"]))')
run "in a byte less" "${narrow[@]}" --pp 2 --tp 2 --device-memory $((peak - 1))
shows "one does not fit, of its questions" "^  1 .* in what follows the steps: does not fit$" "^  0 .*: fits$"
run "a plan beside other strategies" "${narrow[@]}" --dp 2 --global-batch-size 2
result "their lines say by what they fit" "$(python3 -c 'import json, re
said = dict(re.findall(r"^  --strategy (\w+) +([0-9.]+ \w+) peak", open("out").read(), re.M))
rows = [row for row in json.load(open("plan.json"))["plan"]["strategies"] if "peak" in row]
unit = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
for row in rows:
    number, name = said[row["name"]].split()
    if abs(float(number) * unit[name] - row["run_peak"]) > .002 * row["run_peak"]: print(said, row)
if not any(row["run_peak"] > 1.02 * row["peak"] for row in rows): print("what follows takes no more", rows)')"
for plan in "" --plan; do
    refuse "questions that are missing $plan" 3 "nowhere.jsonl" "${small[@]}" --eval-requests nowhere.jsonl $plan
done
refuse "questions without validation" 2 "--eval-requests asked.jsonl is looked at where the validation loss is" \
    "${small[@]}" --eval-requests asked.jsonl --eval-interval 0

# wrong NAME PATTERN ARGUMENT...: exit status 2 and a line with the pattern.
wrong()
{
    local name=$1 pattern=$2 status
    shift 2
    "$bin/gpt_eval" "$@" >out 2>err
    status=$?
    result "$name" "$([ $status = 2 ] && grep -qE "^gpt_eval: .*$pattern" err || echo "status $status")"
}

wrong "no command" "no command: what there is" --data book.txt
wrong "another command" "guesses: what there is" guesses llama
wrong "no requests" "give --requests FILE" choices llama
wrong "requests of a text" "--requests is of gpt_eval choices" perplexity llama --data book.txt --requests choices.jsonl
wrong "windows of choices" "are of gpt_eval perplexity" choices llama --requests choices.jsonl --stride 3
wrong "too many questions at once" "--batch-size 65: of choices 64 at most" choices llama --requests choices.jsonl --batch-size 65
wrong "no model" "no MODEL" perplexity --data book.txt
wrong "no data" "give --data FILE" perplexity llama
wrong "two models" "book.txt: it takes one MODEL" perplexity llama book.txt --data book.txt
wrong "windows that are too long" "--seq-length 161: the model has 160 positions" perplexity llama --data book.txt --seq-length 161
wrong "windows with gaps" "--stride 65 is more than --seq-length 64" perplexity llama --data book.txt --seq-length 64 --stride 65
printf a >one.txt
wrong "one token" "has 1 token, and none to foretell" perplexity llama --data one.txt
printf '{"text": "a"}\n' >d.jsonl
wrong "lines of JSON" "gpt_data tokenize d.jsonl" perplexity llama --data d.jsonl
wrong "no number" "--tp x: a whole number from 1" perplexity llama --data book.txt --tp x
for line in '{"request": {"context": "a"}, "doc_id": 1}' '{"request": {"context": "a", "continuation": "b"}}' 'no JSON' \
    '{"request": {"context": "a", "continuation": "b"}, "doc_id": 1, "label": "x"}' \
    '{"request": {"context": "", "continuation": "b"}, "doc_id": 1}' \
    '{"request": {"context": "a", "continuation": ""}, "doc_id": 1}' \
    '{"request": {"context": "a ", "continuation": ""}, "doc_id": 1}'; do
    { head -1 choices.jsonl && echo "$line"; } >bad.jsonl
    "$bin/gpt_eval" choices llama --requests bad.jsonl >out 2>err
    result "refused: $line" "$([ $? = 3 ] && grep -q "bad.jsonl: line 2: " err || cat err)"
done
# Sums that no exact layout has: other bits, of which every program says the line of gpt_train, once.
for tp in 3 5 6 7; do
    for command in "gpt_eval perplexity llama --data book.txt" "gpt_eval choices llama --requests choices.jsonl" \
        "gpt_generate llama --prompt ab --max-new-tokens 2"; do
        # shellcheck disable=SC2086
        "$bin"/$command --tp $tp --dp 2 --threads-per-rank 1 >out 2>err
        result "$command --tp $tp" "$([ $? = 0 ] && [ -s out ] &&
            [ "$(cat err)" = "not layout-exact: tp $tp does not nest in the 8 chunks" ] || cat err)"
    done
done
"$bin/gpt_generate" llama --prompt ab --max-new-tokens 2 --tp 8 --dp 2 --threads-per-rank 1 >out 2>err
result "nothing is said of tp 8" "$(cat err)"

# What is dropped or miscounted nowhere else is refused: by the line, of the file and of what is trained.
ask()
{
    python3 -c '
import json, sys
for doc, label in json.loads(sys.argv[1]):
    print(json.dumps({"request": {"context": "a", "continuation": "b"}, "doc_id": doc, "label": label}))' "$1" >bad.jsonl
}
while IFS='|' read -r name rows words; do
    ask "$rows"
    "$bin/gpt_eval" choices llama --requests bad.jsonl >out 2>err
    result "refused: $name" "$([ $? = 3 ] && [ ! -s out ] && grep -qE "bad.jsonl: $words" err || cat err)"
    refuse "while training, too: $name" 3 "bad.jsonl: $words" "${small[@]}" --eval-requests bad.jsonl
done <<'END'
labels from 1|[[0, 2], [0, 2], [1, 1], [1, 1]]|line 1: "label" 2 is none of the 2 choices of doc_id 0, which are numbered from 0 to 1
a label that is too large|[[0, 0], [7, 9]]|line 2: "label" 9 is none of the 1 choices of doc_id 7
two labels|[[0, 0], [0, 1]]|line 2: "label" is 1 and not 0 as on line 1, of the same doc_id 0
a label on some lines|[[0, 0], [0, null]]|line 2: "label" is -1 and not 0 as on line 1
lines that stand apart|[[0, 0], [1, 0], [0, 0], [1, 0]]|line 3: doc_id 0 is that of line 1 too, with others between
END
ask '[[0, null], [0, null], [1, null]]'
choose "without labels" llama --requests bad.jsonl --json
python "there is no mean" '
import json
total = json.loads(open("out").read().splitlines()[-1])
if total != {"questions": 2, "labelled": 0, "right": 0, "right_by_bytes": 0, "bits_per_byte": None}: print(total)'
refuse "nothing to count while training" 2 "--eval-requests bad.jsonl: no question has a label" "${small[@]}" --eval-requests bad.jsonl
cp chats.bin none.bin && cp chats.idx none.idx && cp chats.loss.idx none.loss.idx
head -c "$(stat -c %s chats.loss.bin)" /dev/zero >none.loss.bin
for json in "" --json; do
    # shellcheck disable=SC2086
    "$bin/gpt_eval" perplexity llama --data none.idx $json >out 2>err
    result "a mask that leaves nothing $json" "$([ $? = 3 ] && [ ! -s out ] &&
        grep -q "its loss mask lets none of the .* tokens count" err || cat out err)"
done
# Weights that are no numbers: no word of memory, and no NaN in JSON.
result "as a folder" "$("$bin/gpt_export" llama nans 2>&1)"
python3 - <<'END'
from pathlib import Path
file = Path("nans/model.safetensors")
data = bytearray(file.read_bytes())
data[-4:] = b"\0\0\xc0\x7f"
file.write_bytes(data)
END
for command in "perplexity nans --tokenizer bytes --data book.txt" "choices nans --tokenizer bytes --requests choices.jsonl"; do
    for json in "" --json; do
        # shellcheck disable=SC2086
        "$bin/gpt_eval" $command $json >out 2>err
        result "not finite: $command $json" "$([ $? != 0 ] && [ ! -s out ] && grep -qE "not finite|NaN" err || cat out err)"
    done
done
"$bin/gpt_generate" nans --tokenizer bytes --prompt ab --max-new-tokens 2 --json --logprobs 1 >out 2>err
result "generated from them" "$([ $? != 0 ] && [ ! -s out ] &&
    grep -q "sample 0 of prompt 0: logprobs is NaN, which JSON cannot hold" err || cat out err)"

cp -r llama spoiled
python3 - <<'END'
from pathlib import Path
file = sorted(Path("spoiled").glob("step-*/rank-*.safetensors"))[-1]
data = bytearray(file.read_bytes())
data[-6] ^= 16
file.write_bytes(data)
END
other "a checkpoint with another bit" 3 "is damaged: tensor" gpt_eval perplexity spoiled --data book.txt
"$bin/gpt_eval" perplexity llama --data nowhere.txt >out 2>err
result "a file that is missing" "$([ $? = 3 ] && grep -q nowhere.txt err || echo no)"
finish
