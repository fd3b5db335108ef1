#!/bin/bash
# test_cli_data.sh GPT_TRAIN [--sanitized] - training on token ids: formats, mixtures, validation, epochs, and that no
# layout and no stop changes what is read.
#
# ctest: arguments gpt_train sanitized, builds plain, cost 50
set -uo pipefail

gpt_train=$1 sanitized=${2:-}
# shellcheck source=tests/apps/cli_cases.sh
. "$(dirname "$0")/cli_cases.sh"

# The same ids in all formats, and another set.
python3 - <<'END'
import random, struct
random.seed(7)
ids = [random.randrange(300) for _ in range(2001)]
lengths = [1] + [250] * 8
def write(name, data): open(name, "wb").write(data)
def idx(code, size, lengths):
    starts = [size * sum(lengths[:i]) for i in range(len(lengths))]
    return struct.pack(f"<9sQBQQ{len(lengths)}i{len(lengths)}q{len(lengths) + 1}q", b"MMIDIDX\0\0", 1,
                       code, len(lengths), len(lengths) + 1, *lengths, *starts, *range(len(lengths) + 1))
write("raw.bin", struct.pack("<2001H", *ids))
write("u16.bin", struct.pack("<2001H", *ids)); write("u16.idx", idx(8, 2, lengths))
write("i32.bin", struct.pack("<2001i", *ids)); write("i32.idx", idx(4, 4, lengths))
write("gpt2.bin", struct.pack("<256i", 20240520, 1, 2001, *[0] * 253) + struct.pack("<2001H", *ids))
write("llama.bin", struct.pack("<256i", 20240801, 7, 2001, *[0] * 253) + struct.pack("<2001I", *ids))
write("part_1.bin", struct.pack("<700H", *ids[:700])); write("part_2.bin", struct.pack("<1301H", *ids[700:]))
write("val.bin", struct.pack("<513H", *ids[:513]))
END
model=(--vocab-size 301 --n-layer 1 --n-head 4 --n-embd 16 --seq-len 16 --global-batch-size 4 --digest)

python3 -c '
import struct
open("small.bin", "wb").write(struct.pack("<2001H", *(i * 7 % 65 for i in range(2001))))'
small=("${model[@]}" --vocab-size 65 --eval-interval 0)
run "a vocabulary of characters" "${small[@]}" --data small.bin --steps 2 --save small
refuse "which bytes are not" 2 "text, whose tokens are its bytes, 256 of them, and the model's vocabulary has 65" \
    "${small[@]}" --data text.txt --steps 2
result "as a folder" "$("$bin/gpt_export" small small_out 2>&1)"
run "that a run begins with" --init-from small_out --data small.bin --seq-len 16 --global-batch-size 4 --steps 1 --eval-interval 0
for name in a.JSONL a.json a.txt; do
    printf '{"text": "a"}\n{"text": "b"}\n' >$name
    refuse "rows of JSON as text: $name" 2 "$name has rows of JSON, .* gpt_data tokenize" --data $name --steps 1
done
printf '[{"text": "a"}]\n' >b.json
refuse "a list of JSON" 2 "b.json is one value of JSON: .* jq -c" --data b.json --steps 1
gzip -c a.txt >a.jsonl.gz
refuse "a file of gzip" 2 "a.jsonl.gz is compressed by gzip: give what gzip -dc" --data a.jsonl.gz --steps 1
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' >pointer.txt
refuse "a pointer of Git LFS" 2 "pointer.txt is the pointer that Git LFS left.*git lfs pull" --data pointer.txt --steps 1
# It has an even number of bytes: without a look at it they would be trained on as token ids.
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9999\n' >pointer.bin
refuse "named as token ids" 2 "pointer.bin is the pointer that Git LFS left" --data pointer.bin --vocab-size 65536 --seq-len 4 --steps 1
mkdir -p pointed
cp pointer.txt pointed/config.json
refuse "instead of a config" 3 "config.json is the pointer that Git LFS left" --data text.txt --init-from pointed --steps 1
mkdir -p within && cp pointer.txt within/model.gguf
for path in within/model.gguf within; do
    other "in place of a GGUF file: $path" 3 "^gpt_generate: within/model.gguf is the pointer that Git LFS left" gpt_generate "$path" --prompt a
