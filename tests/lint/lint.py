#!/usr/bin/env python3
"""
lint.py RULE [ROOT] - the rules of the house that a compiler can't check. RULE is one of:

    includes   a folder includes only what lies below it (the table FOLDERS), and so does a room of
               a folder (the table ROOMS); *_internal.h is included in its own folder alone, and by
               no header that is installed; apps use what is installed
    circles    no more than three files include each other in a circle; a file is a header with
               the source of its name
    words      the library never exits, aborts or prints, but in what is a program's main (PROGRAM),
               and nothing is left to be done
    length     a source, of a program or of a script, has at most 400 lines
    functions  a function has at most 60 lines between its braces
    vocabulary the field's words, not our own (the table VOCABULARY), and no comment that begins in
               mid-sentence
    docs       every WF_API declaration has a doc block above it that names it, or the op it is
               the gradient of (wf_x_dx, wf_x_dw, wf_x_grad); a public header has no others
    readme     docs/quickstart.md shows apps/quickstart.c word for word, and the README some of its lines;
               each folder of the library has a README of its own that names each of its C files, in
               at most 120 lines, and its decisions are beside it in DECISIONS.md
    outputs    files are written by core/files/output.h alone; writers.py has who does not, and why
    columns, riddles   a comment has at most 96 columns, tears no member, and does not begin with What, Whether, Of, Where or How
    prose      comments of the library and of programs speak plainly (the table PROSE of prose.py)
    greps, paths   words that people look for find their file (the table GREPS of comments.py); a file that a comment or page names is there, and a line of mutants.txt
    pages, names   a page of docs begins with what it is for and a table of what to do; what pages call wf_.. is in a header
    scripts    a test that is a script and counts its cases (tests/cases.sh) ends by `finish`, or it could not fail
    selftest   proves that each rule finds what it is for, and nothing else

Prints one line per finding and exits with 1 if there is any.
"""
import fnmatch
import pathlib
import re
import sys
import tempfile

from rooms import FOLDERS, ONLY, ROOMS, SHARED
from samples import SAMPLES
import comments
import prose
from vocabulary import BANNED
from writers import blank, outputs

USERS = ("apps", "tests")
LIBRARY = tuple(FOLDERS)

# A circle of files may have so many.
MOST_CIRCLE = 3

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
FORBIDDEN_CALL = re.compile(r"(?<![.>])\b(abort|exit|_exit|_Exit|quick_exit|printf|vprintf|puts|putchar|perror|errx|warnx)\s*\(")
# wf_par_main is what a program's main is: it prints the one error and gives the exit status. A child process ends itself.
# parallel/recovery/outlast.c defines _exit and _Exit, for the ends of other libraries; mesh/health/crash.c gives a rank's call of exit its status.
PROGRAM = ("parallel/main.c", "parallel/program/program.c", "parallel/recovery/outlast.c", "mesh/cluster/in_child.c", "mesh/health/crash.c")
FORBIDDEN_STREAM = re.compile(r"\b(stdout|stderr)\b")
UNDONE = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
C_SUFFIXES = (".c", ".h", ".def", ".cu")
SOURCES = C_SUFFIXES + (".py", ".sh")
UNEXPORTED = re.compile(r"(?!WF_|static\b|typedef\b|extern\b|return\b)[A-Za-z_][^;=]*\bwf_\w+\(")
GRADIENT = re.compile(r"_(dx|dw|grad)$")
# Where the words that nobody says have to be said.
SPEAKS_OF_WORDS = ("tests/lint/vocabulary.py", "tests/lint/prose.py", "tests/lint/samples.py")
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
MOST_PAGE_LINES = 120

MID_SENTENCE = re.compile(r"/\*+(?:\s|\*(?!/))*\b(of|which|that|and|with|whose|than)\b")


def c_files(root, folders, suffixes=(".c", ".h", ".def")):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes:
                yield path


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")


def code_lines(path):
    """The lines of a C file with comments and the insides of strings blanked."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.S)
    return text.split("\n")


def room_of(path):
    """The room that a path of the library lies in, the innermost of ROOMS; None: in none."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in ROOMS:
            return path
    return None


