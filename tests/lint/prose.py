"""prose.py - the lint rule of that name: words that comments of the library and of programs do not use, and the plain one."""
import re
import comments

# Phrases, whole words in any case, and what to say instead. Where a word has plain uses, only its other ones are here.
PROSE = {
    # "in place" and "takes place" are plain English, and so is a verb.
    r"(?<!\bin )(?<!take )(?<!takes )(?<!taken )(?<!taking )(?<!took )(?<!to )place(?! ?:| [0-9])|places(?! (an?|the)\b)|in place of":
        "position, index, slot, offset, coordinates; instead of",
    r"behind": "after",
    r"told|tells?": "report, say; distinguish",
    r"so many": "n, the parameter's name; as many",
    r"stand(s|ing)? for|stood for": "mean, represent",
    r"nobody|whoever|those who|somebody": "no rank, the caller: whatever it is",
    r"go(es)? on|going on|went on|gone on": "continue, advance, resume",
    r"comes? to(?! (be|have|an?)\b)|came to": "reach",
    r"(tak(e|es|ing)|took|taken) up(?! to\b)": "restore, continue",
    r"lets? in|guests?|strangers?|farewells?|doors?": "accept, pending connection, goodbye message, listening socket",
    r"(counted|reported|kept|cut|split|trained|stored) apart|apart from": "separately; except for",
    r"(run|runs|ran|running|made|make|makes|computed|gathered|read|written|used|stored|tried|started|begins?) again":
        "recompute, regather, reuse, repeat, restart",
    r"at rest": "stored, sharded",
    r"turned(?! (on|off|into|to|out)\b)|(pairs?|features?|parts?|heads?)( that)? turns?": "transpose; rotate",
    r"in turns?": "one after the other, alternating",
    r"spell(s|ed|ing)?|spelt": "write",
    r"(two|three|four|some|many|other|the|so many|both) ways(?! round)": "name what they are",
}

# A word of PROSE in the name of something, or in a quotation of it.
NAMED = re.compile(r"`[^`]*`|\"[^\"]*\"|@param +\S+|\bstruct \w+|\b\w*_\w*|\b[A-Z]{2}[A-Z0-9]*\b|\b\w+\(|\[\w+\]|\.\w+")
GAP = re.compile(r"[\s*]+")
PHRASES = [(re.compile(rf"(?<![\w-])(?:{phrase})(?![\w-])", re.I), instead) for phrase, instead in PROSE.items()]
# Turns of a conversation and of a chat template are the field's.
PLAIN = {"nn/text/": ("turn",)}


def flat(text):
    """The comment in one line, without what it names, and where each character comes from."""
    text = NAMED.sub(lambda match: "_" * len(match.group()), text)
    line, origin = "", []
    for match in re.finditer(r"[\s*]+|[^\s*]+", text):
        word = " " if GAP.fullmatch(match.group()) else match.group()
        line += word
        origin += range(match.start(), match.start() + len(word))
    return line, origin


def prose(root, folders):
    """Finds phrases of PROSE in comments."""
    for path, name in comments.sources(root, folders):
        text = path.read_text(encoding="utf-8")
        plain = tuple(word for folder, words in PLAIN.items() if name.startswith(folder) for word in words)
        found = []
        for start, end in comments.comments(text):
            line, origin = flat(text[start:end])
            for phrase, instead in PHRASES:
                found += [(comments.line_of(text, start + origin[match.start()]), match.group(), instead)
                          for match in phrase.finditer(line) if not any(word in match.group().lower() for word in plain)]
        for number, words, instead in sorted(found):
            yield path, number, f'"{words}": say {instead}'


SAMPLES = {
    "prose": [
        ("core/a.c", "/* Changed in place, which takes place here, in `place`.\n * @param place  the slot */\n"
                     "int place; const char *s = \"told behind\";\n", []),
        ("core/b.c", "/* Its place. */\n/*\n * so\n * many */\nint x; /* in place of */\n", [1, 3, 5]),
        ("nn/c.h", "/* behind */\n/* they tell */\n/* nobody */\n/* It goes\n   on. */\n/* It comes to be. */\n", [1, 2, 3, 4]),
        ("kernels/d.cu", "// turned in registers\n// turned on\n/* wf_tells, a.behind, turn() */\n", [1]),
        ("nn/text/e.c", "/* A message that turns; in turn. */\n", []),
        ("apps/f.c", "/* 4 floats apart */\n/* counted apart */\n/* run again */\n/* in two ways */\n", [2, 3, 4]),
    ],
}
