#!/bin/bash
# test_gpt_data.sh GPT_DATA [--sanitized] - gpt_data as a user meets it: texts as token ids, vocabularies of one's own,
# mistakes. Where it was built without PCRE2 there are bytes alone.
#
# ctest: arguments gpt_data sanitized, cost 50, timeout 120
set -uo pipefail

program=$1
# Conversations: four blocks of them; under a sanitizer two, which have a seam as well.
chats=20000
[ -z "${2:-}" ] || chats=7000
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/apps/tool_cases.sh
. "$here/tool_cases.sh"

tool "help" 0 --help
says out '^Usage: gpt_data ' 'gpt_data train-bpe web'

# same NAME FILE FILE: two files are equal.
same()
{
    result "$1" "$(cmp "$2" "$3" 2>&1 || echo "they differ")"
}

# Some 2 MB, so that there are several blocks, with words that most tokenizers cut in several.
awk 'BEGIN { srand(5); for (i = 0; i < 300000; i++) { n = int(rand() * 2000); printf "w%xx%s", n * n, i % 17 ? " " : ".\n" } }' >text.txt
printf '{"text": "first \\u00e9t\\u00e9", "n": 1}\n\n{"n": 2, "text": "a\\nb<|endoftext|>"}\n{"text": ""}' >rows.jsonl
sed 's/"text"/"body"/' rows.jsonl >other.jsonl

if ! grep -q libpcre2 <<<"$(ldd "$program")"; then # a pipe would end ldd at the first match
    tool "bytes alone" 0 tokenize text.txt --output b --threads 2
    same "they are the file" text.txt b.bin
    tool "no vocabulary" 2 train-bpe text.txt --output bpe
    says err 'this needs PCRE2, which was not there when this program was built .Debian: libpcre2-dev.'
    finish
fi

for threads in 1 2 5; do
    tool "a vocabulary, $threads threads" 0 train-bpe text.txt rows.jsonl --vocab-size 400 --output "bpe$threads" --threads $threads
    says out "^bpe$threads/tokenizer.json: a vocabulary of 400$"
done
tool "files in another order" 0 train-bpe rows.jsonl text.txt --vocab-size 400 --output bpe0 --threads 2
for other in 0 2 5; do
    same "one vocabulary: $other" bpe1/tokenizer.json bpe$other/tokenizer.json
done
head -c 4000 text.txt >short.txt
printf "aaaa aaa I'll WE'RE 12345 x\n\n\n  y\t z!!\r\n aaaa" >>short.txt
tool "a vocabulary of few words" 0 train-bpe short.txt --vocab-size 330 --output short
python3 "$here/train_bpe.py" 330 short.txt >wanted
python3 - >found <<'END'
import json
model = json.load(open("short/tokenizer.json"))["model"]
letters = {}
for token, i in model["vocab"].items():
    if i < 256:
        letters[token] = i
for left, right in model["merges"]:
    print(bytes(letters[c] for c in left).hex(), bytes(letters[c] for c in right).hex())
END
same "merges are those of a plain program" wanted found
result "there are merges" "$([ "$(wc -l <found)" = 73 ] || wc -l found)"

for threads in 1 2 5; do
    tool "tokens, $threads threads" 0 tokenize text.txt rows.jsonl --tokenizer bpe1 --output "t$threads" --append-eod --threads $threads
    says out "^t$threads.bin: [0-9]+ tokens, 4 documents, a vocabulary of 400$"
    same "one file of tokens: $threads" t1.bin t$threads.bin
    same "one index: $threads" t1.idx t$threads.idx
