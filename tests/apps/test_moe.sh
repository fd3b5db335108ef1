#!/bin/bash
# test_moe.sh GPT_TRAIN - what balances experts as a user meets it: counts of a step that go on in checkpoints and adapters, on other
# layouts and where steps are skipped; what of it leaves with a model, and what is refused. Experts with a capacity, in training and
# generation.
#
# ctest: arguments gpt_train, builds plain, cost 20
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

mixture=(--data text.txt --arch mixtral --n-layer 2 --n-head 4 --n-kv-head 2 --n-embd 32 --ffn 48 --n-expert 4 --moe-top-k 2
    --seq-len 32 --global-batch-size 8 --steps 4 --lr 1e-2 --eval-interval 0 --threads-per-rank 1 --digest)
global=("${mixture[@]}" --moe-balance global --moe-global-weight 0.1)
digests() { sed -n 's/^\(step [0-9]*\)\/.*  loss \([0-9.]*\) .*balance \([0-9.]*\) .*digest \(.*\)$/\1 \2 \3 \4/p' "$1"; }

run "a loss of the global batch" "${global[@]}" --save whole --save-interval 2 --keep 0
digests out >one.txt
shows "which is 1 a mixture before anything is counted" "^step 1/4 .* balance 2\.0000 "
result "four digests" "$([ "$(sort -u one.txt | wc -l)" = 4 ] || cat one.txt)"
run "another weight" "${mixture[@]}" --moe-balance global --moe-global-weight 0.2
result "has another digest" "$(digests out | comm -12 <(sort one.txt) <(sort -) | sed 1d)"
while read -r layout; do
    # shellcheck disable=SC2086 # flags are words
    run "the same: $layout" "${global[@]}" $layout
    result "has its digests" "$(digests out | diff one.txt -)"
    # shellcheck disable=SC2086
    run "resumed: $layout" "${global[@]}" --resume whole/step-00000002 $layout
    result "with its digests" "$(digests out | diff <(sed 1,2d one.txt) -)"
done <<'END'
--tp 2 --dp 2 --ep 4 --sequence-parallel
--pp 2 --dp 2 --ep 2 --pp-schedule zb-h1 --micro-batch-size 1
--tp 2 --dp 2 --etp 2 --ep 2 --micro-batch-size 2 --recompute block
END
run "saved in parts" "${global[@]}" --dp 2 --ep 2 --save parts --save-interval 2 --keep 0
run "resumed on one rank" "${global[@]}" --resume parts/step-00000002
result "with its digests" "$(digests out | diff <(sed 1,2d one.txt) -)"
plan_is_run "with counts" "${global[@]}" --dp 2 --ep 2 --dtype bf16
run "steps that are skipped" "${global[@]}" --skip-steps "loss>0.1"
shows "count nothing" "^step 4/4 .* balance 2\.0000 "

run "a mixture without" "${mixture[@]}" --save without
refuse "a checkpoint without counts" 2 "is of another model: --moe-balance global \(it has none\)" "${global[@]}" --resume without
refuse "a weight of nothing" 2 "--moe-global-weight is read with --moe-balance global alone" "${mixture[@]}" --moe-global-weight 0.1

result "for transformers" "$("$bin/gpt_export" whole folder 2>&1)"
result "as GGUF" "$("$bin/gpt_export" whole --gguf folder.gguf --tokenizer none 2>&1)"
on=(--init-from folder --data text.txt --seq-len 32 --global-batch-size 8 --steps 2 --digest --moe-balance global)
for kind in global bias; do
    run "from there, by $kind" "${on[@]}" --moe-balance $kind
done
run "adapters" "${on[@]}" --lora-rank 2 --save adapters --save-interval 1 --keep 0
digests out >one.txt
run "resumed elsewhere" "${on[@]}" --lora-rank 2 --resume adapters/step-00000001 --dp 2 --ep 2
result "with its digests" "$(digests out | diff <(sed 1d one.txt) -)"
result "for PEFT" "$("$bin/gpt_export" adapters peft 2>&1)"

refuse "biases that adapters freeze" 2 "^gpt_train: --moe-balance bias beside adapters would change nothing: --lora-rank 2 freezes" \
    "${on[@]}" --moe-balance bias --lora-rank 2
for plan in "" --plan; do
    run "biases that are frozen $plan" "${mixture[@]}" --moe-balance bias --freeze block.*.moe $plan
    result "are reported" "$(grep -qE 'biases that balance experts \(bias_step\) are frozen, as is block\.[0-9]\.moe\.bias' err || cat err)"
