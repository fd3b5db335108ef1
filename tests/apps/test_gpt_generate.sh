#!/bin/bash
# test_gpt_generate.sh GPT_TRAIN [--sanitized] - gpt_generate as a user meets it: that a text is the same however it is made,
# what ends it, and mistakes. (Log probabilities are the trainer's losses: tests/nn/test_cache.c.)
#
# ctest: arguments gpt_train sanitized, builds plain, cost 50
set -uo pipefail

gpt_train=$1 sanitized=${2:-}
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# generate NAME ARGUMENT...: ends well; its stdout is in out, its stderr in err.
generate()
{
    local name=$1
    shift
    if timeout -s KILL 120 "$bin/gpt_generate" "$@" >out 2>err; then
        result "$name" "$(cat err)"
    else
        result "$name" "exit status $?"
    fi
}

# Llama-like with heads in groups that no --tp cuts, and GPT-2-like; the second is a run with a learned position.
run "a model" --data text.txt --arch llama --n-layer 2 --n-head 6 --n-kv-head 3 --n-embd 24 --seq-len 160 \
    --global-batch-size 4 --steps 30 --lr 0.01 --threads-per-rank 1 --save llama
run "another one" --data text.txt --n-layer 2 --n-head 4 --n-embd 24 --seq-len 160 --global-batch-size 4 \
    --steps 30 --lr 0.01 --threads-per-rank 1 --save gpt2
run "a mixture" --data text.txt --arch llama --n-layer 2 --n-head 4 --n-kv-head 2 --n-embd 24 --seq-len 160 --n-expert 6 \
    --moe-top-k 2 --moe-dense 0 --global-batch-size 4 --steps 10 --lr 0.01 --threads-per-rank 1 --dp 2 --ep 2 --save mixture
for i in $(seq 1 9); do
    printf '{"prompt": "On day %s the cat"}\n' "$((i * i * i * i))"
    printf '{"ids": [%s 32]}\n\n' "$(seq -s, $((60 + i)) $((70 + 9 * i))),"
done >prompts.jsonl
printf '{"prompt": "The cat\\nsat. %s"}' "$(head -c 130 text.txt | tr '\n' ' ')" >>prompts.jsonl

drawn=(--prompts prompts.jsonl --max-new-tokens 12 --temperature 1.1 --top-p 0.95 --top-k 60 --n 2 --json --logprobs 2
    --echo --repetition-penalty 1.1)
for model in llama gpt2; do
    generate "$model: texts" $model "${drawn[@]}" --threads-per-rank 1
    cp out wanted
    result "$model: a line for each" "$([ "$(wc -l <wanted)" = 38 ] || echo "$(wc -l <wanted) lines")"
    while read -r way; do
        # shellcheck disable=SC2086 # several flags
        generate "$model: with $way" $model "${drawn[@]}" --threads-per-rank 1 $way
        result "$model: the same with $way" "$(cmp out wanted 2>&1)"
    done < <(some <<'END'
--tp 2
--tp 4
--tp 8 --batch-size 3
--batch-size 1
--batch-size 64 --prefill-chunk 1
--prefill-chunk 7 --threads-per-rank 2
--dp 2 --tp 2 --batch-size 4
END
)
done

head -c 161 text.txt >sample.txt
python3 -c 'import json; print(json.dumps({"ids": list(open("sample.txt", "rb").read()[:159])}))' >sample.jsonl
generate "log probabilities of a text" llama --prompts sample.jsonl --max-new-tokens 1 --echo --json --logprobs 0
python "a log probability for each token of the prompt but the first" '
import json, math
row = json.loads(open("out").read())
p = row["prompt_logprobs"]
if len(p) != 158 or len(row["logprobs"]) != 1 or max(p) > 0 or not all(map(math.isfinite, p)): print(len(p), max(p))'

# Experts are split over tp; a chunk of a prompt and a token alone choose the same ones.
mixed=(mixture "${drawn[@]}" --threads-per-rank 1 --max-new-tokens 6)
generate "a mixture: texts" "${mixed[@]}"
cp out wanted
for way in "--tp 4 --batch-size 3" "--dp 2 --tp 2 --prefill-chunk 1"; do
    # shellcheck disable=SC2086 # several flags
    generate "a mixture: with $way" "${mixed[@]}" $way
    result "a mixture: the same with $way" "$(cmp out wanted 2>&1)"