done
tool "what it has" 0 show t1
says out '^t1.bin: [0-9]+ tokens of 2 bytes, 4 sequences, 4 documents$'
tool "a document of lines" 0 show t1 --document 1 --tokenizer bpe1
says out '^first été<.endoftext.>$'
tool "a document of one file" 0 show t1 --document 0 --tokenizer bpe1
{ cat text.txt && printf '<|endoftext|>\n'; } >whole
same "it comes back" out whole
tool "special tokens are text" 0 show t1 --document 2
result "and no ids" "$(grep -oE '\b399\b' out | wc -l | grep -qx 1 || cat out)"
tool "or ids" 0 tokenize rows.jsonl --tokenizer bpe1 --output s --special-tokens
tool "where that is asked for" 0 show s --document 1
says out ' 399$'
printf 'a  text that   begins' >blanks.txt
tool "words with blanks" 0 tokenize blanks.txt --tokenizer "$(dirname "$0")/../text/tokenizers/llama2.json" --output blanks
tool "as text" 0 show blanks --document 0 --tokenizer "$(dirname "$0")/../text/tokenizers/llama2.json"
printf '<s>a  text that   begins\n' >whole
result "have them still" "$(sed 's/^<s> *//' whole | diff - <(sed 's/^<s> *//' out))"
printf '\xff\xe2\x82caf\xc3' >cut.txt
tool "bytes that are no text" 0 tokenize cut.txt --tokenizer bytes --output cut
tool "as text" 0 show cut --document 0 --tokenizer bytes
printf '\xef\xbf\xbd\xef\xbf\xbdcaf\xef\xbf\xbd\n' >whole
same "are one U+FFFD for each character" out whole
tool "another key" 0 tokenize other.jsonl --jsonl-key body --output b
tool "bytes" 0 show b --document 0
says out '^102 105 114 115 116 32 195 169 116 195 169$'

# What files are is known by what they have; rows that are none stop a corpus, or are left out and counted.
printf '{"text": "ab"}\n{"text": "cd"}\n' >rows.JSONL
cp rows.JSONL rows.json && cp rows.JSONL rows.txt && printf '\xef\xbb\xbf' | cat - rows.JSONL >mark.jsonl
for name in rows.JSONL rows.json rows.txt mark.jsonl; do
    tool "rows of $name" 0 tokenize $name --output kind
    says out '^kind.bin: 4 tokens, 2 documents'
done
printf '[{"text": "ab"}]' >list.json
tool "a list" 2 tokenize list.json --output y
says err '^gpt_data: list.json is one value of JSON: .* jq -c'
gzip -c rows.JSONL >rows.jsonl.gz
tool "what is compressed" 2 tokenize rows.jsonl.gz --output y
says err '^gpt_data: rows.jsonl.gz is compressed by gzip: give what gzip -dc FILE writes$'
printf 'PAR1xyz' >rows.parquet
tool "columns" 2 tokenize rows.parquet --output y
says err 'rows.parquet is a Parquet file'
printf '{"text": "ab"}\n{"text": "\\ud800"}\n{"text": "cd", "x": NaN}\n{"text": 1}\n{"text": "ef"}\n' >bad.jsonl
tool "a bad row" 3 tokenize bad.jsonl --output y
says err '^gpt_data: bad.jsonl:2: '
tool "that stops" 3 tokenize bad.jsonl --output y --on-bad-row stop
for threads in 1 3; do
    tool "that is left out" 0 tokenize bad.jsonl bad.jsonl --output skipped --on-bad-row skip --threads $threads
    says out '^skipped.bin: 8 tokens, 4 documents'
    says err '^gpt_data: left out 6 bad rows, the first: bad.jsonl:2: '
done
printf '{"text": ""}\n{"text": "ab"}\n' >empty.jsonl
tool "an empty document" 0 tokenize empty.jsonl --output skipped
says err '^gpt_data: left out 1 of 2 documents: they are empty$'
tool "a word that is none" 2 tokenize bad.jsonl --output y --on-bad-row drop
says err '--on-bad-row drop is none of stop and skip'
tool "which show has not" 2 show t1 --on-bad-row skip
printf '{"messages": [{"role": "user", "content": "a"}]}\n{"prompt": "ab", "completion": "cd"}\n{"prompt": "\\ud800"}\n' >badchat.jsonl
tool "conversations that are left out" 0 chat badchat.jsonl --chat-template chatml --output badchat --on-bad-row skip
says out ' 1 conversations by the template chatml$'
says err 'left out 2 bad rows, the first: badchat.jsonl:1: no turn of an assistant is trained'

