#!/usr/bin/env python3
"""chat_check.py GPT_DATA FOLDER.. | --templates TEST_JINJA FILE.. - chat templates, against transformers.

With --templates: conversations with tools, reasoning and parts, rendered from files of Jinja by tests/test_jinja of a build
and by transformers; how many are equal is printed.

For each folder with a tokenizer and a chat template: 300 random conversations have the ids of apply_chat_template, and
what is trained of them is what the assistant says, with the token that ends its turn. It needs transformers.
"""
import importlib.util
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

sys.path.pop(0)  # scripts beside this one have the names of packages
if len(sys.argv) < 3:
    sys.exit(__doc__)
if not importlib.util.find_spec("transformers"):
    sys.exit("chat_check.py: missing: transformers (pip install transformers)")
import transformers

LETTERS = "ab .,\n\t'0123<|>naïveé東京\U0001f600ÀÖ"


def conversations(draw, system):
    for _ in range(300):
        text = lambda: "".join(draw.choices(LETTERS, k=draw.randrange(1, 40)))
        turns = [{"role": "system", "content": text()}] if system and draw.random() < 0.3 else []
        for _ in range(draw.randrange(1, 5)):
            turns += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
        yield turns


def numbers(path):
    index, data = (pathlib.Path(f"{path}.{end}").read_bytes() for end in ("idx", "bin"))
    form = {1: "B", 4: "i", 8: "H"}[index[17]]
    count = struct.unpack_from("<Q", index, 18)[0]
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    values, at = struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data), 0
    for n in lengths:
        yield list(values[at:at + n])
        at += n


def check(program, folder):
    draw = random.Random(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    wanted = list(conversations(draw, True))
    wrong = 0
    with tempfile.TemporaryDirectory() as where:
        rows = pathlib.Path(where) / "rows.jsonl"
        rows.write_text("".join(json.dumps({"messages": turns}) + "\n" for turns in wanted))
        out = pathlib.Path(where) / "out"
        said = subprocess.run([program, "chat", str(rows), "--tokenizer", folder, "--output", str(out), "--threads", "2"],
                              check=True, capture_output=True, text=True).stdout
        for turns, ids, trained in zip(wanted, numbers(out), numbers(f"{out}.loss")):
            theirs = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)
            answers = [t["content"] for t in turns if t["role"] == "assistant"]
            runs, before = [], 0
            for i, one in zip(ids, trained):
                runs += [[]] if one and not before else []
                if one:
                    runs[-1].append(i)
                before = one
            same = len(runs) == len(answers) and all(
                a.strip() in tokenizer.decode(r) and len(tokenizer.decode(r)) <= len(a) + 20 for a, r in zip(answers, runs))
            wrong += ids != theirs or len(ids) != len(trained) or not same
    print(("FALSE " if wrong else "ok    ") + f"{folder}: {wrong} of {len(wanted)} differ; {said.strip().split(',')[-1].strip()}")
    return wrong


if sys.argv[1] == "--templates":
    make = pathlib.Path(__file__).resolve().parents[2] / "tests/text/jinja/make.py"
    with tempfile.TemporaryDirectory() as where:
        cases = pathlib.Path(where) / "cases.json"
        subprocess.run([sys.executable, str(make), str(cases), *sys.argv[3:]], check=True, stderr=subprocess.DEVNULL)
        sys.exit(subprocess.run([sys.argv[2], str(cases)]).returncode)
sys.exit(1 if sum(check(sys.argv[1], folder) for folder in sys.argv[2:]) else 0)
