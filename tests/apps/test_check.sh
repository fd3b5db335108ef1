#!/bin/bash
# test_check.sh GPT_CHECK REFERENCE - gpt_check on gradients of transformers (tests/reference/make_check.py), as they are and with
# faults put in: each is named, with its cause; and input that is none is refused by name. scripts/peers/check.py has more of them.
#
# ctest: arguments gpt_check tests/reference, timeout 120, builds plain
set -uo pipefail

export program=$1
reference=$2
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/apps/tool_cases.sh
. "$(dirname "$0")/tool_cases.sh"
model=$reference/hf_qwen3
dump=$reference/check_qwen3.safetensors
batch=$reference/check_batch.safetensors

# changed OUT IN CODE: see check_dump.py.
changed()
{
    python3 "$here/check_dump.py" "$2" "$1" "$3" || result "a file with a fault" "check_dump.py fails"
}

# check NAME STATUS DUMP FLAG...
check()
{
    local called=$1 status=$2 file=$3
    shift 3
    tool "$called" "$status" "$model" --batch "$batch" --gradients "$file" --threads 1 "$@"
}

# fault NAME ID CAUSE CODE FLAG...: put into the dump, it is found, and nothing else is.
fault()
{
    local called=$1 id=$2 cause=$3 code=$4
    shift 4
    changed fault.safetensors "$dump" "$code"
    check "$called" 1 fault.safetensors --json "$@"
    result "$called is named" "$(python3 - "$id" "$cause" <<'END'
import json, re, sys
found = json.load(open("out"))["findings"]
if [f["id"] for f in found] != [sys.argv[1]] or not re.search(sys.argv[2], found[0]["cause"] + found[0]["what"]):
    print(found)
END
)"
}

check "a right dump" 0 "$dump"
says out '^loss: .* equal$' '^losses of tokens: equal$' '^24 of 24 gradients are equal' '^EQUAL$'
check "all of it" 0 "$dump" --all
says out '^model\.layers\.1\.self_attn\.q_norm\.weight .* equal$'
model=$reference/hf_gpt2 check "a right dump of another family" 0 "$reference/check_gpt2.safetensors"
says out '^28 of 28 gradients are equal'
model=$reference/hf_mixtral check "a mixture" 0 "$reference/check_mixtral.safetensors"
says out '^40 of 40 gradients are equal'
changed half.safetensors "$reference/check_mixtral.safetensors" 'for x in some(".experts.2.", ".experts.3."): x.scale(0)'
model=$reference/hf_mixtral check "experts of one rank" 1 half.safetensors
says out 'no gradient arrives at these experts' 'block_sparse_moe\.experts\.\*\.w1\.weight \(4\)'
changed half.safetensors "$reference/check_mixtral.safetensors" 'for x in some(".experts."): x.scale(2)'
model=$reference/hf_mixtral check "experts over another group" 1 half.safetensors
says out 'tokens of all ranks of their expert-parallel group'

# A mixture in bf16, in which a token goes to another expert than in fp32: with the choices of its routers, and without.
routed=$reference/check_mixtral_routed.safetensors
# mixture NAME STATUS BATCH FLAG...
mixture()
{
    local called=$1 status=$2 file=$3
    shift 3
    tool "$called" "$status" "$reference/hf_mixtral" --batch "$file" --threads 1 "$@"
}
bf16=(--gradients "$reference/check_mixtral_bf16.safetensors" --precision bf16)
mixture "a mixture in bf16 with its choices" 0 "$routed" "${bf16[@]}"
says out '^choices of experts: 1 of 152 differ, .* rounding$' '^40 of 40 gradients are equal'
mixture "without them" 1 "$batch" "${bf16[@]}"
says out 'a token may go to another expert .*routed_experts'
changed half.safetensors "$reference/check_mixtral_bf16.safetensors" 'for x in some(".gate.weight"): x.scale(0.5)'
mixture "routers reduced as experts are, in bf16" 1 "$routed" --gradients half.safetensors --precision bf16
says out 'routers are whole on every rank, and are reduced as experts are'
other='x = t["routed_experts"].numbers
for i in range(0, 160, 4): x[i:i + 2] = array.array("i", sorted({0, 1, 2, 3} - set(x[i:i + 2])))'
changed others.safetensors "$routed" "$other"
mixture "gradients of other choices" 0 others.safetensors --write others.gradients
mixture "experts that are not those of greatest scores" 1 others.safetensors --gradients others.gradients
says out '^choices of experts: [0-9]+ of 152 differ, .* DIFFERENT$' '[0-9]+ of 152 choices .* at first in mixture 0: of sequence' \
    'a bias, noise, groups of experts, a capacity' '^40 of 40 gradients are equal' '^DIFFERENT$'
