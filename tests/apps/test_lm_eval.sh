#!/bin/bash
# test_lm_eval.sh GPT_TRAIN - apps/python/weft_lm_eval.py without lm-evaluation-harness, which three classes stand for here: what
# a task asks for comes back in its order, by the programs' own numbers. scripts/peers/evaluation.py has the harness itself.
#
# ctest: arguments gpt_train, timeout 120, builds plain
set -uo pipefail

gpt_train=$1
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"
module=$(cd "$reference/../../apps/python" && pwd)

mkdir -p stub/lm_eval/api
touch stub/lm_eval/__init__.py stub/lm_eval/api/__init__.py
echo 'class LM:
    pass' >stub/lm_eval/api/model.py
echo 'known = {}
def register_model(name):
    return lambda model: known.setdefault(name, model)' >stub/lm_eval/api/registry.py

run "a model" --data text.txt --arch llama --n-layer 1 --n-head 4 --n-embd 16 --seq-len 64 --global-batch-size 4 --steps 20 --lr 0.01 \
    --threads-per-rank 1 --eval-interval 0 --save llama
cat >ask.py <<'END'
import collections, json, subprocess, sys
sys.path[:0] = ["stub", sys.argv[1]]
import weft_lm_eval
from lm_eval.api.registry import known
programs = sys.argv[2]
Request = collections.namedtuple("Request", "args")
model = known["weft"](pretrained="llama", programs=programs, batch_size="1", device="cpu", threads_per_rank=1)
pairs = [("The ", "end"), ("The ", "beginning"), ("A line\n", "more"), ("The ", "end")]
got = model.loglikelihood([Request(pair) for pair in pairs])
if len(got) != 4 or got[0] != got[3] or got[0] == got[1]: print("pairs:", got)
with open("asked.jsonl", "w") as out:
    for i, (a, b) in enumerate(pairs):
        out.write(json.dumps({"request": {"context": a, "continuation": b}, "doc_id": i}) + "\n")
run = subprocess.run([programs + "/gpt_eval", "choices", "llama", "--requests", "asked.jsonl", "--json"], stdout=subprocess.PIPE, check=True)
want = [(row["logprob"], row["greedy"]) for row in map(json.loads, run.stdout.splitlines()) if "doc_id" in row]
if got != want: print("gpt_eval has", want, "and not", got)
other = known["weft"]("llama", programs, batch_size="16", tp=2, dp=2, threads_per_rank=1)
if other.loglikelihood([Request(pair) for pair in pairs]) != got: print("tp 2 x dp 2 has other bits")
if model.loglikelihood([]) != []: print("nothing asked, and something said")
asked = [("The ", {"until": ["\n"], "max_gen_toks": 9}), ("A ", {"max_gen_toks": 3, "until": []}), ("x", {"until": "e", "max_gen_toks": 9})]
texts = model.generate_until([Request(a) for a in asked])
for (prompt, o), text in zip(asked, texts):
    stops = o["until"] if isinstance(o["until"], list) else [o["until"]]
    row = subprocess.run([programs + "/gpt_generate", "llama", "--prompt", prompt, "--json", "--max-new-tokens", str(o["max_gen_toks"]),
                          *(f for s in stops for f in ("--stop", s))], stdout=subprocess.PIPE, check=True)
    if json.loads(row.stdout)["text"] != text: print(prompt, "goes on with", text)
try:
    known["weft"]("nowhere", programs).loglikelihood([Request(("a", "b"))])
    print("a model that is missing has log probabilities")
except RuntimeError as error:
    if "nowhere" not in str(error): print("said of a model that is missing:", error)
END
result "requests through the harness's class" "$(python3 ask.py "$module" "$bin" 2>&1)"
python3 -S "$module/weft_lm_eval.py" >out 2>err
result "without lm-eval it says what is missing" "$([ $? = 2 ] && grep -q 'pip install lm-eval' err || echo no)"
finish
