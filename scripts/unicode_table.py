#!/usr/bin/env python3
"""
unicode_table.py - makes nn/text/tokenizer/young.def: characters of Unicode 15, 15.1 and 16, which Debian 12's PCRE2 does not know,
with their general categories, as the regular expressions of Hugging Face's tokenizers have them.

    python3 -m venv /tmp/unicode && /tmp/unicode/bin/pip install tokenizers
    /tmp/unicode/bin/python scripts/unicode_table.py > nn/text/tokenizer/young.def

Python's own Unicode has to be 14 (Python 3.11), which says what is not young.
"""
import sys
import unicodedata

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

sys.path.pop(0)  # scripts, which has a tokenizers of its own
from tokenizers import Regex, pre_tokenizers  # noqa: E402

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cf".split()


def having(prop):
    """All characters of a property, by tokenizers."""
    split = pre_tokenizers.Split(Regex(f"\\p{{{prop}}}"), "removed", invert=True)
    found = set()
    for base in range(0, 0x110000, 0x1000):
        text = "".join(chr(c) for c in range(base, base + 0x1000) if not 0xd800 <= c <= 0xdfff)
        for word, _ in split.pre_tokenize_str(text) if text else ():
            found.update(map(ord, word))
    return found


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"Python's Unicode is {unicodedata.unidata_version}, and 14.0.0 is needed")
    category = {c: name for name in CATEGORIES for c in having(name)}
    han = having("Han")
    young = [c for c in sorted(category) if unicodedata.category(chr(c)) == "Cn"]
    rows = []
    for c in young:
        kind = category[c], c in han
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == kind:
            rows[-1][1] = c
        else:
            rows.append([c, c, kind])
    print("""/*
 * nn/text/tokenizer/young.def - characters of Unicode 15, 15.1 and 16, made by
 * scripts/unicode_table.py from the tables of Hugging Face's tokenizers.
 *
 * YOUNG(first, last, category, han)
 */""")
    for first, last, (name, is_han) in rows:
        print(f"YOUNG({first:#x}, {last:#x}, \"{name}\", {'true' if is_han else 'false'})")
    changed = [c for c in category if category[c] != unicodedata.category(chr(c)) != "Cn"]
    print(f"{len(young)} characters, {len(rows)} rows; of another category since: {[hex(c) for c in changed]}", file=sys.stderr)


if __name__ == "__main__":
    main()