changed bad.safetensors "$routed" 't["routed_experts"].numbers[43] = 4'
mixture "an expert that there is not" 2 bad.safetensors "${bf16[@]}"
says err 'routed_experts\[0, 10, 1, \.\.\] has 4: a token.s experts are 2 different ones of 4'
changed bad.safetensors "$routed" 'x = t["routed_experts"].numbers; x[40] = x[41]'
mixture "an expert twice" 2 bad.safetensors "${bf16[@]}"
says err 'routed_experts\[0, 10, 0, \.\.\] has [0-3] twice'
changed bad.safetensors "$routed" 't["routed_experts"].shape[2:] = [4, 1]'
mixture "choices of another shape" 2 bad.safetensors "${bf16[@]}"
says err 'is \[4, 20, 4, 1\], and has to be \[4, 20, 2, 2\]'
tool "choices of a model without a mixture" 2 "$model" --batch "$routed" --gradients "$dump"
says err 'the model has no mixture of experts'
changed half.safetensors "$reference/check_mixtral.safetensors" 'a, b = some("0.block_sparse_moe.experts.1.w2", "0.block_sparse_moe.experts.3.w2"); a.numbers, b.numbers = b.numbers, a.numbers'
model=$reference/hf_mixtral check "experts in another order" 1 half.safetensors
says out 'is that of model\.layers\.0\.block_sparse_moe\.experts\.3\.w2\.weight'
changed half.safetensors "$reference/check_mixtral.safetensors" '
for x in some("1.block_sparse_moe.experts.0.w1"): x.numbers = array.array("f", (v * (1 + 0.3 * (-1) ** (i * i // 7)) for i, v in enumerate(x.numbers)))'
model=$reference/hf_mixtral check "a mixture under autocast" 1 half.safetensors --precision bf16
says out 'give the batch the routers. choices'
mkdir -p folder
changed folder/a.safetensors "$dump" 'for n in list(t)[::2]: del t[n]'
changed folder/b.safetensors "$dump" 'for n in list(t)[1::2]: del t[n]'
check "in several files" 0 folder

fault "twice" factor '2 = dp.*summed|summed' 'for x in some(""): x.scale(2)' --dp 2
says out '2 = dp'
fault "a quarter" factor 'once too often' 'for x in some(""): x.scale(0.25)' --micro-batches 4
fault "norms counted by each rank" factor 'each has all of it' 'for x in some("norm"): x.scale(4)' --tp 4
fault "one rank's rows" rows 'share is missing' 'for x in some("1.self_attn.q_proj"): x.scale(0, range(30, 60))'
fault "one rank's columns" columns 'share of the columns' 'for x in some("0.mlp.down_proj"): x.scale(0, None, range(28))'
fault "gate and up" exchanged 'exchanged' 'a, b = some("0.mlp.gate", "0.mlp.up"); a.numbers, b.numbers = b.numbers, a.numbers'
fault "another rotary order" rows-moved 'rotary' '
for x in some("q_proj"):
    r = x.rows(); x.set_rows(r[h + j // 2 + 5 * (j % 2)] for h in range(0, 60, 10) for j in range(10))'
fault "blocks of rows" rows-moved 'blocks of 14 rows' '
for x in some("1.mlp.up"):
    r = x.rows(); x.set_rows(r[:14] + r[28:42] + r[14:28] + r[42:])'
fault "no gradient" zero 'no gradient' 'for x in some("1.mlp"): x.scale(0)'
fault "not finite" not-finite 'overflow' 'some("0.mlp.up")[0].numbers[5] = float("nan")'
fault "clipped" clip 'clipped to a norm of 1' '
norm = sum(v * v for x in some("") for v in x.numbers) ** 0.5
for x in some(""): x.scale(1 / norm)'
fault "plus decay" decayed 'weight decay' '
w = read("'"$model"'/model.safetensors")
for n in w:
    if len(w[n].shape) > 1 and n in t:
        for i, v in enumerate(w[n].numbers): t[n].numbers[i] += 0.1 * v'

fault "small and wrong" unknown 'no multiple' '
for x in some("0.mlp.up"): x.numbers = array.array("f", (1e-3 * v * (1 + 0.05 * (-1) ** i) for i, v in enumerate(x.numbers)))'
changed fault.safetensors "$dump" 'some("0.mlp.up")[0].scale(2); some("1.mlp.up")[0].scale(3)'
check "two factors" 1 fault.safetensors
says out 'is 2 times Weft' 'is 3 times Weft'

# Faults of a batch, by gradients that Weft itself has written of another one.
changed half.safetensors "$batch" 'x = t["labels"]; x.numbers = array.array("i", [-100] * 40) + x.numbers[40:]'
changed other.safetensors "$batch" 'x = t["labels"]; x.numbers = x.numbers[:40] + array.array("i", [-100] * 40)'
for file in half other; do
    tool "gradients of $file" 0 "$model" --batch $file.safetensors --write $file.gradients --threads 1
done
check "one rank's sequences" 1 half.gradients
says out 'sequences weigh 0, 0, ' '2 of 4 sequences do not count' 'of rank or micro-batch 1 of 2 alone'
changed means.safetensors half.gradients '
o = read("other.gradients"); del t["loss"], t["token_losses"]
for n in t: t[n].numbers = array.array("f", ((a + b) / 2 for a, b in zip(t[n].numbers, o[n].numbers)))'
check "a mean of means" 1 means.safetensors
says out 'a mean of 2 means'
changed part.safetensors "$batch" 'x = t["labels"]; x.numbers = array.array("i", [-100] * 15) + x.numbers[15:]'
tool "gradients of a part" 0 "$model" --batch part.safetensors --write part.gradients --threads 1
changed mean.safetensors part.gradients '
l, c = t["token_losses"].numbers, [x != -100 for x in read("part.safetensors")["labels"].numbers]
rows = [(sum(l[i:i + 40]), sum(c[i:i + 40])) for i in (0, 40)]
t["loss"].numbers[0] = sum(a / b for a, b in rows) / 2'
tool "a loss that is a mean of means" 1 "$model" --batch part.safetensors --gradients mean.safetensors --threads 1
says out 'it is a mean of 2 means over the tokens'
changed all.safetensors "$batch" 'del t["labels"]'
tool "gradients without a mask" 0 "$model" --batch all.safetensors --write all.gradients --threads 1
check "the mask is ignored" 1 all.gradients
says out 'the loss mask does not reach the loss' 'losses of tokens: [0-9]+ DIFFER'
changed packed.safetensors "$batch" 't["documents"] = Tensor("I32", [4, 20], array.array("i", ([0] * 8 + [1] * 12) * 4))'
tool "the documents are ignored" 1 "$model" --batch packed.safetensors --gradients "$dump" --threads 1
says out 'documents before theirs'

# Updates, of a first step.
update='
w = read("'"$model"'/model.safetensors")
for n in ("loss", "token_losses"): del t[n]
for n in t:
    for i, v in enumerate(w[n].numbers):
        g = t[n].numbers[i]
        t[n].numbers[i] = v - 1e-3 * (g / (abs(g) + EPS) + (DECAY if len(t[n].shape) > 1 or ALL else 0) * v)'
changed updated.safetensors "$dump" "EPS, DECAY, ALL = 1e-8, 0.1, False$update"
check "a right update" 0 "$dump" --updated updated.safetensors --lr 1e-3 --weight-decay 0.1
changed updated.safetensors "$dump" "EPS, DECAY, ALL = 1e-8, 0.1, True$update"
check "norms decay" 1 "$dump" --updated updated.safetensors --lr 1e-3 --weight-decay 0.1
says out 'weight decay is applied where none belongs' 'where: .*norm'
changed updated.safetensors "$dump" "EPS, DECAY, ALL = 1e-5, 0.1, False$update"
check "another epsilon" 1 "$dump" --updated updated.safetensors --lr 1e-3 --weight-decay 0.1
says out 'epsilon is 1e-05|epsilon is 1e-5'
changed updated.safetensors "$dump" "EPS, DECAY, ALL = 1e-6, 0.1, False$update"
check "an epsilon of another framework" 1 "$dump" --updated updated.safetensors --lr 1e-3 --weight-decay 0.1
says out 'epsilon is 1e-0?6'
changed updated.safetensors "$dump" "EPS, DECAY, ALL = 1e-8, 0, False${update/'g = t[n].numbers[i]'/'g = t[n].numbers[i] + (0.1 * v if len(t[n].shape) > 1 else 0)'}"
check "decay through the moments" 1 "$dump" --updated updated.safetensors --lr 1e-3 --weight-decay 0.1
says out 'weight decay goes through the moments'
changed updated.safetensors "$dump" "${update%%    for i, v*}    t[n].numbers = w[n].numbers"
check "no update" 1 "$dump" --updated updated.safetensors --lr 1e-3 --weight-decay 0.1
says out 'the weights have not changed'
changed updated.safetensors "$dump" "EPS, DECAY, ALL = 1e-5, 0.1, False$update"
check "another rate" 1 "$dump" --updated updated.safetensors --lr 2e-3 --weight-decay 0.1 --eps 1e-5
says out 'the update is 0.5 times'

# What is no input.
changed bad.safetensors "$dump" 'del t["model.norm.weight"]'
check "a name is missing" 2 bad.safetensors
says err '"model\.norm\.weight": --partial'
check "what is missing is left out" 0 bad.safetensors --partial
says out '1 are missing'
changed bad.safetensors "$dump" 't["model.layers.7.mlp.up_proj.weight"] = t["model.norm.weight"]'
check "a name is unknown" 2 bad.safetensors
says err '"model\.layers\.7\.mlp\.up_proj\.weight" is no parameter of the model'
changed bad.safetensors "$dump" 'x = t["model.layers.0.mlp.up_proj.weight"]; x.transpose(); x.shape.reverse()'
check "a shape is another" 2 bad.safetensors
says err 'is \[40, 56\], and the model.s is \[56, 40\]: it is transposed'
printf 'PK\003\004 and so on, as torch.save writes it' >bad.pt
check "a pickle" 2 bad.pt
says err 'pickle.*weft_hooks.convert'
changed ids.safetensors "$batch" 't["input_ids"].numbers[21] = 256'
tool "a token that is none" 2 "$model" --batch ids.safetensors --gradients "$dump"
says err 'input_ids\[1, 1\] is 256, and the model has 256 tokens'
tool "no batch" 2 "$model" --gradients "$dump"
says err 'give --batch FILE'
tool "nothing to compare" 2 "$model" --batch "$batch"
says err 'give --gradients DUMP'
check "a precision that is none" 2 "$dump" --precision fp8
says err 'none of fp32, bf16 and fp16'
check "no such file" 3 nowhere.safetensors
says err 'nowhere\.safetensors: No such file'
check "an update without its rate" 2 "$dump" --updated "$dump"
says err '--updated needs'

finish