done

# Every family.
printf '{"ids": [1, 2, 3, 4, 5]}\n{"ids": [3, 1, 4, 1, 5, 9, 2, 6]}\n' >few.jsonl
for folder in "$reference"/hf_*; do
    few=("$folder" --tokenizer bytes --prompts few.jsonl --json --logprobs 1 --echo --max-new-tokens 10 --ignore-eos
        --threads-per-rank 1)
    generate "$(basename "$folder")" "${few[@]}"
    cp out wanted
    [ -z "$sanitized" ] || continue # the ways above are the same code
    generate "$(basename "$folder"), on four ranks" "${few[@]}" --tp 4 --batch-size 1 --prefill-chunk 2
    result "$(basename "$folder"), the same" "$(cmp out wanted 2>&1)"
done

# Ends.
day=(llama --prompt "On day 7 the" --max-new-tokens 20)
generate "a text on stdout" "${day[@]}"
cp out text
generate "with its prompt" "${day[@]}" --echo
result "which comes first" "$(printf 'On day 7 the%s\n' "$(cat text)" | cmp - out 2>&1)"
generate "JSON of it" "${day[@]}" --json
cp out whole
stop=$(python3 -c 'import json; print(json.load(open("whole"))["text"][6:8])')
generate "a stop string" "${day[@]}" --stop qqq --stop "$stop" --json
python "ends the text before it" '
import json, sys
whole, cut, stop = json.load(open("whole")), json.load(open("out")), sys.argv[1]
at = whole["text"].find(stop)
if cut["text"] != whole["text"][:at] or cut["finish_reason"] != "stop": print(cut)
if whole["finish_reason"] != "length" or len(whole["ids"]) != 20: print(whole)' "$stop"
generate "the same as text" "${day[@]}" --stop "$stop"
python "is cut too" '
import json, sys
text = json.load(open("whole"))["text"]
if open("out").read() != text[:text.find(sys.argv[1])] + "\n": print(open("out").read())' "$stop"
# Nearly every byte of these is drawn alike, so that most begin no character, or none that is completed.
day=(llama --prompt "On day 7 the" --max-new-tokens 140 --temperature 9 --ignore-eos)
generate "a text of cut characters" "${day[@]}" --json
cp out whole
for stop in q qqqqqq; do
    generate "as it is made, $stop would stop it" "${day[@]}" --stop "$stop$stop"
    python "has one U+FFFD for each" '
import json
text, shown = json.load(open("whole"))["text"], open("out", "rb").read()
if shown != text.encode() + b"\n" or text.count("\ufffd") < 30: print(shown, text)'
done
full=(llama --prompt "$(head -c 150 text.txt | tr '\n' ' ')" --max-new-tokens 50 --json)
result "a context that ends" "$("$bin/gpt_generate" "${full[@]}" 2>err >out || echo "exit status $?")"
python "after all positions" '
import json
row = json.loads(open("out").read())
if row["finish_reason"] != "length" or len(row["ids"]) != 10: print(row)'
result "is reported once" "$([ "$(grep -c 'context of 160 tokens was full' err)" = 1 ] || cat err)"
head -c 152 text.txt | python3 -c 'import json, sys; print(json.dumps({"prompt": sys.stdin.read()}))' >long.jsonl
printf '{"prompt": "On day"}\n' >>long.jsonl
full=(llama --prompts long.jsonl --max-new-tokens 12 --dp 2 --ignore-eos --threads-per-rank 1)
result "that of one of two texts" "$("$bin/gpt_generate" "${full[@]}" 2>err >out || echo "exit status $?")"
full="1 of 2 texts ended before --max-new-tokens 12, as the model's context of 160 tokens was full: shorten the prompts"
result "is reported with how many" "$(grep -qF "$full" err || cat err)"
generate "contexts that have room" llama --prompt "On day" --max-new-tokens 12
result "nothing is reported" "$(cat err)"
generate "a plan" llama --plan --prompt "On day" --tp 2
result "says what keys and values take" "$(grep -q 'keys and values' out || cat out)"
generate "bf16" llama --prompts prompts.jsonl --max-new-tokens 5 --json --logprobs 0 --dtype bf16
cp out wanted
generate "bf16, --tp 4" llama --prompts prompts.jsonl --max-new-tokens 5 --json --logprobs 0 --dtype bf16 --tp 4 \
    --batch-size 3 --threads-per-rank 1