# Conversations, and what of them is trained.
awk -v n=$chats 'BEGIN { for (i = 0; i < n; i++) printf "{\"messages\": [{\"role\": \"user\", \"content\": \"q %d\"}, {\"role\": \"assistant\", \"content\": \"a %d\"}, {\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}\n", i, i * i }' >chats.jsonl
for threads in 1 3; do
    tool "conversations, $threads threads" 0 chat chats.jsonl --chat-template chatml --output "c$threads" --threads $threads
    says out "^c$threads.bin: [0-9]+ tokens, of which [0-9]+ are trained, $chats conversations by the template chatml$"
    for part in bin idx loss.bin loss.idx; do
        same "one $part: $threads" c1.$part c$threads.$part
    done
done
printf '{"prompt": "ab", "completion": "cd"}\n' >pair.jsonl
tool "a pair" 0 chat pair.jsonl --chat-template chatml --output pair
result "what it trains" "$(python3 -c '
data, mask = (open("pair" + end, "rb").read() for end in (".bin", ".loss.bin"))
said = bytes(c for c, one in zip(data, mask) if one)
if said != b"cd<|im_end|>" or len(data) != len(mask): print(said, len(data), len(mask))' 2>&1)"
tool "the last turn" 0 chat chats.jsonl --chat-template chatml --output last --train last
says out " of which $((11 * chats)) are trained, "
tool "all of it" 0 chat pair.jsonl --chat-template chatml --output all --train all
says out '^all.bin: ([0-9]+) tokens, of which \1 are trained, '
mkdir folder && cp bpe1/tokenizer.json folder
tool "no template" 2 chat pair.jsonl --tokenizer folder --output z
says err 'no chat template beside folder: --chat-template takes one of smollm2, '
echo "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_end|>' }}{% endfor %}" >folder/chat_template.jinja
tool "one that drops what is said" 2 chat pair.jsonl --tokenizer folder --output z
says err 'pair.jsonl:1: the chat template folder/chat_template.jinja does not write what a user says'
echo "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content | trim }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}{% if name %}{{ name }}{% endif %}" >folder/chat_template.jinja
printf '{"bos_token": "<s>", "eos_token": {"content": "</s>"}}' >folder/tokenizer_config.json
tool "the folder's" 0 chat pair.jsonl --tokenizer folder --output z
says out 'by the template folder/chat_template.jinja$'
tool "a file" 0 chat pair.jsonl --chat-template folder/chat_template.jinja --chat-template-kwargs '{"bos_token": "B", "eos_token": "E"}' --output z
result "what the file writes and trains" "$(python3 -c '
data, mask = (open("z" + end, "rb").read() for end in (".bin", ".loss.bin"))
if data != b"Buser:abEassistant:cdE" or bytes(c for c, one in zip(data, mask) if one) != b"cdE": print(data, mask)' 2>&1)"
tool "a variable that is none" 2 chat pair.jsonl --chat-template folder/chat_template.jinja --chat-template-kwargs '{"think": 1}' --output y
says err 'think: is no variable of the chat template folder/chat_template.jinja'
echo '{{ messages }}{% include "a" %}' >folder/chat_template.jinja
tool "one that cannot be run" 2 chat pair.jsonl --tokenizer folder --output y
says err 'folder/chat_template.jinja:1:18: the statement include is not supported'
printf '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "ab", "weight": 0}, {"role": "assistant", "content": "cd"}], "rating": 1}\n' >weights.jsonl
tool "a field that is not known" 2 chat weights.jsonl --chat-template chatml --output y
says err 'weights.jsonl:1: rating: is a field that is not known here .* --ignore-fields rating'
tool "a weight" 0 chat weights.jsonl --chat-template chatml --ignore-fields rating --output z
says out ' of which 12 are trained, '
tool "a text of each turn" 0 chat chats.jsonl --chat-template chatml --output each --train each
says out ", $((2 * chats)) conversations by the template chatml$"
printf '{"messages": [{"role": "user", "content": "a"}]}\n' >only.jsonl
tool "no answer" 3 chat only.jsonl --chat-template chatml --output y
says err '^gpt_data: only.jsonl:1: no turn of an assistant is trained'
printf '\n{"messages": [{"role": "assistant", "content": "a"}]}\n' >only.jsonl
tool "turns in the wrong order" 3 chat only.jsonl --chat-template gemma --output y
says err '^gpt_data: only.jsonl:2: gemma:1:[0-9]+: the template refuses this: roles must alternate'
tool "a role that is none" 2 chat rows.jsonl --chat-template nobody --output y
says err 'there is no chat template nobody'
tool "a text" 2 chat text.txt --chat-template chatml --output y
says err 'text.txt does not end in .jsonl'
tool "what is trained" 2 chat pair.jsonl --chat-template chatml --output y --train some
says err '--train some is none of assistant, last, each and all'
tool "flags of chat" 2 tokenize text.txt --output y --train all
says err '--chat-template, --chat-template-kwargs, --ignore-fields and --train are of chat'
tool "another key of chats" 2 chat pair.jsonl --chat-template chatml --output y --jsonl-key a
says err '--jsonl-key is of texts'
result "nothing is left of those" "$(find . -name 'y.*')"

