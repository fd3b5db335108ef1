#!/usr/bin/env python3
"""
make.py TEXT - writes the small tokenizers of this folder and, beside each, strings with the ids that
tokenizers, sentencepiece and tiktoken give them. Run it with the environment that scripts/peers/tokenizers.py
makes: build/tokenizers/venv/bin/python tests/text/tokenizers/make.py TEXT, where TEXT is some prose.

    .. make.py --more

writes those that are made of the others, and of characters that are younger than some PCRE2's: that takes transformers, too.

A line of NAME.ids is the string in hexadecimal, "|" and its ids; special tokens in it are recognised where
NAME is a tokenizer.json, and the ids of a template are there.
"""
import base64
import importlib.util
import json
import pathlib
import re
import sys

import sentencepiece
import tiktoken
import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("oracle", HERE.parents[2] / "scripts/peers/tokenizers.py")
ORACLE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ORACLE)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
CUT_LEVEL = dict(LEVEL, use_regex=False)


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def added(ids, **more):
    standard = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [dict(standard, id=i, content=text, **more.get(text, {})) for text, i in ids.items()]


def train(texts, size, pre, **model):
    """A vocabulary of BPE, by tokenizers' own trainer."""
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": pre, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": False, "vocab": {}, "merges": []}}
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(data))
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet() if "ByteLevel" in json.dumps(pre) else []
    tokenizer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=alphabet))
    trained = json.loads(tokenizer.to_str())
    trained["model"].update(model)
    return trained


def record(name, encode, special):
    write(name, encode, [*ORACLE.random_strings(160, special, sum(map(ord, name))), b"", b"a" * 300, b" " * 200, "é".encode() * 120, b"Hello, world! I'll DON'T  go.\n\n x",
                 "nai\u0308ve words word's 'word' naïveté".encode()])


def write(name, encode, strings):
    lines = []
    for text in strings:
        ids = encode(text.decode("utf-8", "replace"))
        lines.append(f"{text.hex()}|{' '.join(map(str, ids))}\n")
    (HERE / f"{name}.ids").write_text("".join(lines))


def hf(name, data):
    path = HERE / f"{name}.json"
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    record(name, lambda text: tokenizer.encode(text).ids, [t["content"] for t in data["added_tokens"]])


