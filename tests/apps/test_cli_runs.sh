#!/bin/bash
# test_cli_runs.sh GPT_TRAIN [--sanitized, of a build without bench] - what becomes of a run: checkpoints, signals, flight recorders,
# weights of Hugging Face, and the programs that read what a run has left.
# ctest: arguments gpt_train sanitized, builds plain, cost 50
set -uo pipefail
gpt_train=$1 sanitized=${2:-}
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# Checkpoints: saved on one mesh, gone on with on another, and what does not fit.
saved=("${tiny[@]}" --dropout 0.1 --eval-interval 1 --digest)
run "a run without a stop" "${saved[@]}" --log-jsonl whole.jsonl
run "the same, saved" "${saved[@]}" --save saved --save-interval 2 --tp 2 --dp 2 --save-best
rm -r saved/step-00000003
refuse "latest names what is not there" 8 "latest names step-00000003, which is not there; .*--resume none" \
    "${saved[@]}" --save saved
echo step-00000002 >saved/latest
run "gone on with elsewhere" "${saved[@]}" --save saved --dp 4 --async-save on --log-jsonl rest.jsonl
shows "from where" "^continuing from saved/step-00000002, after step 2$"
python "the last step is the same" '
import json
a, b = ([json.loads(line) for line in open(name)][-1] for name in ("whole.jsonl", "rest.jsonl"))
for key in ("step", "loss_bits", "digest", "val_loss"):
    if a[key] != b[key]: print(key, a[key], b[key])'
run "nothing is left to do" "${saved[@]}" --save saved
run "gone on with in bf16" "${saved[@]}" --resume saved/step-00000002 --dtype bf16
result "which is reported, of weights too" "$(grep -cE \
    '^from here on --(param-)?dtype is "bf16"; the checkpoint was made with "fp32"$' err |
    grep -vx 2)"
refuse "another model" 2 \
    "saved/step-00000003 is of another model: --n-layer 2 \(it has 1\), --n-embd 32 \(it has 16\); drop" \
    "${saved[@]}" --save saved --n-embd 32 --n-layer 2
run "gone on with without the model's flags" --data text.txt --global-batch-size 4 --steps 4 --save saved
shows "it is the same" "^model: gpt2, layers 1, heads 4, width 16, " "a step is 4 sequences of 16 bytes" \
    "^step 4/4 "
result "and a line for what is saved" "$(grep "^saved" out | grep -vx "saved saved/step-00000004")"
# What ranks held, as digests, and steps repeated beside it.
run "ranks say what they hold" "${saved[@]}" --tp 2 --dp 2 --log-digests held --save held_saved --save-config held.json
run "repeated on another mesh" "${saved[@]}" --dp 4 --replay held --replay-to 2
shows "it is the same" "^replay: steps 1 to 2 repeated: what 4 of 4 ranks held is the same, part by part$"
run "and with the run's config" --config held.json --tp 1 --dp 1 --resume none --replay held
result "which saves nothing" "$(grep "^saved" out; ls held_saved | grep -v "^latest$\|^lock$\|^step-00000003$")"
shows "to the end" "^replay: steps 1 to 3 repeated"
refuse "a replay that is to save" 2 "--replay repeats steps and writes nothing: drop --log-jsonl" \
    "${saved[@]}" --replay held --log-jsonl held.jsonl
refuse "a last step without a replay" 2 "--replay-to belongs to --replay DIR" "${saved[@]}" --replay-to 2
refuse "a replay of no digests" 3 "--replay: nowhere has no rank-.*.jsonl, as a run with --log-digests" \
    "${saved[@]}" --replay nowhere
refuse "a replay by other rules" 2 "is of a run with other numerics" "${saved[@]}" --replay held --exact off
refuse "a replay with another optimizer" 2 "is not of this model, or has another size" \
    "${saved[@]}" --replay held --optimizer sgd