# Windows of documents: each stands whole in one of them, with its mask; every window is full.
for threads in 1 3; do
    tool "a mask of $threads threads" 0 chat chats.jsonl --chat-template chatml --output "d$threads" --threads $threads
    tool "packed" 0 pack "d$threads" --seq-len 4000 --output "packed$threads"
    says out "^packed$threads.bin: [0-9]+ windows of 4000 tokens, $chats documents, [0-9]+ tokens are trained, [0-9]+ .[0-9.]+ %. are padding$"
done
for part in bin idx loss.bin loss.idx; do
    same "one $part of windows" packed1.$part packed3.$part
done
cat >packed.py <<'END'
import collections, struct, sys
def documents(prefix):
    index, data = (open(prefix + end, "rb").read() for end in (".idx", ".bin"))
    n, at, found = struct.unpack_from("<q", index, 18)[0], 0, []
    for length in struct.unpack_from(f"<{n}i", index, 34):
        found.append(data[at:at + length])
        at += length
    return found
given, room = sys.argv[1], int(sys.argv[2])
have, marks = documents(given), documents(given + ".loss")
put, put_marks = documents("packed1"), documents("packed1.loss")
if [len(d) for d in put] != [len(d) for d in put_marks]: print("the mask has other documents")
wanted = collections.Counter((d, b"\0" + m[1:]) for d, m in zip(have, marks))
got = collections.Counter(pair for pair in zip(put, put_marks) if any(pair[0]))
if got != wanted: print("other documents", list((wanted - got).items())[:2], list((got - wanted).items())[:2])
at, windows = 0, set()
for d in put:
    if at // room != (at + len(d) - 1) // room: print("a document lies over two windows, at", at)
    at += len(d)
