#!/bin/bash
# test_generate.sh BUILD [--sanitized] - texts, perplexity and choices by copies of a model in several processes are
# those of one rank, in the same order, and come from the first process alone.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100
set -uo pipefail
folder=$(cd "$(dirname "$0")/../reference/hf_llama" && pwd)
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/common.sh"

write_text
head -c 700 text >few
for i in $(seq 9); do
    printf '{"ids": [%s]}\n' "$(seq -s, $((60 + i)) $((61 + 2 * i)))"
done >prompts.jsonl
for i in $(seq 0 13); do
    printf '{"request": {"context": "bano %s", "continuation": " ri%s"}, "doc_id": %s, "label": 1}\n' \
        $((i / 2)) "$i" $((i / 2))
done >requests.jsonl

# alike NAME PROGRAM ARGUMENT...: the same stdout on every way to run.
alike()
{
    local name=$1 program=$build/apps/$2 way flags
    shift 2
    "$program" "$@" --threads-per-rank 1 >wanted 2>err
    result "$name of one rank" "$([ -s wanted ] || cat err)"
    for way in "2 --dp 2" "4 --dp 2 --tp 2" "2 --dp 4" "3 --dp 3"; do
        read -ra flags <<<"$way"
        timeout -s KILL 100 "${mpirun[@]}" -np "${flags[@]:0:1}" "$program" "$@" --threads-per-rank 1 \
            "${flags[@]:1}" >out 2>err
        result "$name of ${flags[0]} processes, ${flags[*]:1}" "$(cmp out wanted 2>&1 || cat err)"
    done
}

alike "texts" gpt_generate "$folder" --tokenizer bytes --prompts prompts.jsonl --json --logprobs 2 --echo --n 2 \
    --temperature 1 --max-new-tokens 9 --ignore-eos --batch-size 3
alike "a single text" gpt_generate "$folder" --tokenizer bytes --prompt "bano" --max-new-tokens 9 --ignore-eos
alike "perplexity" gpt_eval perplexity "$folder" --tokenizer bytes --data few --seq-length 16 --stride 7 --json \
    --batch-size 2
alike "choices" gpt_eval choices "$folder" --tokenizer bytes --requests requests.jsonl --json
finish
