#!/bin/bash
# test_lora.sh GPT_TRAIN [--sanitized] - adapters as a user meets them: one digest on layouts and after stops, checkpoints of them
# alone, PEFT's files out and in, merging, plans, and what does not fit.
#
# ctest: arguments gpt_train sanitized, cost 50, builds plain
set -uo pipefail

gpt_train=$1 sanitized=${2:-}
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

a_base

base=(--init-from base --data text.txt --seq-len 16 --global-batch-size 8 --steps 6 --lr 1e-2 --eval-interval 0 --digest)
lora=("${base[@]}" --lora-rank 4 --lora-alpha 12 --lora-targets all-linear)
digests() { sed -n 's/^\(step [0-9]*\)\/.*  loss \([0-9.]*\) .*digest \(.*\)$/\1 \2 \3/p' "$1"; }
run "adapters, on one rank" "${lora[@]}" --save whole
digests out >one.txt
shows "who they are" \
    "^adapters: rank 4, alpha 12, on all-linear; 6912 of 82416 parameters are trained \(8\.3867 %\)$"
result "six digests" "$([ "$(sort -u one.txt | wc -l)" = 6 ] || cat one.txt)"
# --sanitized takes two layouts, and one text once: tests/parallel/test_lora.c has others.
while read -r layout; do
    [[ -z $sanitized || $layout == "--tp 2"* || $layout == *zb-h1* ]] || continue
    # shellcheck disable=SC2086 # flags are words
    run "the same: $layout" "${lora[@]}" $layout
    result "has its digests" "$(digests out | diff one.txt -)"
done <<'END'
--tp 2 --dp 2
--tp 4 --sequence-parallel --micro-batch-size 2
--tp 8 --dp 2 --strategy shard_grad_op --micro-batch-size 1
--dp 4 --strategy zero1 --micro-batch-size 1
--dp 4 --strategy hybrid_shard --shard-group-size 2 --accumulate local
--pp 2 --tp 2 --strategy no_shard --micro-batch-size 2
--pp 2 --dp 2 --pp-schedule zb-h1 --micro-batch-size 1 --recompute block
END
run "an adapter of bf16" "${lora[@]}" --dtype bf16 --save narrow
digests out >bf16.txt
run "on eight ranks" "${lora[@]}" --dtype bf16 --tp 4 --dp 2 --sequence-parallel
result "has its digests" "$(digests out | diff bf16.txt -)"
# Where adapters read what a residual adds, gradients of three and more uses meet.
post=(--arch olmo2 --n-head 2 --n-embd 16 --n-layer 2 --data text.txt --seq-len 8 --global-batch-size 2 --steps 2
    --eval-interval 0 --digest --lora-rank 2)
for adapter in "--lora-targets q" "--lora-targets all-linear --lora-dropout 0.2"; do
    # shellcheck disable=SC2086 # flags are words
    run "adapters of a post-norm model: $adapter" "${post[@]}" $adapter
    digests out >post.txt
    for layout in "--recompute attention" "--recompute block --tp 2" "--dp 2" "--tp 2 --sequence-parallel" \
        "--pp 2 --recompute block --micro-batch-size 1"; do
        # shellcheck disable=SC2086 # flags are words
        run "the same: $layout" "${post[@]}" $adapter $layout
        result "has its digests" "$(digests out | diff post.txt -)"
    done
done
run "one on another scale" "${lora[@]}" --rslora
result "has other digests" "$(digests out | tail -n 5 | comm -12 <(sort one.txt) <(sort -) )"