done
run "biases that are trained beside adapters" "${on[@]}" --moe-balance bias --lora-rank 2 --modules-to-save block.*.moe.bias
run "biases of some blocks" "${mixture[@]}" --moe-balance bias --freeze block.0

full=("${mixture[@]}" --moe-expert-capacity-factor 0.5)
texts() { sed -n 's/^\(step [0-9]*\)\/.*  loss \([0-9.]*\) .*digest \(.*\)$/\1 \2 \3/p' "$1"; }
run "experts with a capacity" "${full[@]}" --save full --moe-report --log-jsonl full.jsonl
texts out >one.txt
shows "whose dropped choices are reported" "block\.1\.moe .* choices dropped, [45][0-9]\.[0-9]+ %$"
python "and logged: with those that are taken they are all choices" '
import json
rows = [json.loads(line) for line in open("full.jsonl")]
for row in rows[1:]:
    for name, taken in row["expert_load"].items():
        if sum(taken) + row["expert_dropped"][name] != 8 * 32 * 2 or max(taken) > 8 * 8 or not row["expert_dropped"][name]: print(row)'
for layout in "--tp 2 --dp 2 --ep 4 --sequence-parallel --moe-dispatch exchange" "--tp 2 --etp 2 --pp 2 --micro-batch-size 2 --recompute block" \
    "--dp 2 --ep 2 --moe-buffer 0.3"; do
    # shellcheck disable=SC2086 # flags are words
    run "the same: $layout" "${full[@]}" $layout
    result "has its digests" "$(texts out | diff one.txt -)"
done
plan_is_run "with a capacity" "${full[@]}" --dp 2 --ep 2
refuse "a text of them on a GPU, before a step is made" 2 "experts with a capacity do not continue texts on a GPU" \
    "${full[@]}" --plan --device cuda --sample 4
run "room for all" "${mixture[@]}" --moe-expert-capacity-factor 9
texts out >nine.txt
run "no capacity" "${mixture[@]}"
result "has the same digests" "$(texts out | diff nine.txt -)"

# Tokens that are all alike choose the same experts: one rank has all rows, and the others none.
head -c 20000 /dev/zero | tr '\0' a >same.txt
same=("${mixture[@]/text.txt/same.txt}" --n-expert 8 --moe-ffn 8 --moe-shared 16 --steps 2)
run "a step of one letter" "${same[@]}" --steps 1 --moe-report
shows "whose tokens take two experts" "block\.1\.moe +4\.00 +0\.00 +6 "
run "one letter" "${same[@]}"
texts out >one.txt
for layout in "--dp 8 --ep 8 --moe-buffer 1.25" "--dp 2 --ep 2 --moe-buffer 0.01 --recompute block" \
    "--tp 2 --dp 4 --ep 8 --sequence-parallel --moe-buffer 0.01"; do
    # shellcheck disable=SC2086 # flags are words
    run "exchanged in waves: $layout" "${same[@]}" --moe-dispatch exchange $layout
    result "has its digests" "$(texts out | diff one.txt -)"
    # shellcheck disable=SC2086
    run "a step in waves: $layout" "${same[@]}" --steps 1 --moe-dispatch exchange $layout --report-json ran.json
    # shellcheck disable=SC2086
    run "its plan, which knows no choices" "${same[@]}" --steps 1 --moe-dispatch exchange $layout --plan --json plan.json
    python "has its memory, and as many collectives" '
import json
plan, ran = json.load(open("plan.json")), json.load(open("ran.json"))
calls = [[(c["axis"], c["kind"], c["calls"]) for c in report["collectives"]] for report in (plan, ran)]
if plan["memory"] != ran["memory"] or calls[0] != calls[1]: print(plan["memory"], ran["memory"], calls)'
done
run "a trace" "${same[@]}" --steps 1 --moe-dispatch exchange --dp 8 --ep 8 --moe-buffer 1.25 --trace trace.json
result "has each wave, forward and backward" "$(grep -o '"name":"wave of experts"' trace.json | wc -l | grep -vx $((8 * 2 * 4 * 2)))"
head -c 30 text.txt >sample.txt
python3 -c 'import json; print(json.dumps({"ids": list(open("sample.txt", "rb").read())}))' >sample.jsonl
for way in "" "--prefill-chunk 1" "--tp 2 --prefill-chunk 7"; do
    # shellcheck disable=SC2086
    result "a text ${way:-whole}" "$("$bin/gpt_generate" full --tokenizer bytes --prompts sample.jsonl --max-new-tokens 2 --echo --json --logprobs 0 \
        $way 2>&1 >"got$way")"
    result "has the same log probabilities" "$(cmp got "got$way" 2>&1)"