result "has one text too" "$(cmp out wanted 2>&1)"
wide=(--prompts prompts.jsonl --max-new-tokens 5 --json --logprobs 0 --dtype bf16 --fp32-residual-connection)
generate "bf16, residual stream in fp32" llama "${wide[@]}"
result "which is another text" "$(cmp -s out wanted && echo 'is the same')"
cp out wanted
generate "the same on --tp 2 --dp 2" llama "${wide[@]}" --tp 2 --dp 2 --batch-size 3 --threads-per-rank 1
result "has one text as well" "$(cmp out wanted 2>&1)"
reported=$("$bin/gpt_generate" llama --prompt x --fp32-residual-connection 2>&1)
result "and is refused without bf16" "$(grep -q 'use it with --dtype bf16' <<<"$reported" || echo "$reported")"

# What the folder of a model says of how texts end.
cp -r "$reference/hf_llama" ends
few=(ends --tokenizer bytes --prompts few.jsonl --json --max-new-tokens 10 --threads-per-rank 1)
generate "no generation_config.json" "${few[@]}"
end=$(python3 -c 'import json; print(json.loads(open("out").readline())["ids"][1])')
printf '{"eos_token_id": [%s], "temperature": 0.6, "num_beams": 1}' "$end" >ends/generation_config.json
result "an end of generation_config.json" "$("$bin/gpt_generate" "${few[@]}" 2>err >out || echo "exit status $?")"
python "ends the first text" '
import json
row = json.loads(open("out").readline())
if row["finish_reason"] != "stop" or len(row["ids"]) > 2: print(row)'
printf '{"eos_token_id": [%s, 4999999999, 100000]}' "$end" >ends/generation_config.json
"$bin/gpt_generate" "${few[@]}" 2>err >out
result "ends that no vocabulary has" "$(grep -q 'warning: 2 of the [0-9]* tokens that end a text as ends says it' err ||
    cat err)"
printf '{"eos_token_id": [%s], "num_beams": 4}' "$end" >ends/generation_config.json
other "beams, which there are not" 2 'ends/generation_config.json: .*: num_beams; remove' gpt_generate "${few[@]}"
other "also without ends" 2 'ends/generation_config.json: .*: num_beams; remove' gpt_generate "${few[@]}" --ignore-eos
printf '{"eos_token_id": "2"}' >ends/generation_config.json
other "an end that is no id" 3 'ends/generation_config.json: "eos_token_id" is neither' gpt_generate "${few[@]}"
other "also where texts do not end" 3 '"eos_token_id" is neither' gpt_generate "${few[@]}" --ignore-eos
printf '{"eos_token_id": 2' >ends/generation_config.json
other "a damaged generation_config.json" 3 'ends/generation_config.json: no JSON' gpt_generate "${few[@]}"

# Conversations.
printf '{"messages": [{"role": "user", "content": "Hi"}]}\n{"prompt": "Hi"}\n' >chats.jsonl
chat=(llama --chat --chat-template chatml --max-new-tokens 4 --echo --json)
generate "a chat" "${chat[@]}" --prompts chats.jsonl
python "is what the template makes of it" '
import json
for line in open("out"):
    text = bytes(json.loads(line)["prompt_ids"]).decode()
    if text != "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n": print(repr(text))'
generate "a chat with a system" "${chat[@]}" --prompt Hi --system Be.
python "which speaks first" '
import json
text = bytes(json.loads(open("out").read())["prompt_ids"]).decode()
if not text.startswith("<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<"): print(repr(text))'

printf '{"messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "f"}], "id": 1}\n{"prompt": "Yo", "source": "s"}\n' >tools.jsonl
printf '%s' '{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}{% if think %}{{ think }}{% endif %}' >tools.jinja
generate "a chat with tools" llama --chat --chat-template tools.jinja --chat-template-kwargs '{"think": "T"}' --max-new-tokens 4 --echo --json --prompts tools.jsonl
python "which the template gets" '
import json
texts = [bytes(json.loads(line)["prompt_ids"]).decode() for line in open("out")]
if texts != ["[{\"name\": \"f\"}]HiT", "nullYoT"]: print(texts)'
printf '{"prompt": "Hi", "max_tokens": 5}\n' >unknown.jsonl

