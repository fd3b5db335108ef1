"""comments.py - the lint rules of comments and pages: columns, first words, words that find a file, files that they name."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from reflow_comments import WIDTH, above, comments  # noqa: E402

SUFFIXES = (".c", ".h", ".def", ".cu")
# A comment is about what the code after it does: these begin a riddle.
RIDDLE = re.compile(r"/\*+<?[\s*]*(?:[\w*]+(?:, [\w*]+)* - +)?(what|whether|of|where|how)\b", re.I)

# A word that people look for, and the file whose first comment has it in one line.
GREPS = {
    "FSDP": "parallel/shard/strategies.def",
    "DDP": "parallel/shard/strategies.def",
    "dataset": "nn/dataset/dataset.h",
    "dataloader": "nn/dataset/dataset.h",
    "sampler": "nn/dataset/dataset.h",
    "thread pool": "kernels/cpu/thread_pool.c",
    "GEMV": "kernels/cpu/simd/gemv.c",
    "work stealing": "kernels/cpu/simd/gemm.c",
    "autograd": "core/tape.h",
    "activation checkpointing": "nn/checkpointing.h",
    "flash attention": "kernels/cpu/simd/attention.c",
    "online softmax": "kernels/cpu/simd/attention.c",
    "microkernel": "kernels/cpu/simd/gemm_microkernel.c",
    "meta device": "nn/module.h",
    "KV cache": "nn/cache.h",
    "tokenizer": "nn/text/tokenizer/tokenizer.h",
    "all-to-all": "mesh/comm/collective.h",
    "throttle": "core/pace.h",
}


# A file by its path from the top, as comments and pages name it.
FOLDERS = ("core", "kernels", "mesh", "nn", "parallel", "apps", "tests", "docs", "scripts", "cmake")
PATH = re.compile(rf"(?<![\w/.$-])(?:{'|'.join(FOLDERS)})/[\w./-]*\.(?:c|h|def|cu|py|sh|md|txt|cmake|json)\b")
QUOTED = re.compile(r"(?<!`)`[^`\n]+(?:\n[^`\n]+)*`")


def sources(root, folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path, path.relative_to(root).as_posix()


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def columns(root, folders):
    """Finds comments wider than WIDTH, and those that tear the member before them apart."""
    for path, _ in sources(root, folders):
        text = path.read_text(encoding="utf-8")
        for start, end in comments(text):
            begin, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end)
            for i, line in enumerate(text[begin:stop].split("\n")):
                if len(line) > WIDTH:
                    yield path, line_of(text, start) + i, \
                        f"{len(line)} columns: scripts/reflow_comments.py, then scripts/format.sh"
        if above(text) != text:
            yield path, 1, "a comment behind a member tears it apart: scripts/reflow_comments.py"


def riddles(root, folders):
    """Finds comments that begin with What, Whether, Of, Where or How."""
    for path, _ in sources(root, folders):
        text = path.read_text(encoding="utf-8")
        for start, end in comments(text):
            match = RIDDLE.match(text[start:end])
            if match:
                yield path, line_of(text, start), \
                    f'begins with "{match.group(1)}": begin with a verb ("Returns"), or the thing\'s name'


def greps(root):
    """Finds words of GREPS that no line of the first comments of their file has."""
    for word, name in GREPS.items():
        path = root / name
        if not path.exists():
            if (root / "CMakeLists.txt").exists():
                yield path, 1, f'is missing: "{word}" has to find its file'
            continue
        text = path.read_text(encoding="utf-8")
        head = text[:text.find("\n#")] if "\n#" in text else text
        if not any(word.lower() in line.lower() for line in head.split("\n")):
            yield path, 1, f'its first comment does not say "{word}" in a line'


def pages(root):
    """Finds pages of docs that do not begin with what they are for and a table of what to do."""
    for path in sorted((root / "docs").glob("*.md")):
        lines = path.read_text(encoding="utf-8").split("\n")
        table = next((i for i, line in enumerate(lines) if line.startswith("|---")), 99)
        if path.name != "README.md" and (table > 12 or not any(line.startswith("For: ") for line in lines[:table])):
            yield path, 1, "has to begin with a line \"For: ..\" and a table of what to do"


def paths(root):
    """Finds files that comments name, or pages in backquotes, and that are not there. A DECISIONS.md speaks of what was."""
    pages = [*root.glob("*.md"), *(path for folder in FOLDERS for path in sorted((root / folder).rglob("*.md")))]
    for path in [*pages, *(path for path, _ in sources(root, FOLDERS))]:
        text = path.read_text(encoding="utf-8")
        spans = comments(text) if path.suffix != ".md" else [match.span() for match in QUOTED.finditer(text)]
        for start, end in spans if path.name != "DECISIONS.md" else []:
            for match in PATH.finditer(text[start:end]):
                if not (root / match.group()).exists() and not (path.parent / match.group()).exists():
                    yield path, line_of(text, start + match.start()), f"{match.group()} is not there"
    yield from mutants(root)


def names(root):
    """Finds functions, types and constants of the library that pages name and no header has, as an op of docs/torch.md that is gone."""
    folders = ("core", "kernels", "nn", "mesh", "parallel", "apps", "docs/examples")
    headers = [path for folder in folders for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".def")]
    known = set(re.findall(r"\bwf_\w+", "\n".join(path.read_text(encoding="utf-8") for path in headers), flags=re.I))
    for path in [*root.glob("*.md"), *sorted((root / "docs").rglob("*.md"))]:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            for name in re.findall(r"\bwf_\w*[a-z\d]\b", line, flags=re.I):
                if name not in known:
                    yield path, number, f"no header has {name}"


def mutants(root):
    """Finds rows of tests/mutants.txt whose line is not in its file, or there more than once: the fault can't be put in."""
    path, line = root / "tests/mutants.txt", 1
    for block in (path.read_text(encoding="utf-8") if path.exists() else "").split("\n\n"):
        rows = [row for row in block.split("\n") if row and not row.startswith("#")]
        old = "\n".join(row[1:] for row in rows[1:] if row[0] == "-")
        file = root / rows[0].split()[0] if rows else path
        if rows and (not file.exists() or file.read_text(encoding="utf-8").count(old) != 1):
            yield path, line, f"{rows[0].split()[0]} does not have this once: {old}"
        line += block.count("\n") + 2


