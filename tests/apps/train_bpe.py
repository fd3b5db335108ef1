#!/usr/bin/env python3
"""
train_bpe.py SIZE FILE... - the vocabulary that gpt_data train-bpe has to make of files of ASCII, in the plainest
way: all words are counted anew for every merge. Prints the merges, a line each, as bytes in hexadecimal.
"""
import collections
import re
import sys

WORD = re.compile(r"'(?:[sStTmMdD]|[rRvV][eE]|[lL][lL])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}| ?[^\sA-Za-z0-9]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def main():
    words = collections.Counter()
    for name in sys.argv[2:]:
        with open(name, encoding="ascii", newline="") as file:
            words.update(tuple(word.encode()) for word in WORD.findall(file.read()))
    words = dict(words)
    texts = [bytes([byte]) for byte in range(256)]
    while len(texts) + 1 < int(sys.argv[1]):
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        count, left, right = min((-count, *pair) for pair, count in pairs.items())
        if count > -2:
            break
        merged = collections.Counter()
        for word, times in words.items():
            symbols, i = [], 0
            while i < len(word):
                both = word[i:i + 2] == (left, right)
                symbols.append(len(texts) if both else word[i])
                i += 1 + both
            merged[tuple(symbols)] += times
        words = dict(merged)
        texts.append(texts[left] + texts[right])
        print(texts[left].hex(), texts[right].hex())


if __name__ == "__main__":
    main()