# Mistakes.
other "a field of a prompt that is not known" 2 'line 1: the field .max_tokens. is not known' gpt_generate llama --prompts unknown.jsonl
other "variables without a chat" 2 '--chat-template-kwargs is for conversations' gpt_generate llama --chat-template-kwargs '{}' --prompt x
other "a template that is none" 2 'no chat template foo: .* chatml' gpt_generate llama --chat --chat-template foo --prompt x
other "a system without a chat" 2 'give --chat too' gpt_generate llama --system x --prompt x
other "messages without a chat" 3 'read with --chat' gpt_generate llama --prompts chats.jsonl
other "no model" 2 'no MODEL was given' gpt_generate --prompt x
other "two models" 2 'one MODEL only' gpt_generate llama gpt2 --prompt x
other "a model that is not there" 3 'nowhere: No such file.*: a model is a folder' gpt_generate nowhere --prompt x
other "a file of a model" 3 'prompts.jsonl is a file: a model is a folder' gpt_generate prompts.jsonl --prompt x
mkdir -p packed && : >packed/small.gguf
mkdir nothing
other "a folder without a model" 3 'nothing/config.json: No such file: a model is a folder' gpt_generate nothing --prompt x
other "a folder with GGUF" 3 'packed is no model, .* gpt_export packed/small.gguf FOLDER' gpt_generate packed --prompt x
other "a prompt for --prompts" 3 'Once upon: No such file .*--prompt a text' gpt_generate llama --prompts 'Once upon'
other "a flag without its value" 2 '[-]-prompt needs a value' gpt_generate llama --prompt
other "no prompt" 2 'give --prompt TEXT or --prompts FILE' gpt_generate llama
other "both" 2 'give one of them' gpt_generate llama --prompt x --prompts prompts.jsonl
other "an empty prompt" 2 'has no token' gpt_generate llama --prompt ''
other "a prompt that is too long" 2 'has at most 160' gpt_generate llama --prompt "$(head -c 500 text.txt)"
other "stages" 2 '--pp 2: a model has no stages here.* --tp N splits it' gpt_generate llama --prompt x --pp 2
other "a tp up to which nothing nests" 2 '[-]-exact-tp 3 is none of 1, 2, 4 and 8' gpt_generate llama --prompt x --exact-tp 3
other "no such flag" 2 'unknown flag --promt; did you mean --prompt' gpt_generate llama --promt x
other "another tool's flag" 2 'unknown flag --n-predict; did you mean --max-new-tokens' gpt_generate llama --n-predict 3
other "a number that is none" 2 'top-p 2: a number from' gpt_generate llama --prompt x --temperature 1 --top-p 2
other "a filter without a draw" 2 'have no effect' gpt_generate llama --prompt x --top-k 3
other "the same text many times" 2 'the same text' gpt_generate llama --prompt x --n 3
other "log probabilities of text" 2 'give --json too' gpt_generate llama --prompt x --logprobs 1
other "a file that is not there" 3 'missing.jsonl' gpt_generate llama --prompts missing.jsonl
printf '{"prompt": "a"}\n{"prompt": 3}\n' >bad.jsonl
other "a line without a prompt" 3 'bad.jsonl, line 2: neither' gpt_generate llama --prompts bad.jsonl
printf '{"ids": [1, 256]}\n' >bad.jsonl
other "an id that is none" 3 'line 1: .*index 1 .* 0 to 255' gpt_generate llama --prompts bad.jsonl
python "a prompt that is too long after a short one" '
import json
with open("far.jsonl", "w") as f:
    for n in (3, 100000): print(json.dumps({"ids": [1] * n}), file=f)'
other "a prompt that is too long, by its line" 2 'far.jsonl, line 2: a prompt has 100000 tokens' gpt_generate llama --prompts far.jsonl
printf 'text\n' >bad.jsonl
other "no JSON" 3 'bad.jsonl, line 1: no JSON' gpt_generate llama --prompts bad.jsonl
other "a tokenizer of another model" 2 'is another model' gpt_generate llama --prompt x \
    --tokenizer "$reference/../text/tokenizers/gpt2.json"

finish