# Checkpoints have adapters alone, and go on elsewhere.
"$gpt_train" "${lora[@]}" --tp 2 --save stopped --exit-duration-in-mins 0.0000001 >out 2>err
status=$?
result "stopped" "$([ $status = 75 ] || echo "exit status $status"; [ -d stopped/step-00000001 ] || ls stopped)"
run "gone on with on another mesh, without the flags of adapters" "${base[@]}" --save stopped --dp 4 --tp 2
result "ends with the same digest" "$(digests out | tail -n 1 | diff <(tail -n 1 one.txt) -)"
python "no tensor of the base is in it" '
import json
index = json.load(open("whole/step-00000006/index.json"))
names = [t["path"] for t in index["tensors"]]
if len(names) != 28 or not all(".lora_" in name for name in names): print(names)'
cp -r base other
python3 - <<'END'
from pathlib import Path
file = Path("other/model.safetensors")
data = bytearray(file.read_bytes())
data[-2] ^= 16
file.write_bytes(data)
END
refuse "another base" 2 "has adapters of a base with checksum [0-9a-f]{16}, and this one has .* base;" \
    --init-from other "${base[@]:2}" --save whole --steps 8
run "the same base as bf16, whose digest is another, continues" "${base[@]}" --dtype bf16 --resume whole/step-00000006 --steps 7
refuse "another rank than was saved" 2 "--lora-rank 3 \(it has 4\)" "${base[@]}" --lora-rank 3 --save whole

# PEFT's files.
result "adapters for PEFT" "$("$bin/gpt_export" whole peft 2>&1)"
python "as PEFT has them" '
import json, struct
config = json.load(open("peft/adapter_config.json"))
want = {"peft_type": "LORA", "r": 4, "lora_alpha": 12, "use_rslora": False, "base_model_name_or_path": "base",
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
for key, value in want.items():
    if config[key] != value: print(key, config[key])
data = open("peft/adapter_model.safetensors", "rb").read()
head = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
name = "base_model.model.model.layers.1.mlp.down_proj.lora_"
if head[name + "A.weight"]["shape"] != [4, 128] or head[name + "B.weight"]["shape"] != [48, 4] or len(head) != 29:
    print(list(head))'
run "adapters from PEFT" --init-from base --lora-init peft --data text.txt --seq-len 16 --global-batch-size 8 --steps 2 \
    --eval-interval 0 --digest --tp 4 --dp 2 --sequence-parallel --save again
digests out >two.txt
shows "decide the flags" "^adapters: rank 4, alpha 12, on q_proj,k_proj,.*; 6912 of"
run "the same on one rank" --init-from base --lora-init peft --data text.txt --seq-len 16 --global-batch-size 8 --steps 2 \
    --eval-interval 0 --digest
result "has the same digests" "$(digests out | diff two.txt -)"
result "back, from three ranks" "$("$bin/gpt_export" again peft2 --ranks 3 2>&1)"
result "merged" "$("$bin/gpt_export" whole merged --merge 2>&1)"
result "and by three ranks" "$("$bin/gpt_export" whole merged3 --merge --ranks 3 2>&1)"
result "to the same bytes" "$(cmp merged/model.safetensors merged3/model.safetensors 2>&1)"
result "a run of bf16 with its base, which is read as floats" "$("$bin/gpt_export" narrow narrowed --merge 2>&1)"
result "a run of floats with its base stored as bf16" \
    "$("$bin/gpt_eval" perplexity whole --data text.txt --tokenizer bytes --seq-length 16 --dtype bf16 2>&1 >out)"
other "merged with another base" 3 "whole/step-00000006 has adapters of a base with checksum [0-9a-f]{16}, and other has" \
    gpt_export whole strange --merge --base other
result "which are not the base's" "$(cmp -s merged/model.safetensors base/model.safetensors && echo equal)"
for model in whole merged base; do
    "$bin/gpt_eval" perplexity $model --data text.txt --tokenizer bytes --seq-length 16 --json >$model.json 2>err
done
if [ -z "$sanitized" ]; then
    "$bin/gpt_eval" perplexity whole --data text.txt --tokenizer bytes --seq-length 16 --json --tp 4 --dp 2 >split.json 2>err
    result "the adapted one on eight ranks, the same bits" "$(cmp whole.json split.json 2>&1)"
fi
python "the merged model is the adapted one, and better than the base" '
import json
whole, merged, base = (json.load(open(name + ".json"))["nats_per_token"] for name in ("whole", "merged", "base"))
if abs(whole - merged) > 1e-4 or not whole < base - 0.001: print(whole, merged, base)'

# What does not fit.
for change in '"use_dora": true' '"layers_to_transform": 0' '"bias": "all"' '"peft_type": "IA3"' '"rank_pattern": {"q_proj": 2}' '"r": 0' \
    '"target_modules": "q.*"' '"target_modules": []' '"lora_alpha": "much"' '"init_lora_weights": "pissa_niter_4"' \
    '"init_lora_weights": "olora"' '"init_lora_weights": "corda"' '"init_lora_weights": "loftq"' \
    '"init_lora_weights": "lora_ga"' '"init_lora_weights": "new"' '"init_lora_weights": 2' '"novelty": true'; do
    rm -rf broken && cp -r peft broken
    python3 -c 'import json, sys
config = json.load(open("broken/adapter_config.json"))
config.update(json.loads("{" + sys.argv[1] + "}"))
json.dump(config, open("broken/adapter_config.json", "w"))' "$change"
    timeout 20 "$gpt_train" --init-from base --lora-init broken --steps 0 >out 2>err
    got=$?
    result "a folder with $change" "$(grep -q "broken/adapter_config.json" err && { [ $got = 2 ] || [ $got = 3 ]; } ||
        echo "status $got")"