done
other "for gpt_eval" 3 "pointer.txt is the pointer that Git LFS left" gpt_eval perplexity pointer.txt --data text.txt
other "for gpt_export" 3 "pointer.txt is the pointer that Git LFS left" gpt_export pointer.txt out
other "for ckpt" 8 "pointer.txt is the pointer that Git LFS left" ckpt show pointer.txt
other "for gpt_diff" 3 "pointer.txt is the pointer that Git LFS left" gpt_diff pointer.txt pointer.txt
refuse "instead of a model's folder" 3 "pointer.txt/config.json: Not a directory: pointer.txt is the pointer that Git LFS left" \
    --data text.txt --init-from pointer.txt --steps 1
refuse "instead of adapters" 3 "pointer.txt is the pointer that Git LFS left" --data text.txt --lora-init pointer.txt --steps 1
refuse "instead of checkpoints" 8 "pointer.txt is the pointer that Git LFS left" --data text.txt --resume pointer.txt --steps 1
refuse "a file instead of a folder" 3 "text.txt/config.json: Not a directory: text.txt is a file" --data text.txt --init-from text.txt --steps 1
refuse "instead of a tokenizer" 3 "config.json is the pointer that Git LFS left" "${model[@]}" --data raw.bin --tokenizer pointed/config.json --sample 1 --steps 1
printf 'PAR1 and so on' >a.parquet
refuse "a file of columns" 2 "a.parquet is a Parquet file" --data a.parquet --steps 1
tar -cf a.tar text.txt
refuse "an archive" 2 "a.tar is an archive of tar: give the files in it" --data a.tar --steps 1
printf '\xff\xfet\0e\0x\0t\0' >wide.txt
refuse "another encoding" 2 "wide.txt is text in UTF-16" --data wide.txt --steps 1
run "ids of u16" "${model[@]}" --data raw.bin --steps 3 --log-jsonl raw.jsonl
shows "what they are" "^data: raw.bin: 1801 tokens to train on, 200 to validate on; .* 16 tokens$" \
    "^data: u16: 1801 tokens, 112 windows, 0.11 epochs in 3 steps$"
same='import json, sys
rows = [[json.loads(line) for line in open(name)][-1] for name in sys.argv[1:]]
keys = ("step", "loss_bits", "digest", "val_loss")
for row in rows[1:]:
    for key in keys:
        if row[key] != rows[0][key]: print(sys.argv[1:], key, rows[0][key], row[key])'
for file in u16.idx u16.bin i32.idx gpt2.bin llama.bin; do
    run "the same in $file" "${model[@]}" --data $file --steps 3 --log-jsonl $file.jsonl
done
run "the same in two parts" "${model[@]}" --data part_1.bin part_2.bin --steps 3 --log-jsonl parts.jsonl
python "all train alike" "$same" raw.jsonl {u16.idx,u16.bin,i32.idx,gpt2.bin,llama.bin}.jsonl parts.jsonl

# Layouts and stops. An epoch of 62 sequences ends inside of a step, and the sources end at different times.
mix=("${model[@]}" --data 'a=0.8:part_*.bin' b=0.2:gpt2.bin --val-data val.bin --eval-iters 0
    --eval-interval 20)
run "a mixture" "${mix[@]}" --steps 80 --log-jsonl whole.jsonl
shows "its sources" "^data: part_1.bin and 2 more: 4002 tokens to train on, 513 to validate on;" \
    "^data: u16 of a, weight 0.8: 2001 tokens, 125 windows, 2.05 epochs in 80 steps$" \
    "^data: llm.c of b, weight 0.2: 2001 tokens, 125 windows, 0.51 epochs in 80 steps$"
run "on 2 x 2" "${mix[@]}" --steps 80 --tp 2 --dp 2 --micro-batch-size 1 --log-jsonl four.jsonl
run "on stages" "${mix[@]}" --steps 80 --pp 2 --n-layer 2 --dp 2 --log-jsonl pipe.jsonl
run "a mixture of two layers" "${mix[@]}" --steps 80 --n-layer 2 --log-jsonl two.jsonl
python "the same bits" "$same" whole.jsonl four.jsonl
python "the same bits on stages" "$same" two.jsonl pipe.jsonl
while read -r stop mesh; do
    # shellcheck disable=SC2086 # flags and their values
    run "saved at $stop on $mesh" "${mix[@]}" $mesh --steps 80 --save-interval "$stop" --keep 0 --save "at$stop"
    run "gone on with after $stop" "${mix[@]}" --steps 80 --log-jsonl rest.jsonl \
        --resume "at$stop/$(printf step-%08d "$stop")"
    shows "from there" "after step $stop$"
    python "to the same end" "$same" whole.jsonl rest.jsonl