"$gpt_train" "${saved[@]}" --replay held --replay-to 1 --resume saved/step-00000002 >out 2>err
result "a replay of what comes before" "$([ $? = 2 ] &&
    grep -q "the checkpoint is of step 2, and the last step to repeat 1" err || cat out err)"
refuse "a bit of nothing" 2 "--flip-bit 1:0:embed.table:0 is no STEP:RANK:TENSOR:ELEMENT:BIT" \
    "${saved[@]}" --flip-bit 1:0:embed.table:0
refuse "a bit that is not there" 2 "has 256 elements of 32 bits here: bit 32 of element 5 is none" \
    "${saved[@]}" --flip-bit 1:0:position.table:5:32
printf '{"step": 9, "dig' >>held/rank-00001.jsonl
run "a file that ends within a row" "${saved[@]}" --replay held
printf 'ests": [7]}\n' >>held/rank-00001.jsonl
refuse "a row that is none" 3 "rank-00001.jsonl has a row that is none of --log-digests" "${saved[@]}" --replay held
run "a sample after training" "${saved[@]}" --save sampled --sample 20
sed -n '/^--- sample/,$p' out >after
run "a sample of what was saved" --steps 0 --resume sampled --sample 20 --tp 2 --dp 2
result "is the same" "$(sed -n '/^--- sample/,$p' out | diff after - 2>&1 && [ -s after ] || echo "differs")"
run "a plan of what was saved" --plan --resume saved
shows "which has its model" "gpt2 of 1 blocks, 7664 parameters"
refuse "to show what is not there" 8 "--resume nothing: there is no checkpoint" --steps 0 --resume nothing
refuse "a checkpoint that is not there" 8 "--resume nothing: there is no checkpoint" "${tiny[@]}" \
    --resume nothing
refuse "saving without a folder" 2 "--save-interval belongs to --save" "${tiny[@]}" --save-interval 2
refuse "one checkpoint alone" 2 "--keep 1 would leave none" "${tiny[@]}" --save saved --keep 1
refuse "a folder that cannot be made" 8 "cannot make directory text.txt/where" "${tiny[@]}" --save text.txt/where
mkdir locked && exec 9>locked/lock && flock 9
refuse "a folder where another run saves" 8 "another run saves to locked .*use another --save" \
    "${tiny[@]}" --save locked
exec 9>&-
run "the same when that has ended" "${tiny[@]}" --save locked
"$bin/ckpt" verify saved >out 2>err
result "ckpt verify" "$([ $? = 0 ] && grep -q "step-00000004 is whole" out || echo "not whole")"
"$bin/ckpt" diff saved/step-00000002 saved/step-00000003 >out 2>err
result "ckpt diff" "$([ $? = 1 ] && grep -q "^embed.table: .* elements differ" out || echo "not reported")"
for file in saved/step-*/index.json; do
    echo " " >>"$file"
done
"$gpt_train" "${saved[@]}" --save saved >out 2>err
result "all are damaged" "$([ $? = 8 ] && grep -q "none of the .* can be used" err || echo "not reported")"
"$gpt_train" "${tiny[@]}" --steps 1000000 --save long --exit-duration-in-mins 0.005 --sample 9 >out 2>err
result "a run whose time is over" "$([ $? = 75 ] && [ -f long/latest ] || echo "not saved, or not 75")"
result "makes no sample" "$(grep "^--- sample" out)"
begun "^saved" "${tiny[@]}" --dp 2 --save asked --steps 1 --sample 1000000
kill -TERM $!
wait $!
result "a run that is to stop makes no sample" "$([ $? = 75 ] && ! grep "^--- sample" out || echo "not 75")"