done
for change in '"init_lora_weights": true' '"init_lora_weights": false' '"init_lora_weights": "gaussian"' \
    '"novelty": null, "use_dora": false, "rank_pattern": {}, "loftq_config": {"a": 1}'; do
    rm -rf broken && cp -r peft broken
    python3 -c 'import json, sys
config = json.load(open("broken/adapter_config.json"))
config.update(json.loads("{" + sys.argv[1] + "}"))
json.dump(config, open("broken/adapter_config.json", "w"))' "$change"
    run "a folder with $change" --init-from base --lora-init broken --steps 0
done

# A tied base: one embedding that is trained as the head too, or each apart from the other, as PEFT has it.
tied=(--init-from "$reference/hf_llama_tied" --data text.txt --seq-len 16 --global-batch-size 4 --steps 2 --lr 1e-2
    --eval-interval 0 --digest)
embedding=(--lora-rank 2 --lora-targets q --modules-to-save embed_tokens)
run "an embedding that is the head" "${tied[@]}" "${embedding[@]}" --save one
result "for PEFT" "$("$bin/gpt_export" one one.peft 2>&1)"
run "one that is not" "${tied[@]}" "${embedding[@]}" --tie-embeddings off --save two
digests out >apart.txt
result "for PEFT" "$("$bin/gpt_export" two two.peft 2>&1)"
python "both as PEFT has them" '
import json, struct
for folder, heads in ("one.peft", 1), ("two.peft", 0):
    data = open(folder + "/adapter_model.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    names = json.loads(data[8:8 + size])
    config = json.load(open(folder + "/adapter_config.json"))
    head, table = "base_model.model.lm_head.weight", "base_model.model.model.embed_tokens.weight"
    if (head in names) != heads or table not in names or config["ensure_weight_tying"] != bool(heads) or \
            config["modules_to_save"] != ["embed_tokens"]: print(folder, config, list(names))
    bytes = [data[8 + size + names[n]["data_offsets"][0]:8 + size + names[n]["data_offsets"][1]] for n in (head, table)
             if n in names]
    if bytes[0] != bytes[-1]: print(folder, "head and embedding differ")'
run "from PEFT, as one" "${tied[@]}" --lora-init one.peft
run "from PEFT, untied, without a flag" "${tied[@]}" --lora-init two.peft --save two_again
python "is untied" '
import json
if json.load(open("two_again/step-00000002/index.json"))["options"]["tie_embeddings"] != "\"off\"": print("tied")'
refuse "untied and tied" 2 "--tie-embeddings on contradicts --lora-init two.peft" "${tied[@]}" --lora-init two.peft \
    --tie-embeddings on
result "merged" "$("$bin/gpt_export" two two.merged --merge 2>&1)"
python "has both" '
import json, struct
data = open("two.merged/model.safetensors", "rb").read()
names = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
if "lm_head.weight" not in names or json.load(open("two.merged/config.json"))["tie_word_embeddings"]: print(list(names))'
python "a head that is not the embedding" '
import struct
data = bytearray(open("one.peft/adapter_model.safetensors", "rb").read())
data[-1] ^= 64
open("one.peft/adapter_model.safetensors", "wb").write(data)'
refuse "is not one with it" 3 "tensor .*lm_head.weight. differs from" "${tied[@]}" --lora-init one.peft
rm -rf broken && cp -r peft broken
rm broken/adapter_config.json
cp peft/adapter_config.json broken/
head -c 4000 peft/adapter_model.safetensors >broken/adapter_model.safetensors
refuse "a file that ends" 3 "adapter_model.safetensors" --init-from base --lora-init broken --data text.txt --seq-len 16 --steps 1
rm broken/adapter_model.safetensors
refuse "no file" 3 "adapter_model.safetensors" --init-from base --lora-init broken --data text.txt --seq-len 16 --steps 1
refuse "flags that the folder decides" 2 "--lora-init peft decides --lora-rank" --init-from base --lora-init peft \
    --lora-rank 2 --steps 0
refuse "flags without a rank" 2 "--modules-to-save is of adapters; use it with --lora-rank" "${tiny[@]}" \
    --modules-to-save norm
refuse "a linear that there is not" 2 "no linear of the model is called gait.*q, k, v, out, gate, up, down, head" \
    --init-from base --data text.txt --seq-len 16 --lora-rank 2 --lora-targets q_proj,gait
refuse "a module that there is not" 2 "no parameter of the model is at nose" --init-from base --data text.txt --seq-len 16 \
    --lora-rank 2 --modules-to-save nose
other "a model without adapters" 2 "base has no adapters; drop --merge" gpt_export base nowhere --merge
other "adapters as GGUF" 2 "whole has adapters alone" gpt_export whole --gguf file.gguf --tokenizer none
run "GPT-2" "${tiny[@]}" --lora-rank 2 --save gpt2
other "whose files have one A for three" 2 "qkv.q cannot be stored in PEFT's files: .* several linears in one tensor" \
    gpt_export gpt2 nowhere
run "without those" "${tiny[@]}" --lora-rank 2 --lora-targets c_fc,attn.c_proj --save gpt2b
result "is written" "$("$bin/gpt_export" gpt2b peftb 2>&1)"

# Experts of a mixture, over ranks that split them, above 4 bits, and in PEFT's files.
experts() {
    run "a mixture" --arch mixtral --n-layer 2 --n-head 4 --n-kv-head 2 --n-embd 32 --ffn 64 --n-expert 4 --moe-top-k 2 --data text.txt \
        --seq-len 16 --global-batch-size 8 --steps 2 --eval-interval 0 --save mixed
    result "as a folder" "$("$bin/gpt_export" mixed mixture 2>&1)"
    local on=(--init-from mixture --data text.txt --seq-len 16 --global-batch-size 8 --steps 3 --lr 1e-2 --eval-interval 0 --digest)
    local adapted=("${on[@]}" --lora-rank 3 --lora-alpha 12 --lora-targets "q,experts")
    run "adapters of experts" "${adapted[@]}" --save expert
    digests out >experts.txt
    shows "who they are" "^adapters: rank 3, alpha 12, on q,experts; 6528 of 78624 parameters"
    run "on ranks that split them" "${adapted[@]}" --tp 2 --dp 2 --ep 4 --micro-batch-size 2
    result "has their digests" "$(digests out | diff experts.txt -)"
    plan_is_run "of adapters of experts" "${adapted[@]}" --base-dtype nf4 --dp 4 --ep 2 --strategy zero1
    result "for PEFT" "$("$bin/gpt_export" expert experts.peft 2>&1)"
    python "as PEFT has them" '
import json, struct
config = json.load(open("experts.peft/adapter_config.json"))
if config["target_parameters"] != ["experts.down_proj", "experts.gate_up_proj"] or config["target_modules"] != ["q_proj"]: print(config)
data = open("experts.peft/adapter_model.safetensors", "rb").read()
head = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
name = "base_model.model.model.layers.1.mlp.experts."
want = {"base_layer.lora_A": [12, 32], "base_layer.lora_B": [128, 12], "lora_A": [12, 64], "lora_B": [32, 12]}
for key, shape in want.items():
    if head[name + key + ".weight"]["shape"] != shape: print(key, head[name + key + ".weight"])'
    run "from PEFT" "${on[@]}" --lora-init experts.peft
    digests out >experts.txt
    run "from PEFT, on ranks that split them" "${on[@]}" --lora-init experts.peft --dp 4 --ep 4 --strategy zero1
    result "has their digests" "$(digests out | diff experts.txt -)"
    result "merged" "$("$bin/gpt_export" expert experts.merged --merge --ranks 3 2>&1)"
    for model in expert experts.merged mixture; do
        "$bin/gpt_eval" perplexity $model --data text.txt --tokenizer bytes --seq-length 16 --json >$model.json 2>err
    done
    python "the merged mixture is the adapted one, and better than the base" '
import json
whole, merged, base = (json.load(open(name + ".json"))["nats_per_token"] for name in ("expert", "experts.merged", "mixture"))
if abs(whole - merged) > 1e-5 or not whole < base - 0.001: print(whole, merged, base)'
    result "as GGUF" "$("$bin/gpt_export" experts.merged --gguf experts.gguf --tokenizer none 2>&1)"
    result "and back" "$("$bin/gpt_export" experts.gguf experts.back --tokenizer none 2>&1)"
    result "to the same bytes" "$(cmp experts.merged/model.safetensors experts.back/model.safetensors 2>&1)"
    refuse "a dropout of experts" 2 "a dropout of 0\.1 of adapters, and those of experts have none" "${adapted[@]}" --lora-dropout 0.1
    refuse "experts and their adapters" 2 "experts with adapters are frozen" "${adapted[@]}" --modules-to-save "block.*.moe.up"
    refuse "experts of no mixture" 2 "the model has no mixture of them" "${base[@]}" --lora-rank 2 --lora-targets experts
    sed -i 's/"experts.down_proj",//' experts.peft/adapter_config.json
    refuse "one of an expert's parameters" 2 "has experts.gate_up_proj alone" "${on[@]}" --lora-init experts.peft
}
[ -n "$sanitized" ] || experts

# Experts of a Llama 4 lie as [in, out], which PEFT takes for [out, in]: its B A is the matrix as it lies, so our B is its A.
llama4() {
    local on=(--init-from "$reference/hf_llama4" --data text.txt --seq-len 16 --global-batch-size 8 --steps 3 --lr 1e-2 --eval-interval 0 --digest)
    run "adapters of a Llama 4's experts" "${on[@]}" --lora-rank 3 --lora-alpha 12 --lora-targets "q,experts" --save four
    result "for PEFT" "$("$bin/gpt_export" four four.peft 2>&1)"
    result "merged" "$("$bin/gpt_export" four four.merged --merge --dtype f32 2>&1)"
    python "PEFT's sums of them are what is merged" '
import array, json, struct
def tensors(folder, name):
    data = open(f"{folder}/{name}.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    def read(key):
        t = json.loads(data[8:8 + n])[key]
        raw = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
        if t["dtype"] == "BF16": raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
        return t["shape"], array.array("f", raw)
    return read
base, merged, peft = tensors("'"$reference"'/hf_llama4", "model"), tensors("four.merged", "model"), tensors("four.peft", "adapter_model")
own = "model.layers.1.feed_forward.experts."
most = 0
for matrix, below in (("gate_up_proj", "base_layer."), ("down_proj", "")):
    ((experts, rows, columns), w), m = base(own + matrix), merged(own + matrix)[1]
    (ar, ac), a = peft("base_model.model." + own + below + "lora_A.weight")
    (br, bc), b = peft("base_model.model." + own + below + "lora_B.weight")
    if (ar, ac, br, bc) != (3 * experts, columns, rows, 3 * experts): print(matrix, ar, ac, br, bc)
    for e in range(experts):
        for o in range(rows):
            for i in range(columns):
                delta = 4 * sum(b[o * bc + r * experts + e] * a[(e * 3 + r) * ac + i] for r in range(3))
                at, most = (e * rows + o) * columns + i, max(most, abs(delta))
                if abs(m[at] - w[at] - delta) > 1e-6: print(matrix, e, o, i); break
if most < 1e-3: print("adapters of nothing", most)'
    run "from PEFT, where nothing moves" "${on[@]}" --steps 1 --lr 1e-30 --min-lr 1e-30 --lora-init four.peft --save four.still
    for model in four four.still; do
        "$bin/gpt_eval" perplexity $model --data text.txt --tokenizer bytes --seq-length 16 --json >$model.json 2>err
    done
    python "it is what was saved" '
import json
saved, read = (json.load(open(name + ".json"))["nats_per_token"] for name in ("four", "four.still"))
if saved != read: print(saved, read)'
    run "from PEFT" "${on[@]}" --lora-init four.peft
    digests out >four.txt
    for layout in "--tp 2 --dp 2 --ep 4 --micro-batch-size 2" "--tp 4 --etp 4"; do
        # shellcheck disable=SC2086
        run "from PEFT, $layout" "${on[@]}" --lora-init four.peft $layout
        result "has their digests" "$(digests out | diff four.txt -)"
    done
}
[ -n "$sanitized" ] || llama4

# Plans know it: 16 bytes a parameter of a whole model in bf16, 2 of one that is frozen, 1/64 of it trained.
plan() { "$gpt_train" --plan --json "$1" "${@:2}" >out 2>err; }
big=(--arch llama --n-layer 2 --n-head 8 --n-embd 1024 --ffn 1024 --vocab-size 256 --seq-len 16 --global-batch-size 4
    --dtype bf16 --micro-batch-size 1)
result "a plan of all" "$(plan full.json "${big[@]}" --reduce-dtype bf16 --global-batch-size 1 || cat err)"
result "a plan of adapters" "$(plan lora.json "${big[@]}" --lora-rank 8 --lora-targets all-linear || cat err)"
shows "shows its parts" "^  trained +229376 +229376 " "^    of them adapters +229376 " "^  frozen +15" "^  frozen parameters +" \
    "^  trained of all +1\.[0-9]* %" "frozen \+ .* gradients"
result "a plan of them on four" "$(plan four.json "${big[@]}" --lora-rank 8 --lora-targets all-linear --dp 4 || cat err)"
python "the known sums" '
import json
full, lora, four = (json.load(open(name + ".json")) for name in ("full", "lora", "four"))
def close(what, x, low, high):
    if not low <= x <= high: print(what, x)
count = full["parameters"]["trained"]["count"]
most = full["memory"]["most"]
close("bytes of all", (most["parameters"] + most["optimizer_state"] + 2 * count) / count, 15.99, 16.05)
part = lora["parameters"]
close("1/64 trained", part["adapters"]["count"] / (2 * 7 * 1024 * 1024), 1 / 64, 1 / 64)
close("trained is adapters", part["trained"]["count"], part["adapters"]["count"], part["adapters"]["count"])
frozen = part["frozen"]["count"]
close("bytes of what is frozen", lora["memory"]["most"]["frozen_parameters"] / frozen, 2, 2.01)
close("on four ranks", 4 * four["memory"]["most"]["frozen_parameters"] / frozen, 2, 2.01)
state = lora["memory"]["most"]["optimizer_state"] + lora["memory"]["most"]["parameters"]
close("master, moments and copy", state / part["trained"]["count"], 13.9, 14.1)
close("bytes of linears", 2 + state / (2 * 7 * 1024 * 1024), 2.21, 2.23)'
plan_is_run "on rank 3" "${lora[@]}" --dtype bf16 --tp 2 --dp 2 --rank 3
finish