done < <(some <<'END'
9 --tp 4
32 --dp 4
63 --tp 2 --dp 2 --micro-batch-size 1
END
)
mv rest.jsonl last.jsonl
run "gone on with on another mesh" "${mix[@]}" --steps 80 --tp 2 --dp 4 --resume at63/step-00000063 --log-jsonl rest.jsonl
python "the same bits there" "$same" last.jsonl rest.jsonl
run "gone on with other data" "${model[@]}" --steps 81 --resume at63 --data raw.bin --val-data val.bin u16.idx
result "which is reported" "$(grep -cE '^from here on --(val-)?data is \[.*made with \[|the files of --(val-)?data have \[' err |
    grep -vx 4)"

# Epochs and evaluations.
run "two epochs" "${model[@]}" --data raw.bin --val-data val.bin --epochs 2 --warmup-steps 3 --eval-iters 0 \
    --log-jsonl epochs.jsonl
shows "are 125 windows twice" "^step 63/63 " "2.02 epochs in 63 steps"
run "the same by its config" --config <(python3 -c '
import json
print(json.dumps(json.loads(open("epochs.jsonl").readline())["options"]))') --log-jsonl again.jsonl
python "trains alike" "$same" epochs.jsonl again.jsonl
refuse "epochs that are other steps" 2 "--steps 9 contradicts --epochs 2, which are 63 steps" \
    "${model[@]}" --data raw.bin --val-data val.bin --epochs 2 --steps 9
run "a plan of them" "${model[@]}" --data raw.bin --val-data val.bin --epochs 2 --eval-iters 0 --plan
python "each window of validation once, in batches of any size" '
import json, pathlib, subprocess, sys
def val(batch):
    pathlib.Path("val.jsonl").unlink(missing_ok=True)
    subprocess.run([*sys.argv[1:], "--global-batch-size", batch, "--log-jsonl", "val.jsonl"], check=True,
                   stdout=subprocess.DEVNULL)
    return json.loads(open("val.jsonl").readlines()[-1])["val_loss"]
# one step at a rate of nothing leaves the model as it is
losses = [val(batch) for batch in ("1", "4", "5", "32", "50")]
if max(losses) - min(losses) > 1e-6: print(losses)' "$gpt_train" "${model[@]}" --data raw.bin --val-data val.bin \
    --steps 1 --lr 1e-30 --eval-iters 0

# Loss masks: documents of unequal length, trained on in part.
python3 - <<'END'
import struct
def idx(code, size, lengths):
    starts = [size * sum(lengths[:i]) for i in range(len(lengths))]
    return struct.pack(f"<9sQBQQ{len(lengths)}i{len(lengths)}q{len(lengths) + 1}q", b"MMIDIDX\0\0", 1,
                       code, len(lengths), len(lengths) + 1, *lengths, *starts, *range(len(lengths) + 1))
for name in "chat", "same":
    open(name + ".bin", "wb").write(open("u16.bin", "rb").read())
    open(name + ".idx", "wb").write(open("u16.idx", "rb").read())
mask = bytes(i % 50 > i // 50 for i in range(2001))
open("chat.loss.bin", "wb").write(mask); open("chat.loss.idx", "wb").write(idx(1, 1, [2001]))
for name, marks in ("none", bytes(2001)), ("few", bytes(16 * 60) + bytes([1] * (2001 - 16 * 60))):
    for end in "bin", "idx": open(f"{name}.{end}", "wb").write(open(f"u16.{end}", "rb").read())
    open(name + ".loss.bin", "wb").write(marks); open(name + ".loss.idx", "wb").write(idx(1, 1, [2001]))
open("same.loss.bin", "wb").write(bytes([1] * 2001)); open("same.loss.idx", "wb").write(idx(1, 1, [2001]))
END
masked=("${model[@]}" --data chat.idx --steps 12 --eval-interval 12 --eval-iters 0 --global-batch-size 16)
run "loss masks" "${masked[@]}" --log-jsonl masked.jsonl
shows "which is said" "^data: Megatron with loss masks: 1801 tokens, 112 windows,"
python "the loss is a mean over what is trained on" '
import json, math
for row in map(json.loads, open("masked.jsonl")):
    if row.get("step") in (1, 12):
        for key in ("loss", "val_loss"):
            if abs((row.get(key) or 5.7) - math.log(301)) > 0.1: print(row["step"], key, row[key])'
while read -r mesh; do
    # shellcheck disable=SC2086 # flags and their values
    rm -f other.jsonl
    run "on $mesh" "${masked[@]}" $mesh --log-jsonl other.jsonl
    python "the same bits" "$same" masked.jsonl other.jsonl
done < <(some <<'END'
--micro-batch-size 1
--micro-batch-size 4 --tp 2
--dp 8
--dp 4 --micro-batch-size 2 --strategy zero1
END
)
run "a mask that masks nothing" "${model[@]}" --data same.idx --steps 3 --log-jsonl nothing.jsonl
python "changes nothing" "$same" raw.jsonl nothing.jsonl
# A mean over nothing is none: of a step, which is reported; of a run and of an evaluation, which are refused.
few=("${model[@]}" --data few.idx --steps 6 --eval-interval 0 --global-batch-size 1)
run "steps of which nothing counts" "${few[@]}" --log-jsonl few.jsonl --tensorboard few --digest
shows "they have no loss" "^step [1-6]/6  loss none  norm 0.000 " "^step [1-6]/6  loss [0-9.]+  norm [0-9.]*[1-9]"
result "which is said once" "$(grep -c "warning: no token of the batch of step [1-6] is trained on" err | grep -vx 1)"
python "nor in the log" '
import json
rows = [row for row in map(json.loads, open("few.jsonl")) if "step" in row]
if not {row["loss"] is None for row in rows} == {True, False}: print(rows)
if any((row["loss"] is None) != (row["grad_norm"] == 0) for row in rows): print(rows)'
grep -o '^step.*  lr\|digest .*' out >few.txt
for way in "--tp 2" "--pp 2" "--pp 3 --pp-schedule zb-h1"; do
    # shellcheck disable=SC2086
    run "the same with $way" "${few[@]}" $way --digest
    result "no other digest" "$(grep -o '^step.*  lr\|digest .*' out | diff few.txt -)"
done
refuse "data of which nothing is trained on" 3 "no token of the data is trained on .loss masks" "${model[@]}" --data none.idx
refuse "validation of which nothing counts" 3 "no token counts in the 8 batches of an evaluation .loss masks.*no validation loss" \
    "${model[@]}" --data same.idx --val-data none.idx --save-best --save none_best
cp same.loss.idx u16.loss.idx
head -c 2000 same.loss.bin >u16.loss.bin
refuse "a mask that is cut short" 3 "u16.loss.idx: .*2001 tokens of 1 bytes it ends outside" "${model[@]}" --data u16.idx
rm u16.loss.*

# What docs/data.md shows: a pair that Python writes, and what the script prints.
page=$reference/../../docs/data.md
# shellcheck disable=SC2016 # the page has backquotes
sed -n '/^```python$/,/^```$/p' "$page" | grep -v '^```' >write.py
python3 write.py
run "the pair of the page" "${model[@]}" --data x.idx --val-fraction 0 --seq-len 2 --steps 1
shows "its documents" "^data: Megatron: 5 tokens, 2 windows,"
python "the script of the page" '
import re, subprocess, sys
page = open(sys.argv[1]).read()
command, shown = re.search(r"    \$ (python3 scripts/proofs/data_order.py .*)\n((?:    .*\n)+)", page).groups()
root = sys.argv[1].rsplit("/docs/", 1)[0]
printed = subprocess.run(command, shell=True, cwd=root, capture_output=True, text=True).stdout
if not printed or printed.split() != shown.split(): print(printed, shown)' "$page"

# A sample of a model with token ids: its tokenizer makes text of them, on any layout the same.
tokenizers=$(dirname "$0")/../text/tokenizers
for layout in "--tp 1" "--tp 2 --dp 2" "--pp 2 --tp 2"; do
    # shellcheck disable=SC2086 # flags
    run "a sample of ids, $layout" --vocab-size 401 "${model[@]:2}" --data raw.bin --steps 2 $layout \
        --sample 12 --tokenizer "$tokenizers/gpt2.json" --sample-prompt "the text"
    sed -n '/^--- sample/,$p' out >"sample_${layout// /}.txt"
    shows "its prompt" "^the text"
    result "the same text" "$(diff sample_--tp1.txt "sample_${layout// /}.txt")"
done
refuse "another model's tokenizer" 2 "tokenizers/gpt2.json has 401 ids, and the model 301: it is another" \
    "${model[@]}" --data raw.bin --sample 5 --tokenizer "$tokenizers/gpt2.json"
refuse "a tokenizer that is none" 3 "raw.bin.*; --sample 5 needs the model.s tokenizer: give --tokenizer PATH" "${model[@]}" --data raw.bin \
    --sample 5 --tokenizer raw.bin

# Documents that see themselves alone: one number on every layout, and another one than without.
documents=(--data u16.idx --documents mask --seq-len 150 --vocab-size 301 --n-layer 2 --n-head 4 --n-embd 16
    --global-batch-size 4 --steps 2 --eval-interval 1 --eval-iters 0 --digest)
run "documents masked" "${documents[@]}" --log-jsonl apart.jsonl
shows "validation begins with a window" "^data: u16.bin: 1801 tokens to train on, 201 to validate on"
run "documents ignored" "${documents[@]}" --documents ignore --log-jsonl ignored.jsonl
result "are another computation" "$(cmp -s apart.jsonl ignored.jsonl && echo the same; python3 -c "$same" apart.jsonl ignored.jsonl | grep digest >/dev/null || echo no other digest)"
while read -r layout; do
    # shellcheck disable=SC2086
    rm -f apart2.jsonl
    run "documents apart, $layout" "${documents[@]}" $layout --log-jsonl apart2.jsonl
    python "the same numbers: $layout" "$same" apart.jsonl apart2.jsonl
done < <(some <<'END'
--tp 2 --dp 2
--tp 4 --sequence-parallel --micro-batch-size 1
--pp 2 --micro-batch-size 2 --recompute block
--pp 3 --micro-batch-size 2 --pp-split 1,2,1
--pp 2 --tp 2 --sequence-parallel --micro-batch-size 1 --recompute stage --pp-schedule interleaved
--dp 2 --strategy no_shard --micro-batch-size 1 --recompute attention
END
)
run "the plan of documents" "${documents[@]}" --pp 2 --tp 2 --micro-batch-size 1 --report-json ran.json --rank 1
run "beside what is run" "${documents[@]}" --pp 2 --tp 2 --micro-batch-size 1 --plan --json plan.json --rank 1
python "memory and traffic are the plan's" '
import json
plan, ran = (json.load(open(name)) for name in ("plan.json", "ran.json"))
same = [key for key in ran if key in plan and key not in ("options",)]
for key in ("memory", "collectives"):
    if key not in same: print("no", key, "in", list(plan), list(ran))
    elif plan[key] != ran[key]: print(key, plan[key], ran[key])'
refuse "documents of text" 2 "--documents mask is for token ids, and --data is text" --data text.txt --documents mask --steps 1
refuse "documents without a source" 2 "not all files of --data say where documents begin, .*: give --tokenizer PATH" \
    "${model[@]}" --data raw.bin --documents mask --steps 1
refuse "nor their tokenizer" 2 "gpt2.json has no end of text that could end documents" "${model[@]}" --vocab-size 401 --data raw.bin --documents mask --steps 1 --tokenizer "$tokenizers/gpt2.json"

# A run whose sample asks whether its data are text has them open once. Of each kind of event in a row inotify tells one: it watches reads, too.
python "data are opened once" '
import ctypes, os, subprocess, sys, threading, time
libc, seen = ctypes.CDLL(None), []
watch = libc.inotify_init()
libc.inotify_add_watch(watch, b"text.txt", 0x20 | 0x10 | 0x1)
def read():
    while True:
        events = os.read(watch, 4096)
        seen.extend(int.from_bytes(events[at + 4:at + 8], sys.byteorder) for at in range(0, len(events), 16))
threading.Thread(target=read, daemon=True).start()
done = subprocess.run([*sys.argv[1:], "--steps", "1", "--sample", "2", "--seq-len", "16", "--eval-interval", "0"], capture_output=True, text=True)
time.sleep(.1)
opened = sum(event & 0x20 != 0 for event in seen)
if done.returncode or opened != 1: print(opened, seen, done.stderr)' "$gpt_train" --data text.txt

# What cannot be.
refuse "ids of an unknown vocabulary" 2 "raw.bin does not say what it has: .*--vocab-size N" --data raw.bin
refuse "an id beyond the vocabulary" 3 \
    "gpt2.bin: token [0-9]+ has id 2[0-9]+, and the model's vocabulary has 260: use the tokenizer" \
    --data gpt2.bin --vocab-size 260 "${model[@]:2}" --steps 3
refuse "ids as a sample" 2 "--sample 5 needs text as token ids or ids as text, and no tokenizer is known" "${model[@]}" --data raw.bin --sample 5
refuse "text beside ids" 2 "--data, source data: .*text.txt has text" "${model[@]}" --data raw.bin text.txt
head -c 100 u16.idx >cut.idx
cp u16.bin cut.bin
refuse "an .idx file that is cut short" 3 "cut.idx: its count of sequences is 9, which take 12 bytes each" "${model[@]}" --data cut.idx
finish
