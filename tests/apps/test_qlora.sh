#!/bin/bash
# test_qlora.sh GPT_TRAIN - adapters on a base of 4 bits as a user meets them: one digest on layouts and after stops,
# folders of bitsandbytes out and in, merging, running, plans, and what does not fit.
#
# ctest: arguments gpt_train sanitized, builds plain, cost 50
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# A base; the same in 4 bits, and what that stands for.
a_base --ffn 131
result "in 4 bits" "$("$bin/gpt_export" base base4 --dtype nf4 2>&1)"
result "and back as floats" "$("$bin/gpt_export" base4 wide 2>&1)"
python "as bitsandbytes has it" '
import json, struct
def head(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]
entry, data = head("base4")
name = "model.layers.1.mlp.down_proj.weight"
shapes = {"": [3144, 1], ".absmax": [99], ".nested_absmax": [1], ".nested_quant_map": [256], ".quant_map": [16]}
for end, shape in shapes.items():
    if entry[name + end]["shape"] != shape: print(end, entry[name + end])
begin, end = entry[name + ".quant_state.bitsandbytes__nf4"]["data_offsets"]
state = json.loads(data[begin:end])
if state["quant_type"] != "nf4" or state["shape"] != [48, 131] or state["blocksize"] != 64: print(state)
config = json.load(open("base4/config.json"))["quantization_config"]
if not config["load_in_4bit"] or config["quant_method"] != "bitsandbytes": print(config)
if "quantization_config" in json.load(open("wide/config.json")): print("floats are said to be of 4 bits")
if entry["lm_head.weight"]["dtype"] != "F32" or len(entry) != 2 * 7 * 6 + 7 + 1: print(sorted(entry))'

rest=(--data text.txt --seq-len 16 --global-batch-size 8 --steps 6 --lr 1e-2 --eval-interval 0 --digest)
lora=(--lora-rank 4 --lora-alpha 12 --lora-targets all-linear)
digests() { sed -n 's/^\(step [0-9]*\)\/.*  loss \([0-9.]*\) .*digest \(.*\)$/\1 \2 \3/p' "$1"; }
run "on one rank" --init-from base "${rest[@]}" "${lora[@]}" --base-dtype nf4 --save whole
digests out >one.txt
result "six digests" "$([ "$(sort -u one.txt | wc -l)" = 6 ] || cat one.txt)"
while read -r layout; do
    # shellcheck disable=SC2086 # flags are words
    run "the same: $layout" "${rest[@]}" "${lora[@]}" --base-dtype nf4 $layout
    result "has its digests" "$(digests out | diff one.txt -)"
done <<'END'
--init-from base --tp 2 --dp 2
--init-from base --tp 8 --dp 2 --strategy shard_grad_op --micro-batch-size 1
--init-from base --pp 2 --tp 2 --dp 2 --strategy hybrid_shard --shard-group-size 2 --micro-batch-size 1
--init-from base4
--init-from base4 --tp 4 --dp 2 --sequence-parallel --recompute block
--init-from base4 --dp 4 --strategy zero1 --micro-batch-size 1
END
run "on the numbers that it represents" --init-from wide "${rest[@]}" "${lora[@]}"
result "has its digests" "$(digests out | diff one.txt -)"
run "a folder of 4 bits, read as floats" --init-from base4 "${rest[@]}" "${lora[@]}" --tp 2
result "has its digests" "$(digests out | diff one.txt -)"
run "on the numbers in bf16" --init-from wide "${rest[@]}" "${lora[@]}" --dtype bf16
digests out >bf16.txt
run "4 bits that represent bf16" --init-from base4 "${rest[@]}" "${lora[@]}" --dtype bf16 --base-dtype nf4 --tp 4 --dp 2
result "have their digests" "$(digests out | diff bf16.txt -)"
run "another base" --init-from base "${rest[@]}" "${lora[@]}"
result "has other digests" "$(digests out | comm -12 <(sort one.txt) <(sort -))"

# Checkpoints know the base in 4 bits, and go on elsewhere.
"$gpt_train" --init-from base "${rest[@]}" "${lora[@]}" --base-dtype nf4 --tp 2 --save stopped \
    --exit-duration-in-mins 0.0000001 >out 2>err
status=$?
result "stopped" "$([ $status = 75 ] || echo "exit status $status")"
run "gone on with on another mesh" --init-from base4 "${rest[@]}" --base-dtype nf4 --save stopped --dp 4 --tp 2
result "ends with the same digest" "$(digests out | tail -n 1 | diff <(tail -n 1 one.txt) -)"
result "merged" "$("$bin/gpt_export" whole merged --merge 2>&1)"
result "and by three ranks" "$("$bin/gpt_export" whole merged3 --merge --ranks 3 2>&1)"
result "to the same bytes" "$(cmp merged/model.safetensors merged3/model.safetensors 2>&1)"
result "and on the base in 4 bits" "$("$bin/gpt_export" whole merged4 --merge --base base4 2>&1)"
result "to the same bytes" "$(cmp merged/model.safetensors merged4/model.safetensors 2>&1)"
ppl=(perplexity --data text.txt --tokenizer bytes --seq-length 16 --json)
for model in whole merged wide; do
    "$bin/gpt_eval" "${ppl[@]:0:1}" $model "${ppl[@]:1}" >$model.json 2>err || cat err
