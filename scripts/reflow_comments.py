#!/usr/bin/env python3
"""
reflow_comments.py FILE... - brings the comments of C and CUDA files to 96 columns, and moves one that
stands after a member, and is torn over lines or too wide for its line, above it.

Only paragraphs with a line that is too wide are refilled; tables and pictures (two spaces inside
of a line) are left. Code is never changed: a file whose text without comments and spaces would
differ is refused. Run scripts/format.sh afterwards: alignment of the remaining comments is its work.
"""
import pathlib
import re
import sys

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

WIDTH = 96
TOKEN = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
ITEM = re.compile(r"(@\w+ +[\w.,*\[\]-]+ +|[A-Z][\w-]*(?: [a-z]+)?:  +|- +|\d+\. +)(?=\S)")


def comments(text):
    """Yields (start, end) of each comment, none that stands in a string."""
    for match in TOKEN.finditer(text):
        if match.group().startswith(("//", "/*")):
            yield match.start(), match.end()


def code(text):
    """The text without comments and white space."""
    return "".join(TOKEN.sub(lambda m: "" if m.group()[0] == "/" else m.group(), text).split())


def hanging(content, following):
    """How far a line's continuation is indented beyond it."""
    cell = re.match(r"\S.*\S {3,}(?=\S)", content)
    if cell: # a row of a table
        return len(cell.group())
    item = ITEM.match(content)
    if item:
        return following if 0 < following < len(item.group()) else len(item.group())
    label = re.match(r"[A-Z][\w ]*: (?=\S)", content)
    return len(label.group()) if label and following == len(label.group()) else 0


def fill(lines, prefix, last):
    """Fills (indent, content) lines; `last` columns stay free on the last one. Returns lines."""
    out, queue = [], list(lines)
    while queue:
        indent, content = queue.pop(0)
        free = last if not queue else 0
        if not content or len(prefix) + indent + len(content) + free <= WIDTH:
            out.append((indent, content))
            continue
        item = ITEM.match(content)
        following = queue[0][0] - indent if queue and queue[0][1] else 0
        hang = hanging(content, following)
        least = len(item.group()) if item else max(hang, 1)
        # The last space at which the line is cut and fits.
        limit = WIDTH - len(prefix) - indent
        cut = content.rfind(" ", least, limit + 1)
        while cut > least and re.match(r" - ", content[cut:]): # "- " begins a list
            cut = content.rfind(" ", least, cut)
        if cut < 0:
            cut = content.find(" ", least)
        if cut < 0:
            out.append((indent, content))
            continue
        rest = content[cut + 1:].lstrip()
        out.append((indent, content[:cut].rstrip()))
        joined = queue and queue[0][1] and queue[0][0] == indent + hang and not (
            ITEM.match(queue[0][1]) or re.match(r"wf_\w+.* - |ctest: |.*\S {3,}\S", queue[0][1]))
        if joined:
            queue[0] = (indent + hang, rest + " " + queue[0][1])
        else:
            queue.insert(0, (indent + hang, rest))
    return out


def split(comment):
    """A block comment as its opening, and the (indent, content) of its lines."""
    opening = re.match(r"/\*+<?", comment).group()
    lines = comment[len(opening):-2].split("\n")
    stars = len(lines) > 1 and all(re.match(r"\s*\*", line) for line in lines[1:-1] or lines[1:]) \
        and (not lines[-1].strip() or re.match(r"\s*\*", lines[-1]))
    return opening, lines, stars


def reflow(comment, column, most=WIDTH):
    """The comment, which begins in a column, with no line wider than WIDTH."""
    if comment.startswith("//"):
        return comment
    opening, lines, stars = split(comment)
    wide = column + len(opening) + len(lines[0]) > most or any(len(line) > most for line in lines[1:]) \
        or (len(lines) == 1 and column + len(comment) > most) \
        or (len(lines) > 1 and len(lines[-1]) + 2 > most)
    if not wide:
        return comment
    doc = opening == "/**"
    margin = " " * column + (" * " if stars or doc else "   ")
    parsed = []
    first = lines[0].strip()
    for line in lines[1:]:
        if stars:
            line = re.sub(r"^\s*\*", "", line)
            line = line[1:] if line.startswith(" ") else line
            parsed.append((len(line) - len(line.lstrip()), line.strip()))
        else:
            indent = len(line) - len(line.lstrip()) - column - 3
            parsed.append((max(indent, 0), line.strip()))
    own_end = bool(parsed) and not parsed[-1][1]
    if own_end:
        parsed.pop()
    if first:
        lead = " " * column + opening + " "
        offset = len(lead) - len(margin)
        body = fill([(0, "\0" * offset + first)] + parsed, margin, 0 if own_end else 3)
        body[0] = (0, body[0][1].lstrip("\0"))
        text = opening + " " + body[0][1]
    else:
        body = [None] + fill(parsed, margin, 0 if own_end else 3)
        text = opening
    for indent, content in body[1:]:
        text += "\n" + (margin + " " * indent + content).rstrip()
    if own_end:
        return text + "\n" + " " * column + (" */" if stars or doc else "*/")
    return text + " */"


def above(text):
    """Moves torn or wide comments after a member above it."""
    while True:
        for start, end in comments(text):
            begin = text.rfind("\n", 0, start) + 1
            before = text[begin:start]
            comment = text[start:end]
            line_end = text.find("\n", end)
            if not before.strip() or not comment.startswith("/*") or text[end:line_end].strip():
                continue
            if before.lstrip().startswith("#") or before.rstrip().endswith("\\"):
                continue
            torn = re.match(r"^\s+\w+;? *$", before) and re.search(r"\n\s+[\w ]+\**$", text[:begin - 1])
            if "\n" not in comment and line_end - begin <= WIDTH and not torn:
                continue
            if before.strip() in ("{", "}", "else") or re.match(r"\s*(\}|else|case|default)", before):
                continue
            statement = begin
            # A member that is torn over two lines begins on the line above.
            while True:
                previous = text[:statement - 1].rsplit("\n", 1)[-1].rstrip()
                if not previous or previous.endswith((";", ",", "{", "}", "*/", ":", ")", "\\")) \
                        or previous.lstrip().startswith(("#", "/", "*")):
                    break
                statement -= len(previous) + 1
            indent = re.match(r" *", text[statement:]).group()
            words = " ".join(re.sub(r"^/\*+<?|\*/$", "", comment).split())
            note = reflow(f"/* {words} */", len(indent))
            text = (text[:statement] + indent + note + "\n" + text[statement:start].rstrip()
                    + text[end:])
            break
        else:
            return text


def narrow(text):
    """Refills what is too wide."""
    out, at = [], 0
    for start, end in comments(text):
        begin = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", end)
        tail = text[end:line_end if line_end >= 0 else len(text)]
        out.append(text[at:start])
        comment = text[start:end]
        if not text[begin:start].strip() and not tail.strip():
            comment = reflow(comment, start - begin)
        out.append(comment)
        at = end
    return "".join(out) + text[at:]


def main():
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        old = path.read_text(encoding="utf-8")
        new = narrow(above(old))
        if code(new) != code(old):
            sys.exit(f"{name}: the code would change")
        if new != old:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