SAMPLES = {
    "columns": [
        ("core/a.c", "/* short */\nint x; /* a */\n", []),
        ("core/wide.c", "\n/* " + "w " * 50 + "*/\n", [2]),
        ("core/torn.h", "struct a {\n    bool\n        b; /* torn\n           apart */\n};\n", [1]),
    ],
    "riddles": [
        ("core/a.c", "/* Returns what is wanted. */\nint f(void);\n", []),
        ("core/b.h", "/* What is wanted. */\n/** wf_a, wf_b - whether it is */\n/*\n * Of all.\n */\n", [1, 2, 3]),
        ("nn/c.c", "const char *s = \"/* What */\"; /* offset */\n", []),
    ],
    "names": [
        (("kernels/a.h", "WF_API int wf_one(void);\n"), ("core/b.c", "int wf_two(void);\n"),
         ("docs/torch.md", "| `wf_one(x)` | `wf_` |\n\n| `wf_one`, `wf_two` |\n"), [3]),
    ],
    "paths": [
        ("core/a.c", "/* core/a.c - see core/b.h\n   and core/a.c */\nconst char *s = \"core/c.h\";\n", [1]),
        ("docs/a.md", "`docs/a.md` of docs/b.md\n```\na\n```\n`run\ndocs/c.md now`\n", [6]),
        ("tests/DECISIONS.md", "`tests/gone.c`\n", []),
        ("tests/mutants.txt", "tests/mutants.txt t\n-one two\n+\n\ncore/gone.c t\n-x\n+\n", [5]),
    ],
    "pages": [
        ("docs/a.md", "# A\n\nFor: all.\n\n| to do | where |\n|---|---|\n", []),
        ("docs/b.md", "# B\n\nText.\n\n| to do | where |\n|---|---|\n", [1]),
        ("docs/c.md", "# C\n\nFor: all.\n", [1]),
    ],
    "greps": [
        ("core/pace.h", "/* core/pace.h - throttled ranks:\n   to throttle */\n#ifndef X\n", []),
        ("nn/cache.h", "/* a cache of\n   KV */\n#ifndef X\n/* KV cache */\n", [1]),
    ],
}


# Tables whose rows people choose by name, and the page that says what each is.
PAGES = {"parallel/shard/strategies.def": (r"^STRATEGY\((\w+)", "docs/strategies.md"),
         "parallel/pipeline/schedules.def": (r'^SCHEDULE\("([\w-]+)"', "docs/pipeline.md"),
         "nn/models/gpt/families.def": (r"^FAMILY\((\w+)", "docs/models.md")}


def tables(root):
    for table, (row, page) in PAGES.items():
        if not (root / table).exists():
            continue
        text = (root / page).read_text(encoding="utf-8")
        for number, line in enumerate((root / table).read_text(encoding="utf-8").split("\n"), 1):
            match = re.match(row, line)
            if match and f"`{match.group(1)}`" not in text:
                yield root / table, number, f"{page} does not say what `{match.group(1)}` is"