def crosses(path, included):
    """What is wrong with an include between rooms of one folder; None: nothing is."""
    here, there = room_of(path), room_of(included)
    for room, allowed in ONLY.items():
        if path.startswith(f"{room}/") and not included.startswith(tuple(f"{a}/" for a in allowed)):
            return f"{room} may not include {included.rpartition('/')[0]}"
    if not here or not there or path.split("/")[0] != included.split("/")[0]:
        return None
    inside = here == there or ("/" in here and there.startswith(f"{here}/"))
    return None if inside or there in ROOMS[here] else f"{here} may not include {there}"


def exposes(path, included):
    """What is wrong with an include of an internal header; None: nothing is."""
    if not included.endswith("_internal.h"):
        return None
    if path.split("/")[0] != included.split("/")[0] and not (room_of(included) in SHARED and path.split("/")[0] in LIBRARY):
        return f"{included} is for {included.split('/')[0]} alone"
    if path.endswith(".h") and not path.endswith("_internal.h"):
        return f"an installed header may not include {included}: call it {path[:-2]}_internal.h"
    return None


def includes(root):
    for path in c_files(root, LIBRARY, (".c", ".cu", ".h", ".def")):
        folder = path.relative_to(root).parts[0]
        for number, line in enumerate(lines_of(path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            head, _, rest = match.group(1).partition("/")
            if not rest or head not in FOLDERS.keys() | set(USERS):
                yield path, number, f'include "{match.group(1)}" by its path from the top'
            elif head not in FOLDERS[folder]:
                yield path, number, f"{folder} may not include {head} ({match.group(1)})"
            else:
                here = path.relative_to(root).as_posix()
                for wrong in (crosses(here, match.group(1)), exposes(here, match.group(1))):
                    if wrong:
                        yield path, number, f"{wrong} ({match.group(1)})"
    for path in c_files(root, ("apps",), (".c", ".h")):
        here = path.relative_to(root).as_posix()
        for number, line in enumerate(lines_of(path), 1):
            match = INCLUDE.match(line)
            if match and exposes(here, match.group(1)):
                yield path, number, f"{match.group(1)} is not installed"


def unit_of(path):
    """A header and its source are one file here: their path without the ending."""
    return re.sub(r"(_internal)?\.\w+$", "", path)


def include_graph(root):
    """Unit -> {unit that it includes: where}, for what lies in the library and in apps."""
    graph = {}
    for path in c_files(root, LIBRARY + ("apps",), (".c", ".cu", ".h", ".def")):
        unit = unit_of(path.relative_to(root).as_posix())
        for number, line in enumerate(lines_of(path), 1):
            match = INCLUDE.match(line)
            if match and unit_of(match.group(1)) != unit:
                graph.setdefault(unit, {}).setdefault(unit_of(match.group(1)), (path, number))
    return graph


def reached(graph, unit):
    """All that a unit includes, directly or by way of others."""
    found, left = set(), [unit]
    while left:
        for other in graph.get(left.pop(), ()):
            if other not in found:
                found.add(other)
                left.append(other)
    return found


def circles(root):
    graph = include_graph(root)
    below = {unit: reached(graph, unit) for unit in graph}
    reported = set()
    for unit in sorted(graph):
        circle = {other for other in below[unit] if unit in below.get(other, ())}
        if len(circle) <= MOST_CIRCLE or unit in reported:
            continue
        reported |= circle
        path, number = next(graph[unit][other] for other in sorted(circle) if other in graph[unit])
        yield path, number, f"{len(circle)} files in a circle: {', '.join(sorted(circle))}"


def words(root):
    for path in c_files(root, LIBRARY):
        if path.relative_to(root).as_posix() in PROGRAM:
            continue
        for number, line in enumerate(code_lines(path), 1):
            match = FORBIDDEN_CALL.search(line) or FORBIDDEN_STREAM.search(line)
            if match:
                yield path, number, f"the library may not use {match.group(1)}"
    texts = list(c_files(root, LIBRARY + USERS + ("scripts", "cmake", "docs"),
                         (".c", ".h", ".def", ".py", ".sh", ".txt", ".cmake", ".in", ".md")))
    for path in texts + sorted(root.glob("*.md")):
        for number, line in enumerate(lines_of(path), 1):
            match = UNDONE.search(line)
            if match:
                yield path, number, f"{match.group(1)}: do it, or file it as an issue"


def length(root):
    for path in c_files(root, LIBRARY + USERS + ("scripts",), SOURCES):
        count = len(lines_of(path)) - 1
        if count > MOST_LINES:
            yield path, count, f"{count} lines, {MOST_LINES} at most: look for the seam"


def functions(root):
    """Counts lines from a "{" to the "}" in column 0, as clang-format leaves them."""
    for path in c_files(root, LIBRARY + USERS + ("docs",), C_SUFFIXES):
        lines, first = lines_of(path), None
        for number, line in enumerate(lines, 1):
            if line == "{" and not lines[number - 2].startswith("namespace"):
                first = number
            elif line.startswith("}") and first:
                count, first = number - first - 1, None
                if count > MOST_FUNCTION_LINES:
                    yield path, number, f"{count} lines, {MOST_FUNCTION_LINES} at most: split it"


def vocabulary(root):
    texts = c_files(root, LIBRARY + USERS + ("docs", "scripts"),
                    C_SUFFIXES + (".py", ".sh", ".txt", ".md"))
    for path in list(texts) + sorted(root.glob("*.md")):
        if path.relative_to(root).as_posix() in SPEAKS_OF_WORDS:
            continue
        text = path.read_text(encoding="utf-8")
        lines, whole = text.split("\n"), text.lower()
        lower = whole.split("\n")
        found = [(number, f'"{match.group()}": say {instead}')
                 for needed, word, instead in BANNED if any(part in whole for part in needed)
                 for number, line in enumerate(lower, 1) if any(part in line for part in needed)
                 for match in word.finditer(lines[number - 1])]
        if path.suffix in C_SUFFIXES:
            found += [(text.count("\n", 0, match.start()) + 1,
                       f'a comment begins with "{match.group(1)}": make it a sentence')
                      for match in MID_SENTENCE.finditer(text)]
        yield from ((path, number, text) for number, text in sorted(found))


def declared_name(lines, start):
    """The function or object that the declaration beginning at lines[start] declares."""
    text = " ".join(lines[start:start + 8]).split(";")[0]
    match = re.search(r"\b(\w+)\s*\(", text) or re.search(r"\b(\w+)\s*(?:\[[^]]*\]\s*)*$", text)
    return match.group(1) if match else None


def docs(root):
    for path in c_files(root, LIBRARY, (".h",)):
        lines = lines_of(path)
        block, number = "", 0
        while number < len(lines):
            line = lines[number]
            if line.lstrip().startswith("/**"):
                first = number
                while "*/" not in lines[number] and number + 1 < len(lines):
                    number += 1
                block = "\n".join(lines[first:number + 1])
            elif line.startswith("WF_API"):
                name = declared_name(lines, number)
                if not block:
                    yield path, number + 1, f"no doc block above {name}"
                elif not re.search(rf"\b({name}|{GRADIENT.sub('', name)})\b", block):
                    yield path, number + 1, f"the doc block above {name} doesn't name it"
                while ";" not in lines[number] and number + 1 < len(lines):
                    number += 1
            elif UNEXPORTED.match(line) and not path.name.endswith("_internal.h"):
                yield path, number + 1, "a public header declares a function that is not exported: give it WF_API, or an internal header"
            else:
                # One block may serve several declarations that follow each other.
                block = ""
            number += 1


def readme(root):
    program = root / "apps/quickstart.c"
    if program.exists():
        text = program.read_text(encoding="utf-8")
        for name, whole in (("docs/quickstart.md", True), ("README.md", False)):
            yield from program_shown(root / name, program, text, whole)
    for folder in LIBRARY + USERS:
        for page in sorted((root / folder).rglob("README.md")):
            yield from folder_page(page)
    for folder in LIBRARY:
        for below in sorted({path.parent for path in c_files(root, (folder,))}):
            if not (below / "README.md").exists():
                yield below / "README.md", 1, "is missing"


def program_shown(page, program, text, whole):
    """A page shows a program as it is: the whole one, or lines that stand in it one after the other."""
    shown = page.read_text(encoding="utf-8") if page.exists() else ""
    blocks = re.findall(r"^```c\n(.*?)^```$", shown, flags=re.M | re.S)
    if not blocks or any(text != block if whole else block not in text for block in blocks):
        yield page, 1, f"does not show {program} as it is"


def folder_page(page):
    lines = lines_of(page)
    if len(lines) - 1 > MOST_PAGE_LINES:
        yield page, len(lines) - 1, f"{len(lines) - 1} lines, {MOST_PAGE_LINES} at most"
    if (page.parent / "DECISIONS.md").exists() and "(DECISIONS.md)" not in "\n".join(lines):
        yield page, 1, "has no link to DECISIONS.md"
    for number, line in enumerate(lines, 1):
        if line.startswith("## Decisions"):
            yield page, number, "decisions belong in DECISIONS.md"
    named = set(re.findall(r"[\w.*]+\.(?:c|h|def)\b", "\n".join(lines)))
    for path in sorted(page.parent.iterdir()):
        if path.suffix in (".c", ".h", ".def") and not any(
                fnmatch.fnmatchcase(path.name, name) for name in named):
            yield page, 1, f"does not name {path.name}"


def scripts(root):
    for path in sorted((root / "scripts").rglob("*.py")):
        if re.match(r"#!(?![\s\S]*(argparse|--help|planned_page|arguments\(__doc__))", path.read_text(encoding="utf-8")):
            yield path, 1, "does not serve --help: it would be taken for a path"
    for path in sorted((root / "tests").rglob("test_*.sh")):
        lines = lines_of(path)
        if any(re.match(r"(result|run|refuse) ", line) for line in lines) and not any(
                re.match(r"(.*\|\| )?finish$", line) for line in lines[-3:]):
            yield path, len(lines) - 1, "does not end by finish"


# Flags of other programs; a program of one's own has arguments (parallel/main.c), and a plan proposes flags to type.
FLAG = re.compile(r'"[^"]*?(?<![\w-])--(?!all |export-xml|mpi=|nproc-per-node)([a-z][a-z-]+)')


def flags(root):
    for path in c_files(root, LIBRARY, (".c", ".cu", ".h")):
        if path.relative_to(root).as_posix().startswith(("parallel/program/", "parallel/main.c")):
            continue
        text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match.group().count("\n"),
                      path.read_text(encoding="utf-8"), flags=re.S)
        for number, line in enumerate(text.splitlines(), 1):
            match = FLAG.search(line)
            if match:
                yield path, number, f"a library has no flags: name the field, .{match.group(1).replace('-', '_')}"


RULES = {"includes": includes, "circles": circles, "words": words, "length": length,
         "functions": functions, "vocabulary": vocabulary, "docs": docs, "readme": readme, "scripts": scripts, "tables": comments.tables, "flags": flags,
         "columns": lambda root: comments.columns(root, LIBRARY + USERS + ("docs",)),
         "riddles": lambda root: comments.riddles(root, LIBRARY + USERS + ("docs",)),
         "prose": lambda root: prose.prose(root, LIBRARY + ("apps",)), "greps": comments.greps, "pages": comments.pages, "paths": comments.paths, "names": comments.names,
         "outputs": lambda root: outputs(root, c_files(root, LIBRARY + ("apps",)))}


def selftest():
    """Runs every rule over its samples; gives the number of those that it got wrong."""
    wrong = 0
    for rule, samples in {**SAMPLES, **comments.SAMPLES, **prose.SAMPLES}.items():
        for *files, expected in samples:
            files = [files] if isinstance(files[0], str) else files
            with tempfile.TemporaryDirectory() as folder:
                for name, text in files:
                    path = pathlib.Path(folder) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8")
                found = [number for _, number, _ in RULES[rule](pathlib.Path(folder))]
            if found != expected:
                print(f"{rule}: {files[0][0]}: found lines {found}, expected {expected}")
                wrong += 1
    return wrong


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in RULES.keys() | {"selftest"}:
        sys.exit(__doc__.strip())
    if sys.argv[1] == "selftest":
        sys.exit(1 if selftest() else 0)
    here = pathlib.Path(__file__).resolve().parents[2]
    root = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else here
    if not any(c_files(root, LIBRARY)):
        sys.exit(f"lint: no sources below {root}")
    findings = 0
    for path, number, text in RULES[sys.argv[1]](root):
        print(f"{path.relative_to(root)}:{number}: {text}")
        findings += 1
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