done
"$bin/gpt_eval" perplexity whole "${ppl[@]:1}" --tp 4 --dp 2 >split.json 2>err
result "run on eight ranks, the same bits" "$(cmp whole.json split.json 2>&1)"
result "its base as floats, which are other numbers" \
    "$("$bin/gpt_eval" perplexity whole "${ppl[@]:1}" --base-dtype same 2>&1 >out)"
"$bin/gpt_eval" perplexity base "${ppl[@]:1}" --base-dtype nf4 --tp 2 >base4.json 2>err
python "the merged model is the adapted one, and a base in 4 bits is its numbers" '
import json
nats = {name: json.load(open(name + ".json"))["nats_per_token"] for name in ("whole", "merged", "wide", "base4")}
if abs(nats["whole"] - nats["merged"]) > 1e-4 or nats["wide"] != nats["base4"]: print(nats)
if not nats["whole"] < nats["wide"] - 0.001: print(nats)'

# Plans know it.
plan() { "$gpt_train" --plan --json "$1" "${@:2}" >out 2>err; }
big=(--arch llama --n-layer 2 --n-head 8 --n-embd 1024 --ffn 1024 --vocab-size 256 --seq-len 16 --global-batch-size 4
    --dtype bf16 --micro-batch-size 1 "${lora[@]}" --base-dtype nf4)
result "a plan" "$(plan one.json "${big[@]}" || cat err)"
result "and on eight ranks" "$(plan eight.json "${big[@]}" --tp 2 --dp 4 || cat err)"
python "about half a byte a parameter, of which as much is gathered" '
import json
one, eight = (json.load(open(name + ".json")) for name in ("one", "eight"))
linears, other = 2 * 7 * 1024 * 1024, (256 + 256 + 5) * 1024
for ranks, report in ((1, one), (8, eight)):
    bytes = ranks * report["memory"]["most"]["frozen_parameters"]
    if not 0.51 < (bytes - 2 * other) / linears < 0.53: print(ranks, bytes, linears)'
plan_is_run "on rank 3" --init-from base4 "${rest[@]}" "${lora[@]}" --base-dtype nf4 --dtype bf16 --tp 2 --dp 2 --rank 3

# What does not fit.
refuse "4 bits without adapters" 2 "--base-dtype is of adapters; use it with --lora-rank" "${tiny[@]}" --base-dtype nf4
other "a checkpoint of a whole model in 4 bits" 2 "based is a checkpoint of a whole model" gpt_eval perplexity based \
    "${ppl[@]:1}" --base-dtype nf4
other "a checkpoint as a folder of 4 bits" 2 "nf4 is of folders" gpt_export based nowhere --dtype nf4
# A change of a tensor beside a matrix, by its name and what becomes of its bytes.
broken() {
    rm -rf broken && cp -r base4 broken
    python3 - "$@" <<'END'
import json, struct, sys
path, (end, what) = "broken/model.safetensors", sys.argv[1:]
data = bytearray(open(path, "rb").read())
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
name = "model.layers.0.self_attn.q_proj.weight" + end
begin, end = (8 + n + at for at in head[name]["data_offsets"])
if what == "rename":
    text = json.dumps(head).replace(json.dumps(name), json.dumps(name[:-1] + "y")).encode()
    data = struct.pack("<Q", len(text)) + text + data[8 + n:]
elif what == "flip":
    data[begin + 9] ^= 64
else:
    old, new = what.split("=")
    part = bytes(data[begin:end]).decode().replace(old, new).rstrip().ljust(end - begin)
    data[begin:end] = part.encode()
open(path, "wb").write(data)
END
}
while read -r end what why; do
    broken "$end" "$what"
    refuse "$end, $what" 3 "$why" --init-from broken "${rest[@]}" "${lora[@]}" --base-dtype nf4
done <<'END'
.absmax rename needs "model.layers.0.self_attn.q_proj.weight.absmax" beside it, .* it is missing
.nested_absmax rename nested_absmax" beside it
.quant_map flip the levels of ".*quant_map" are not those of NF4
.nested_quant_map flip the levels of ".*nested_quant_map" are not those of NF4
.quant_state.bitsandbytes__nf4 rename needs ".*quant_state.bitsandbytes__nf4" beside it
.quant_state.bitsandbytes__nf4 48=49 matrix of another shape
.quant_state.bitsandbytes__nf4 {=[ bitsandbytes__nf4
END
# A linear that the folder has left as floats stays one, or is refused.
rm -rf mixed && cp -r base4 mixed
python3 - <<'END'
import json, struct
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: (v, data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()
            if k != "__metadata__"}
name = "model.layers.0.self_attn.q_proj.weight"
tensors = {k: v for k, v in read("mixed/model.safetensors").items() if k != name and not k.startswith(name + ".")}
tensors[name] = read("base/model.safetensors")[name]
head, body = {}, b""
for key, (entry, part) in sorted(tensors.items()):
    head[key] = dict(entry, data_offsets=[len(body), len(body) + len(part)])
    body += part
text = json.dumps(head).encode()
open("mixed/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
END
refuse "a linear that is left as floats" 2 "q_proj.weight\" is left as floats beside matrices of 4 bits" \
    --init-from mixed "${rest[@]}" "${lora[@]}" --base-dtype nf4
run "with a base of floats" --init-from mixed "${rest[@]}" "${lora[@]}"
broken .quant_state.bitsandbytes__nf4 '"blocksize": 64="blocksize": 32'
refuse "blocks of another size" 2 "has blocks of 32 numbers" --init-from broken "${rest[@]}" "${lora[@]}" --base-dtype nf4 --tp 2
finish