done
"$bin/gpt_eval" perplexity full --tokenizer bytes --data sample.txt --seq-length 32 --json >evaluated
python "they are those of an evaluation" '
import json
mine, theirs = json.loads(open("got").read())["prompt_logprobs"], json.load(open("evaluated"))["nats_per_token"]
if len(mine) != 29 or abs(sum(mine) / 29 + theirs) > 1e-6: print(sum(mine) / 29, theirs)'
other "for transformers" 2 "does not have its capacity of experts" gpt_export full full.folder
other "with other sequences" 2 "--seq-len 16 gives experts another capacity than the checkpoint full/step-00000004 has, by sequences of 32" \
    gpt_train "${full[@]}" --seq-len 16 --positions 32 --steps 5 --resume full/step-00000004
made() { sed -n '/^--- sample ---$/,$p' out; }
run "a sample" "${full[@]}" --sample 20
made >sample.one
for layout in "--cp 2" "--cp 2 --tp 2 --etp 2 --sequence-parallel" "--tp 2 --dp 2"; do
    # shellcheck disable=SC2086
    run "a sample: $layout" "${full[@]}" --sample 20 $layout
    result "has the same bytes" "$(made | diff sample.one -)"
done
refuse "a sample of experts over data-parallel ranks" 2 "--sample makes texts, .* and --ep 2 splits experts over such: use --ep 1" \
    "${mixture[@]}" --dp 2 --ep 2 --sample 20
refuse "counts alone" 2 "all parameters are frozen" "${global[@]}" --freeze embed,block,norm,head
refuse "two experts that weigh what they take" 2 "--moe-weigh-input on .* --moe-top-k 2 chooses more: use --moe-top-k 1" \
    "${mixture[@]}" --moe-weigh-input on
cp -r "$reference/hf_llama4" cold
sed -i 's/"attn_temperature_tuning": true/"attn_temperature_tuning": false/' cold/config.json
cp -r "$reference/hf_llama4" turning
python3 -c '
import json
c = json.load(open("turning/config.json"))
c["no_rope_layers"] = [1] * c["num_hidden_layers"]
c["layer_types"] = ["chunked_attention"] * c["num_hidden_layers"]
json.dump(c, open("turning/config.json", "w"))'
perplexity()
{
    "$bin/gpt_eval" perplexity "$1" --tokenizer bytes --data sample.txt --seq-length 16 --json | grep -o '"nats_per_token": [^,}]*'
}
still=(--data text.txt --seq-len 16 --global-batch-size 2 --steps 1 --lr 1e-30 --min-lr 1e-30 --eval-interval 0)
for folder in cold turning; do # one without its family's temperature, one whose blocks all rotate
    run "a folder that is $folder" --init-from $folder "${still[@]}" --save $folder.trained
    result "trains as such" "$(perplexity $folder | diff - <(perplexity $folder.trained))"
    result "which is no other model" "$(diff -q <(perplexity $folder) <(perplexity "$reference/hf_llama4") >/dev/null && echo "it has the same texts")"
done
run "which goes on as it was" --resume cold.trained "${still[@]}" --steps 2 --save colder
result "without that temperature" "$(perplexity cold | diff - <(perplexity colder))"
refuse "another temperature than the folder's" 2 "--query-temperature 0.1 contradicts --init-from cold, whose model has -1" \
    --init-from cold "${still[@]}" --query-temperature 0.1
run "none, as the folder has it" --init-from cold "${still[@]}" --query-temperature -0.5 --save colder.still
result "is that model" "$(perplexity cold | diff - <(perplexity colder.still))"
cp -r "$reference/hf_llama4" published
python3 -c '
import json
c = json.load(open("published/config.json"))
c.update(no_rope_layers=[], attn_temperature_tuning=4, rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0,
    high_freq_factor=1.0, original_max_position_embeddings=8192))
c.pop("rope_parameters", None)
json.dump(c, open("published/config.json", "w"))'
run "a folder as Llama 4 is published" --init-from published --data text.txt --seq-len 16 --global-batch-size 2 --steps 1 --eval-interval 0
refuse "a capacity without experts" 2 "--moe-expert-capacity-factor is for a mixture of experts" --arch llama --moe-expert-capacity-factor 1 --data text.txt
finish