if at % room != 1: print(at, "tokens")
least = -(-sum(map(len, have)) // room)
if at // room > least * 1.02 + 1: print(at // room, "windows, of at least", least)
END
result "documents stand whole in windows" "$(python3 packed.py d1 4000 2>&1)"
tool "documents that are too long" 2 pack t1 --seq-len 100 --output y
says err 'document 0 of t1 has [0-9]+ tokens, and a window 100: give a greater --seq-len, or --long cut'
tool "are cut" 0 pack t1 --seq-len 100 --long cut --output cut
says out '^cut.bin: [0-9]+ windows of 100 tokens, 4 documents, of which 1 are cut, '
tool "no length" 2 pack t1 --output y
says err 'pack: --seq-len is missing'
tool "neither cut nor refused" 2 pack t1 --seq-len 9 --output y --long some
says err '--long some is none of cut and refuse'
tool "lengths of others" 2 show t1 --seq-len 9
says err '--seq-len and --long are of pack'
tool "nothing to pack" 3 pack missing --seq-len 9 --output y

tool "no command" 2
says err 'a command is missing'
tool "no such command" 2 unpack x --output y
says err 'unpack is no command: there are tokenize, chat, pack, show and train-bpe'
tool "no output" 2 tokenize text.txt
says err '--output is missing'
tool "no file" 2 tokenize --output x
says err 'no file was given'
tool "a flag of another command" 2 show t1 --append-eod
says err '--append-eod and --special-tokens are of tokenize'
tool "a vocabulary that is too small" 2 train-bpe text.txt --vocab-size 256 --output x
says err '--vocab-size 256: a whole number from 257'
tool "no end of text" 2 tokenize text.txt --output x --append-eod
says err '--append-eod: the tokenizer of bytes does not say which token ends a text'
tool "no such file" 3 tokenize missing --output x
says err 'missing: No such file or directory'
tool "no regular file" 3 tokenize /dev/null --output x
says err '/dev/null is not a regular file'
tool "no such key" 3 tokenize rows.jsonl --output x --jsonl-key body
says err 'rows.jsonl:1: the key "body" is missing: --jsonl-key names'
tool "a file of a pair" 3 show t1.bin
says err 't1.bin.idx: No such file or directory: PREFIX is a name without .bin and .idx'
printf '{"text": "a"}\n{"text": "b}\n' >bad.jsonl
tool "a line that is no JSON" 3 tokenize text.txt bad.jsonl --output x --threads 2
says err 'bad.jsonl:2: no JSON that can be used'
tool "no such document" 2 show t1 --document 4
says err 't1.idx has 4 documents, from 0 on'
tool "no such tokenizer" 3 tokenize text.txt --tokenizer missing --output x
says err 'missing: No such file or directory: a tokenizer is a folder .* none is fetched by its name'
# Blocks are done in any order, and the error that is reported is the first in the order of the files.
awk 'BEGIN { for (i = 1; i <= 90000; i++) printf "{\"text\": \"row %d of many, each of which is some forty bytes long\"%s\n", i, i == 70000 || i == 85000 ? "" : "}" }' >late.jsonl
for threads in 1 2 5; do
    tool "a line of a late block, $threads threads" 3 tokenize rows.jsonl late.jsonl missing --output x --threads $threads
    says err '^gpt_data: late.jsonl:70000: no JSON that can be used'
    (ulimit -f 1000 && exec "$program" tokenize text.txt text.txt text.txt --output x --threads $threads) >out 2>err
    status=$?
    result "no room, $threads threads" "$([ $status = 3 ] || echo "exit status $status"; grep -q 'cannot write x.bin: File too large' err || cat err)"
    result "and nothing is left, $threads threads" "$(ls x.* 2>/dev/null)"
done
if [ -s /proc/version ]; then
    tool "a size that is not that" 3 tokenize /proc/version --output x
    says err '/proc/version: its size is 0, and there are bytes in it'
fi
split -b 997 -d -a 4 text.txt small.
printf 'é' >accent
head -c 1 accent >half.1 && tail -c 1 accent >half.2
for threads in 1 3; do
    tool "many small files, $threads threads" 0 tokenize small.* half.? --tokenizer bpe1 --output "small$threads" --threads $threads
done
same "they are in order" small1.bin small3.bin
same "and so are their ends" small1.idx small3.idx
result "nothing is left of what failed" "$(ls | grep '^\.\?x' || true)"
finish