# What happens to a run from outside. Its log, its console and its terminal are not worth its work.
(
    ulimit -f 8
    exec timeout -s KILL 60 "$gpt_train" "${tiny[@]}" --steps 60 --log-jsonl small.jsonl --eval-interval 0
) 2>err | cat >out
result "a log that may not grow" "$([ "${PIPESTATUS[0]}" = 0 ] && grep -q "^step 60/60" out &&
    [ "$(grep -c "warning: cannot write log file small.jsonl: File too large; training continues" err)" = 1 ] ||
    echo "ended, or not reported once")"
python "its rows are whole" '
import json
if len([json.loads(line) for line in open("small.jsonl")]) < 5: print("too few")'
(ulimit -n 8 && exec timeout -s KILL 60 "$gpt_train" "${tiny[@]}" --dp 2 --steps 1 --eval-interval 0 --save few) >out 2>err
result "an error names one rank" "$([ $? != 0 ] && grep -q "Too many open files" err && ! grep "rank [0-9]*: rank [0-9]*[:,]" err || cat err)"
"$gpt_train" "${tiny[@]}" --steps 20 --eval-interval 0 --save piped 2>err | head -n 1 >out
result "a reader that leaves" "$([ "${PIPESTATUS[0]}" = 0 ] && [ -f piped/latest ] || echo "ended, or unsaved")"
if [ -z "$sanitized" ]; then
    "$gpt_train" "${tiny[@]}" --dp 2 --steps 1500 --eval-interval 0 --stall-timeout 1 2>err | (sleep 4 && tail -n 1 >out)
    result "a console that is not read for a while" "$([ "${PIPESTATUS[0]}" = 0 ] && grep -q "^step 1500/1500" out || cat err out)"
fi
# stopped SIGNAL: 75, and saved. Shells let background jobs ignore SIGINT, so this one is asked to.
stopped()
{
    rm -rf halt
    python3 - "$1" "$gpt_train" "${tiny[@]}" --steps 10000000 --save halt --eval-interval 0 >out 2>err <<'END'
import os, signal, subprocess, sys
for name in ("SIGINT", "SIGHUP", "SIGTERM"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
run = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
run.stdout.readline()
run.send_signal(getattr(signal, sys.argv[1]))
run.stdout.read()
print(run.wait(timeout=60), os.path.lexists("halt/latest"))
END
    result "stopped by $1" "$([ "$(<out)" = "75 True" ] || cat out)"
}
for signal in $([ -n "$sanitized" ] || echo SIGHUP SIGINT) SIGTERM; do stopped $signal; done
# what an MPI that cannot start has allocated is its own to free
ASAN_OPTIONS=detect_leaks=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 refuse "variables of another job" 2 \
    "belongs to another MPI|transport mpi (is not here|cannot be loaded)" "${tiny[@]}" --tp 2
mkdir -p up/bin && cp -P "$bin"/../libweft.so* up/bin && echo none >up/libweft_nccl.so
LD_LIBRARY_PATH=$PWD/up/bin CUDA_VISIBLE_DEVICES=-1 refuse "a plugin of the folder above" 2 \
    "transport nccl (joins GPUs|is not here: libweft_nccl.so: cannot open)" "${tiny[@]}" --transport nccl
# Flight recorders of runs that failed: in a folder of one's own, and the newest few.
if [ -z "$sanitized" ]; then
    mkdir tmp elsewhere && ln -s "$PWD/elsewhere" "tmp/weft-recorder-$(id -u)-1" && : >elsewhere/rank-0.rec
    for i in $(seq 12); do TMPDIR=$PWD/tmp "$gpt_train" "${tiny[@]}" --dp 2 --optimizer sgd --lr 1000 --clip-grad 0 --steps 20 --eval-interval 0 >out 2>err; done
    result "recorders of runs that failed" "$(find tmp -maxdepth 1 -type d -name 'weft-recorder-*' -perm 700 |
        wc -l | grep -vx 9; [ -f elsewhere/rank-0.rec ] || echo "a link was followed")"
fi
echo none >libjansson.so.4
run "a library in the working directory" --help
rm libjansson.so.4

