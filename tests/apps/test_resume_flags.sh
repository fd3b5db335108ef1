#!/bin/bash
# test_resume_flags.sh GPT_TRAIN - flags beside those of a checkpoint: of one that is older than a flag, whose default it had, and
# of one whose flags are written in another way.
#
# ctest: arguments gpt_train, cost 20, builds plain
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

llama=(--data text.txt --n-layer 2 --n-head 4 --n-embd 32 --seq-len 16 --global-batch-size 4 --eval-interval 0 --digest)
digest() { sed -n 's/.*digest \(.*\)$/\1/p' out | tail -n 1; }

# older NAME KEY: a copy, old, of the checkpoint NAME without the flag KEY.
older()
{
    rm -rf old
    mkdir old
    cp -r "$1"/step-* old/step
    change old/step/index.json "o['options'].pop('$2')"
}

run "a model" "${llama[@]}" --arch llama --steps 1 --save dense
run "a mixture" "${llama[@]}" --arch llama --n-expert 4 --steps 1 --save mixture
run "a model of windows" "${llama[@]}" --arch llama --sliding-window 4 --steps 1 --save windows
run "adapters" "${llama[@]}" --arch llama --lora-rank 2 --steps 1 --save adapters
while read -r from flag value was; do
    key=${flag#--}
    older "$from" "${key//-/_}"
    refuse "$flag $value of an older checkpoint" 2 "is of another model: $flag $value \(it has $was\)" "${llama[@]}" \
        "$flag" "$value" --steps 2 --resume old/step
    ends=("${llama[@]}" --steps 2 --resume old/step)
    run "$flag as it was" "${ends[@]}" "$flag" "$was"
    digest >with.txt
    run "and left out" "${ends[@]}"
    result "is the same" "$(digest | diff with.txt -)"
done <<'END'
dense --qk-l2-norm on off
dense --qk-norm on off
dense --rope-skip 2 0
dense --rope-base 20000 10000
dense --rope-scaling linear:2 none
dense --residual-scale 0.5 0
dense --rotary-percent 0.5 1
dense --score-cap 30 0
dense --label-smoothing 0.1 0
dense --optimizer sgd adamw
mixture --moe-top-k 1 2
mixture --moe-router sigmoid softmax
mixture --moe-balance sequence none
mixture --moe-z-weight 0.001 0
mixture --moe-dense 0 none
windows --window-chunks on off
windows --window-blocks 0 all
adapters --lora-targets q q,v
adapters --modules-to-save norm none
END
older dense seed
run "a seed of an older checkpoint" "${llama[@]}" --steps 2 --resume old/step --seed 7
result "is reported" "$(grep -q '^from here on --seed is 7; the checkpoint was made with ' err || cat err)"

# What may change from here on: it is taken, and reported.
while read -r from flag value was; do
    run "$flag $value from here on" "${llama[@]}" --steps 2 --resume "$from" "$flag" "$value"
    result "is reported" "$(grep -qE "^from here on $flag is \"?$value\"?; the checkpoint was made with \"?$was\"?$" err out || cat err)"
done <<'END'
dense --seq-len 8 16
dense --dropout 0.1 0.0
adapters --base-dtype nf4 same
END
run "sequences that are shorter" "${llama[@]}" --steps 2 --resume dense --seq-len 8
result "are trained" "$(grep -q 'a step is 4 sequences of 8 bytes' out || cat out)"

# Long texts come whole.
blocks=$(seq -s, 0 2 398)
run "a long list" "${llama[@]}" --n-layer 400 --n-embd 8 --ffn 8 --sliding-window 4 --window-blocks "$blocks" --steps 1 --save list
run "is the checkpoint's" --data text.txt --global-batch-size 4 --steps 2 --resume list --eval-interval 0

# The same, written in another way: the digest is that of a run without the flag.
while read -r from flag value written; do
    rm -rf old
    run "$flag $value" "${llama[@]}" --arch llama $from "$flag" "$value" --steps 1 --save old
    run "gone on with" "${llama[@]}" --steps 2 --resume old
    digest >with.txt
    run "the same as $written" "${llama[@]}" --steps 2 --resume old "$flag" "${written//\~/ }"
    result "has its digest" "$(digest | diff with.txt -)"
done <<'END'
--lora-rank=2 --lora-targets q,v q_proj,v_proj
--lora-rank=2 --lora-targets q,v v,~q
--lora-rank=2 --lora-targets q,k,v,o,gate,up,down all-linear
--lora-rank=2 --modules-to-save embed_tokens,norm block.*.norm1,block.*.norm2,norm,embed
--sliding-window=4 --window-blocks 0,1 0-1
--n-expert=4 --moe-dense 1 1-1
--n-expert=4 --moe-router softmax auto
--tie-embeddings=off --rope-scaling linear:2 linear:2.0
--tie-embeddings=off --qk-norm off auto
END
rm -rf old
run "adapters with dropout" "${llama[@]}" --arch llama --lora-rank 2 --lora-dropout 0.1 --steps 1 --save old
refuse "other linears" 2 "is of another model: --lora-targets q,k \(it has q,v\)" "${llama[@]}" --lora-targets q,k \
    --steps 2 --resume old
refuse "a linear that is none" 2 "is of another model: --lora-targets quer \(it has q,v\)" "${llama[@]}" \
    --lora-targets quer --steps 2 --resume old
refuse "other modules" 2 "is of another model: --modules-to-save lm_head \(it has none\)" "${llama[@]}" \
    --modules-to-save lm_head --steps 2 --resume old
run "gone on with" "${llama[@]}" --steps 2 --resume old
digest >with.txt
run "its linears in another order" "${llama[@]}" --lora-targets v,q --steps 2 --resume old
result "drops the same" "$(digest | diff with.txt -)"

# Numbers that float rounds, which folders have as floats; and a folder's adapters, whose names PEFT orders.
a_base --norm-eps 1e-5
run "a folder with the checkpoint of its run" --init-from base --data text.txt --seq-len 16 --global-batch-size 4 --steps 21 \
    --eval-interval 0 --resume based --norm-eps 1e-5
on=(--init-from base --data text.txt --seq-len 16 --global-batch-size 4 --steps 1 --eval-interval 0)
run "adapters of it" "${on[@]}" --lora-rank 2 --save tuned
result "as a folder" "$("$bin/gpt_export" tuned peft 2>&1)"
run "with their names of Weft" "${on[@]}" --lora-init peft --lora-targets v,q
refuse "with others" 2 "--lora-init peft decides --lora-targets; drop that flag" "${on[@]}" --lora-init peft \
    --lora-targets q,k
finish