def byte_level(texts):
    gpt2 = train(texts, 400, LEVEL)
    gpt2["decoder"] = LEVEL
    gpt2["added_tokens"] = added({"<|endoftext|>": 400})
    hf("gpt2", gpt2)
    smollm = train(texts, 380, sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, LEVEL))
    smollm.update(decoder=LEVEL, added_tokens=added({"<|im_start|>": 380, "<|im_end|>": 381}))
    hf("smollm", smollm)
    llama = train(texts, 400, sequence("pretokenizers", split(LLAMA3), CUT_LEVEL), ignore_merges=True)
    begin = {"id": "<|begin|>", "ids": [400], "tokens": ["<|begin|>"]}
    llama.update(decoder=LEVEL, added_tokens=added({"<|begin|>": 400, "<|end|>": 401}), post_processor=sequence(
        "processors", LEVEL, {
            "type": "TemplateProcessing", "special_tokens": {"<|begin|>": begin},
            "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}))
    hf("llama3", llama)
    qwen = train(texts, 360, sequence("pretokenizers", split(QWEN), CUT_LEVEL))
    tokens = {"<left>": 360, "<right>": 361, "word": 362, "naïve": 363, "  ": 364}
    qwen.update(decoder=LEVEL, normalizer={"type": "NFC"}, added_tokens=added(tokens, **{
        "<left>": {"lstrip": True}, "<right>": {"rstrip": True}, "word": {"single_word": True, "special": False},
        "naïve": {"normalized": True, "special": False}, "  ": {"normalized": True, "special": False}}))
    hf("qwen", qwen)
    o200k = train(texts, 360, sequence("pretokenizers", split(O200K), CUT_LEVEL))
    hf("o200k", dict(o200k, decoder=LEVEL))
    deepseek = train(texts, 360, sequence(
        "pretokenizers", split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
        split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
              "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), CUT_LEVEL))
    hf("deepseek", dict(deepseek, decoder=LEVEL))
    front = train(texts, 330, dict(LEVEL, add_prefix_space=True))
    hf("front", dict(front, decoder=LEVEL, added_tokens=added({"<x>": 330})))
    odd = train(texts, 330, sequence("pretokenizers", split(r"\s+", "MergedWithNext"), split("[aeiou]", "MergedWithPrevious"),
                                     split("[-,;]", "Removed"), split("[^q]+", "Removed", True), CUT_LEVEL))
    hf("odd", dict(odd, decoder=LEVEL))


def characters(texts):
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    words = train(texts, 300, metaspace, unk_token="<unk>", fuse_unk=True)
    words["model"]["vocab"]["<unk>"] = 300
    hf("metaspace", dict(words, decoder=metaspace, added_tokens=added({"<unk>": 300, "</s>": 301})))
    metaspace = dict(metaspace, prepend_scheme="always")
    llama = train(texts, 300, metaspace, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    for token in [*(f"<0x{byte:02X}>" for byte in range(256)), "<unk>", "<s>"]:
        llama["model"]["vocab"][token] = len(llama["model"]["vocab"])
    ids = {token: llama["model"]["vocab"][token] for token in ("<unk>", "<s>")}
    begin = {"id": "<s>", "ids": [ids["<s>"]], "tokens": ["<s>"]}
    llama.update(
        added_tokens=added(ids), pre_tokenizer=None,
        normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
        decoder=sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                         {"type": "ByteFallback"}, {"type": "Fuse"},
                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        post_processor={"type": "TemplateProcessing", "special_tokens": {"<s>": begin},
                        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]})
    hf("llama2", llama)


def sentencepieces(texts):
    for name, options in {"pieces": {"byte_fallback": True, "vocab_size": 700, "user_defined_symbols": ["[INST]", "ing"]},
                          "pieces_unknown": {"vocab_size": 300, "add_dummy_prefix": False, "character_coverage": 0.99}}.items():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_prefix=str(HERE / name), model_type="bpe", minloglevel=2,
            normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1, **options)
        (HERE / f"{name}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(HERE / f"{name}.model"))
        record(name, lambda text, model=model: [model.bos_id(), *model.encode(text)], ["[INST]", "ing"])


def tekken(texts):
    trained = train(texts, 320, sequence("pretokenizers", split(TEKKEN), CUT_LEVEL))
    letters = {letter: byte for byte, letter in letters_of_bytes().items()}
    ranks = [bytes(letters[c] for c in token) for token, _ in sorted(trained["model"]["vocab"].items(), key=lambda x: x[1])]
    data = {"config": {"pattern": TEKKEN, "num_vocab_tokens": 320, "default_vocab_size": 310,
                       "default_num_special_tokens": 8, "version": "v7"},
            "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(),
                       "token_str": t.decode() if t.isascii() else None} for i, t in enumerate(ranks)],
            "special_tokens": [{"rank": 0, "token_str": "<unk>", "is_control": True},
                               {"rank": 1, "token_str": "<s>", "is_control": True},
                               {"rank": 2, "token_str": "</s>", "is_control": True}]}
    (HERE / "tekken.json").write_text(json.dumps(data, ensure_ascii=False, indent=0) + "\n")
    encoding = tiktoken.Encoding("tekken", pat_str=TEKKEN, special_tokens={},
                                 mergeable_ranks={token: i for i, token in enumerate(ranks[:302])})
    record("tekken", lambda text: [1, *(i + 8 for i in encoding.encode_ordinary(text))], [])


def letters_of_bytes():
    """GPT-2's letters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def young():
    """Strings of characters that Unicode 15 to 16 has added, as regular expressions of tokenizers know them."""
    rows = re.findall(r"YOUNG\((0x\w+), (0x\w+)", (HERE.parents[2] / "nn/text/tokenizer/young.def").read_text())
    letters = [chr(int(c, 16)) for row in rows for c in row]
    strings = ["".join(f"A{c}1 {c}{c}b" for c in letters[i:i + 12]).encode() for i in range(0, len(letters), 12)]
    for name in ("gpt2", "llama3", "o200k", "deepseek"):
        tokenizer = tokenizers.Tokenizer.from_file(str(HERE / f"{name}.json"))
        write(f"{name}_young", lambda text, tokenizer=tokenizer: tokenizer.encode(text).ids, strings)


def more():
    def read(name):
        return json.loads((HERE / f"{name}.json").read_text())

    young()
    plain = read("qwen")
    plain["added_tokens"] = added({"<left>": 360, "<right>": 361})
    hf("qwen_plain", plain)
    gemma = read("llama2")  # as Gemma's: cut at a text, no space in front
    gemma["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    gemma["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    gemma["decoder"]["decoders"].pop()
    hf("gemma", gemma)
    first = read("llama2")  # a space in front of texts alone, and not behind special tokens
    first.update(normalizer=None, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                                                 "split": False})
    hf("first", first)
    dots = read("gpt2")
    dots["pre_tokenizer"] = sequence("pretokenizers", {"type": "Split", "pattern": {"String": ".*"}, "behavior": "Isolated",
                                                       "invert": False}, CUT_LEVEL)
    hf("dots", dots)
    across = read("llama2")  # unknown characters are left out, and merges go across
    across["model"].update(byte_fallback=False, unk_token=None, fuse_unk=False)
    across["post_processor"] = None
    hf("across", across)
    folder()


def folder():
    """vocab.json with merges.txt, and more tokens in each of the files beside them."""
    import transformers
    model = json.loads((HERE / "gpt2.json").read_text())["model"]
    files = HERE / "merges"
    files.mkdir(exist_ok=True)
    (files / "vocab.json").write_text(json.dumps(model["vocab"] | {"<|endoftext|>": 400}, ensure_ascii=False) + "\n")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (files / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    for name, value in {"added_tokens": {"<new>": 401, "<also>": 402}, "special_tokens_map": {"pad_token": "<pad>"},
                        "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True,
                                             "additional_special_tokens": ["<more>", "<also>"], "eos_token": "<end>"}}.items():
        (files / f"{name}.json").write_text(json.dumps(value) + "\n")
    tokenizer = transformers.AutoTokenizer.from_pretrained(files)
    record("merges", lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
           ["<new>", "<also>", "<more>", "<end>", "<pad>", "<|endoftext|>"])


def main():
    if sys.argv[1:] == ["--more"]:
        more()
        return
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace")[:60000]
    texts = [line for line in text.split("\n") if line] + ["été déjà 12 34 naïve ça", "Привет мир", "你好世界"] * 3
    byte_level(texts)
    characters(texts)
    sentencepieces(texts)
    tekken(texts)


if __name__ == "__main__":
    main()