# Two runs that differ in one flag, and where that shows first.
run "digests of tensors" "${tiny[@]}" --digest=tensors --tp 2 --log-jsonl a.jsonl
run "the same with another decay" "${tiny[@]}" --digest=tensors --weight-decay 0.2 --log-jsonl b.jsonl
"$bin/gpt_diff" a.jsonl b.jsonl >out 2>err
result "gpt_diff names the step" "$([ $? = 1 ] && grep -q "^step 1: digest is " out || echo no)"
result "and the tensor" "$(grep -qE "^step 1: tensor embed.table differs, the first of " out || echo no)"
result "and the option" "$(grep -q "^option weight_decay is 0.1 in A and 0.2 in B$" out && ! grep -q "^option log_jsonl" out || cat out)"
run "a run of bf16" "${tiny[@]}" --dtype bf16 --save bf16 --log-jsonl c.jsonl
run "a run of f32" "${tiny[@]}" --tp 2 --save f32 --log-jsonl d.jsonl
"$bin/gpt_diff" a.jsonl d.jsonl >out 2>err
result "layouts and decays leave the numerics alone" "$(grep numerics out)"
"$bin/gpt_diff" c.jsonl d.jsonl >out 2>err
result "gpt_diff reports other numerics" "$(grep -qE "^numerics: [0-9a-f]{16} in A and [0-9a-f]{16} in B" out || echo no)"
result "and of losses as numbers" "$(grep -qE '^step [12]: loss is [0-9.]+ [(]bits "[0-9a-f]{8}"[)] in A and [0-9.]+ [(]' out || cat out)"
"$bin/gpt_diff" bf16 f32 >out 2>err
result "of checkpoints too" "$(grep -qE "^numerics: [0-9a-f]{16} in A and [0-9a-f]{16} in B" out || echo no)"
run "continuing with other numerics" "${tiny[@]}" --resume bf16
result "that is reported" "$(grep -qE "^from here on numbers are computed by other rules \(numerics" err || echo no)"
run "continuing with the same" "${tiny[@]}" --resume f32 --dp 2
result "there is nothing to report" "$(grep "other rules" err)"
python "they add up to the digest" '
import json
for row in map(json.loads, open("a.jsonl")):
    if "step" in row and sum(int(d, 16) for d in row["digests"].values()) % 2**64 != \
            int(row["digest"], 16): print(row)'

run "ranks that share the cores" "${tiny[@]}" --tp 8 --dp 4 --sequence-parallel --steps 2

# Weights of Hugging Face: any layout trains the same from them, and they come out as they went in.
python3 -c 'open("ids.bin", "wb").write(b"".join(bytes([c, 0]) for c in open("text.txt", "rb").read()))'
from=(--data ids.bin --steps 2 --global-batch-size 4 --digest)
refuse "text for a model with token ids of its own" 2 "bytes would be taken for the token ids of .* 257" \
    --data text.txt --steps 2 --init-from "$reference/hf_gpt2"
refuse "a sample of such a model" 3 "hf_gpt2.*no tokenizer.*--sample 9 needs the model's tokenizer: give --tokenizer PATH" \
    --steps 0 --sample 9 --init-from "$reference/hf_gpt2"
refuse "a folder and a name" 2 "--model gpt2 and --init-from .* both say what model it is" \
    "${from[@]}" --model gpt2 --init-from "$reference/hf_gpt2"
for model in gpt2 llama llama_tied llama31 mistral qwen2 qwen3 smollm3 granite phi3 gemma olmo2; do
    rm -f one.jsonl four.jsonl again.jsonl
    run "from a $model of transformers" "${from[@]}" --init-from "$reference/hf_$model" \
        --log-jsonl one.jsonl
    run "from the same on 2 x 2" "${from[@]}" --init-from "$reference/hf_$model" --tp 2 --dp 2 \
        --log-jsonl four.jsonl
    timeout -s KILL 60 "$bin/gpt_export" "$reference/hf_$model" "out_$model" \
        >out 2>err
    result "gpt_export of the $model" "$([ $? = 0 ] || echo "exit status $?")"
    run "from what was exported" "${from[@]}" --init-from "out_$model" --log-jsonl again.jsonl
    python "the same digests from all three" '
import json
a, b, c = ([json.loads(line).get("digest") for line in open(name)]
           for name in ("one.jsonl", "four.jsonl", "again.jsonl"))
if not a == b == c or not a[-1]: print(a, b, c)'
done
# What a folder has beside its weights goes along, from the folder and from a run that began with it, which may
# be all that is left.
cp -r "$reference/hf_llama" whole_model
python "a folder with a tokenizer" '
import json
config = json.load(open("whole_model/config.json"))
config.update(bos_token_id=1, eos_token_id=[2, 5], pad_token_id=None)
json.dump(config, open("whole_model/config.json", "w"))
for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
    open("whole_model/" + name, "w").write("{\"of\": \"" + name + "\"}")'
timeout -s KILL 60 "$bin/gpt_export" whole_model whole_out >out 2>err
result "gpt_export of that folder" "$([ $? = 0 ] || cat err)"
run "a run that begins with it" "${from[@]}" --init-from whole_model --save went_on
rm -r whole_model/tokenizer.json
timeout -s KILL 60 "$bin/gpt_export" went_on went_on_out >out 2>err
result "gpt_export of that run" "$([ $? = 0 ] || cat err)"
python "ids, tokenizer and template are those of the folder" '
import json
for out in ("whole_out", "went_on_out"):
    config = json.load(open(out + "/config.json"))
    got = [config.get(key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")]
    if got != [1, [2, 5], None]: print(out, got)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        if open(out + "/" + name).read() != "{\"of\": \"" + name + "\"}": print(out, name)'
sed -i 's/"eos_token_id": \[2, 5\]/"eos_token_id": "two"/' whole_model/config.json
other "gpt_export of an id that is none" 3 '"eos_token_id" is neither a token id' gpt_export whole_model whole_bad
run "a checkpoint to be exported" "${tiny[@]}" --tp 2 --dp 2 --save made --checkpoint full
for ranks in 1 3; do
    timeout -s KILL 60 "$bin/gpt_export" made "made_$ranks" --ranks $ranks >out 2>err
    result "gpt_export of a checkpoint on $ranks ranks" "$([ $? = 0 ] || echo "exit status $?")"
done
result "the same bytes" "$(cmp made_1/model.safetensors made_3/model.safetensors 2>&1)"
python "its embedding is that of the checkpoint" '
import json, struct
def tensor(path, name):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    begin, end = next(v["data_offsets"] for k, v in header.items() if k.endswith(name))
    return data[8 + n + begin:8 + n + end]
a = tensor("made_3/model.safetensors", "wte.weight")
b = tensor("made/step-00000003/model.safetensors", "embed.table")
if a != b or len(a) != 256 * 16 * 4: print(len(a), len(b))'
cp "$reference/../text/tokenizers/front.json" tokenizer.json
python "a model with room for that tokenizer" '
import json, struct
data = open("whole_out/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
config = json.load(open("whole_out/config.json"))
config.update(vocab_size=331, tie_word_embeddings=True)
import os; os.mkdir("roomy")
json.dump(config, open("roomy/config.json", "w"))
body, out = b"", {}
for name, t in header.items():
    if name in ("__metadata__", "lm_head.weight"): continue
    begin, end = t["data_offsets"]
    part = data[8 + n + begin:8 + n + end]
    if name == "model.embed_tokens.weight":
        part = (part * 2)[:len(part) // t["shape"][0] * 331]
        t["shape"][0] = 331
    out[name] = dict(t, data_offsets=[len(body), len(body) + len(part)])
    body += part
text = json.dumps(out).encode()
open("roomy/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)'
cp tokenizer.json roomy/tokenizer.json
echo '{{ messages }}' >roomy/chat_template.jinja
timeout -s KILL 60 "$bin/gpt_export" roomy --gguf roomy.gguf --gguf-type f16 >out 2>err
result "gpt_export --gguf" "$([ $? = 0 ] || cat err)"
python "its tokens, merges and template" '
import json, struct
data, at = open("roomy.gguf", "rb").read(), 24
def take(form):
    global at
    at += struct.calcsize("<" + form)
    return struct.unpack("<" + form, data[at - struct.calcsize("<" + form):at])[0]
def text():
    global at
    n = take("Q"); at += n
    return data[at - n:at].decode()
def value(kind):
    if kind == 8: return text()
    if kind == 9:
        of, n = take("I"), take("Q")
        return [value(of) for _ in range(n)]
    return take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])
keys = {}
for _ in range(struct.unpack("<Q", data[16:24])[0]):
    name = text(); keys[name] = value(take("I"))
t = json.load(open("roomy/tokenizer.json"))
vocabulary = sorted(t["model"]["vocab"], key=t["model"]["vocab"].get)
if keys["tokenizer.ggml.tokens"][:len(vocabulary)] != vocabulary: print("tokens")
merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
if keys["tokenizer.ggml.merges"] != merges: print("merges")
if keys["tokenizer.chat_template"].strip() != "{{ messages }}" or keys["general.architecture"] != "llama": print(keys)
if not keys["tokenizer.ggml.add_space_prefix"] or keys["llama.vocab_size"] != 331: print("keys")'
LC_ALL=C sed 's/tokenizer\.ggml\.merges/general.ggml.mergesxx/' roomy.gguf >unmerged.gguf; other "a GGUF file without merges" 3 "tokenizer.ggml.merges: there are none" gpt_export unmerged.gguf unmerged
LC_ALL=C sed 's/tokenizer\.ggml\.merges/tokenizer.ggml.novel1/' roomy.gguf >unmerged.gguf; other "a GGUF file with an unknown key of its tokenizer" 2 "tokenizer.ggml.novel1: it is not known" gpt_export unmerged.gguf unmerged
LC_ALL=C sed 's/tokenizer\.ggml\.add_space_prefix/tokenizer.chat_template.tool_us/' roomy.gguf >unmerged.gguf; other "a GGUF file with a named chat template" 2 "chat_template.tool_us: a chat template of a name" gpt_export unmerged.gguf unmerged
LC_ALL=C sed 's/tokenizer\.ggml\.eos_token_id/tokenizer.ggml.eot_token_id/' roomy.gguf >turns.gguf; "$bin/gpt_export" turns.gguf turns >out 2>err; result "the end of a turn where there is none of a text" "$(grep -qs '"eos_token_id"' turns/generation_config.json || cat err turns/*.json)"
timeout -s KILL 60 "$bin/gpt_export" made --gguf made.gguf --tokenizer none --ranks 2 >out 2>err
result "gpt_export --gguf of a checkpoint" "$([ $? = 0 ] && [ "$(head -c 4 made.gguf)" = GGUF ] || cat err)"
result "gpt_export --gguf says that it has no tokenizer" \
    "$(grep -A 1 -m 1 tokenizer.ggml.model <<<"$(strings -n 4 made.gguf)" | grep -x none >/dev/null || strings made.gguf | grep -A 1 tokenizer)"
other "gpt_export --gguf without a tokenizer" 2 "no tokenizer beside it.*--tokenizer PATH" gpt_export made --gguf other.gguf
other "gpt_export --gguf with another model's" 2 "331 ids and the model 256.*--tokenizer none" gpt_export made --gguf other.gguf --tokenizer tokenizer.json
other "gpt_export --gguf onto weights" 2 "is no GGUF file, and would be written over" gpt_export made --gguf roomy/model.safetensors
other "gpt_export --gguf onto a GGUF file" 2 "made.gguf is there, .* give --overwrite" gpt_export made --gguf made.gguf --tokenizer none
timeout -s KILL 60 "$bin/gpt_export" made --gguf made.gguf --gguf-type f16 --tokenizer none --overwrite >out 2>err
result "gpt_export --gguf --overwrite" "$([ $? = 0 ] || cat err)"
other "gpt_export --gguf onto weights with --overwrite" 2 "is no GGUF file" gpt_export made --gguf roomy/model.safetensors --overwrite
other "gpt_export of a GGUF file onto a model" 2 "made_1 has a model's config.json, .* give --overwrite" gpt_export made.gguf made_1 --tokenizer none
other "gpt_export --gguf as a type that it has not" 2 "q4_0 is none of f32, f16 and q8_0" gpt_export made --gguf x.gguf --gguf-type q4_0
other "gpt_export --gguf-type alone" 2 "--gguf-type is for the file that --gguf names" gpt_export made made_y --gguf-type f16
other "gpt_export --dtype without a folder" 2 "--dtype is of folder TO" gpt_export made --gguf x.gguf --dtype f16
"$bin/gpt_export" saved made_x >out 2>err
result "gpt_export of a damaged one" "$([ $? = 3 ] && grep -q "saved/step-" err || echo "exit status $?")"
# A Llama whose head is its embedding stays one: trained, saved, exported and trained again.
run "a tied llama, saved" "${from[@]}" --init-from "$reference/hf_llama_tied" --dp 2 --save tied
timeout -s KILL 60 "$bin/gpt_export" tied tied_out >out 2>err
result "gpt_export of a tied llama" "$([ $? = 0 ] || echo "exit status $?")"
python "its head is the embedding still" '
import json, struct
data = open("tied_out/model.safetensors", "rb").read()
names = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
config = json.load(open("tied_out/config.json"))
if "lm_head.weight" in names or not config["tie_word_embeddings"]: print(config, list(names))'
refuse "a tie that contradicts the weights" 2 "--tie-embeddings on contradicts .* has off" \
    "${from[@]}" --init-from "$reference/hf_llama" --tie-embeddings on
run "a head that begins as the embedding, and is trained separately" "${from[@]}" --init-from "$reference/hf_llama_tied" \
    --tie-embeddings off
mkdir novel && cp "$reference"/hf_qwen3/* novel && chmod u+w novel/*
python "an unknown key" '
import json
config = json.load(open("novel/config.json"))
config["novelty"] = 1
json.dump(config, open("novel/config.json", "w"))'
refuse "is refused by its name" 2 "novel/config.json: Weft does not know what these keys say of a qwen3: novelty;" \
    "${from[@]}" --init-from novel --tp 2
run "a plan of a tied llama" "${tiny[@]}" --arch llama --tie-embeddings on --plan --json tied.json
python "a plan of the same untied has a head more" '
import json, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
tied, own = (json.load(open(n))["model"]["parameters"] for n in ("tied.json", "own.json"))
if own - tied != 256 * 16: print(own, tied)' \
    "$gpt_train" "${tiny[@]}" --arch llama --plan --json own.json
refuse "weights from nowhere" 3 "cannot open nowhere/config.json" "${from[@]}" \
    --init-from nowhere
refuse "a flag that contradicts the weights" 2 "--n-head 5 contradicts .* has 3; drop --n-head" \
    "${from[@]}" --init-from "$reference/hf_gpt2" --n-head 5
refuse "sequences longer than the model" 2 "--seq-len 64 is more than .* 32; use --seq-len 32" \
    "${from[@]}" --init-from "$reference/hf_gpt2" --seq-len 64
cp -r "$reference/hf_gpt2" cut && head -c 50000 "$reference/hf_gpt2/model.safetensors" \
    >cut/model.safetensors
refuse "weights that are cut short" 3 "model.safetensors: tensor .* past the end of the file" \
    "${from[@]}" --init-from cut
rm cut/model.safetensors && head -c 1000 text.txt >cut/pytorch_model.bin
refuse "weights in a pickle" 2 "pytorch_model.bin is a pickle, .*save_pretrained" "${from[@]}" \
    --init-from cut

# Mistakes with the other programs.
other "gpt_export of nothing" 2 "it takes a model, FROM" gpt_export
other "gpt_export to a GGUF file without --gguf" 2 "give --gguf made.gguf" gpt_export made made.gguf
other "gpt_export with an unknown flag" 2 "unknown flag --outtype; did you mean --gguf-type" gpt_export --outtype f16 made exported
other "gpt_export to a name that is empty" 2 "folder TO is empty" gpt_export made ""
other "gpt_export as another type" 2 "--dtype f64 is none of f32, bf16, f16 and nf4" gpt_export made exported --dtype f64
result "which leaves nothing" "$([ ! -e exported ] || echo exported)"
other "gpt_diff of one" 2 "it takes two" gpt_diff a.jsonl
other "gpt_diff of a log that is missing" 3 "cannot read nothing: No such file" gpt_diff a.jsonl nothing
other "gpt_diff of a folder" 3 "folder, row 1: Is a directory.*two checkpoints" gpt_diff a.jsonl folder
other "gpt_diff of a text" 3 "text.txt, row 1: .*it takes two files of --log-jsonl" gpt_diff a.jsonl text.txt
head -c -9 a.jsonl >cut.jsonl
other "gpt_diff of a log that is cut short" 3 "cut.jsonl, row 4: " gpt_diff a.jsonl cut.jsonl
cat cut.jsonl <(echo) a.jsonl >on.jsonl
"$bin/gpt_diff" a.jsonl on.jsonl >out 2>err
result "gpt_diff of a log that continues after a cut row" "$([ $? = 0 ] && [ ! -s err ] || cat out err)"
for step in 1 2 1000000000 9000000000000000000 1; do
    echo "{\"step\": $step, \"loss_bits\": \"$step\"}"
done >far.jsonl
timeout -s KILL 5 "$bin/gpt_diff" far.jsonl far.jsonl >out 2>err
result "gpt_diff of steps far away" "$([ $? = 0 ] && [ ! -s err ] || echo "exit status $?")"
tail -n 2 far.jsonl >last.jsonl
sed '1s/"1"}/"2"}/' far.jsonl >earlier.jsonl
timeout -s KILL 5 "$bin/gpt_diff" earlier.jsonl last.jsonl >out 2>err
result "the last row of a step counts" "$([ $? = 0 ] || cat out)"
other "gpt_diff without an end" 3 "/dev/zero, row 1" gpt_diff a.jsonl /dev/zero
other "ckpt of an unknown command" 2 "it takes list DIR, verify PATH" ckpt look saved
other "ckpt list of nothing" 8 "there is no checkpoint in nothing" ckpt list nothing
other "ckpt diff names the one" 8 "^ckpt: nothing is no checkpoint" ckpt diff made nothing
other "mesh_info with an unknown flag" 2 "unknown flag -tensor-parallel; did you mean --tp" mesh_info -tensor-parallel 2
other "mesh_info without a value" 2 "--tp needs a value" mesh_info --tp
other "recorder_diff of nothing" 2 "no file was given" recorder_diff
other "recorder_diff of a text" 3 "text.txt is not a flight recorder" recorder_diff text.txt
[ -n "$sanitized" ] || other "bench of nothing" 2 "it takes a command" bench
[ -n "$sanitized" ] || other "bench of an unknown command" 2 "there is no command junk" bench junk
[ -n "$sanitized" ] || other "bench of no shapes" 2 "--shapes '' is empty" bench gemm --shapes ""

finish
