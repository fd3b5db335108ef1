#!/usr/bin/env python3
"""mutants.py [--jobs N] [--only WORD] DIR - puts each fault of tests/mutants.txt into a copy of the tree, one at a time,
builds the tests that the row names, and runs them: a fault that they pass is one that the tests do not see.

DIR is where the copy and its build lie; a second run builds only what changed. --only takes the rows that have WORD in
their file, text or tests. The tests have to pass without a fault first. Exit status: 0 where every fault is found.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/mutants.txt"


def rows(text):
    """(file, tests, old, new) of every block of lines: 'FILE TEST...', then what '-' says becomes what '+' says."""
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith("#")]
        if lines:
            old, new = ("\n".join(line[1:] for line in lines[1:] if line[0] == sign) for sign in "-+")
            file, *tests = lines[0].split()
            yield file, tests, old, new


def copy_tree(to):
    """Copies tracked files, those that changed alone, and removes what is tracked no longer."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    names = {name for name in names if name and (ROOT / name).is_file()}
    for name in names:
        source, target = ROOT / name, to / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for folder in (path for path in to.iterdir() if path.is_dir() and path.name != "build"):
        for path in folder.rglob("*"):
            if path.is_file() and str(path.relative_to(to)) not in names:
                path.unlink()


def found(tree, tests, jobs):
    """How a test of a tree fails: None where all pass. A test that is a script has all programs built."""
    targets = sorted({test.split(".")[1] if ".test_" in test else "apps/all" for test in tests})
    build = subprocess.run(["ninja", "-C", "build", f"-j{jobs}", *targets], cwd=tree, capture_output=True, text=True)
    if build.returncode:
        sys.exit(f"mutants.py: does not build:\n{build.stdout[-3000:]}")
    for test in tests:
        run = subprocess.run(["ctest", "--test-dir", "build", "--no-tests=error", "-R", f"^{test}$"], cwd=tree,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if run.returncode:
            return f"{test} fails"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("dir", type=pathlib.Path)
    asked = parser.parse_args()
    tree = asked.dir.resolve() / "tree"
    table = [row for row in rows(TABLE.read_text()) if asked.only in " ".join([row[0], *row[1], row[2]])]
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    subprocess.run(["cmake", "-G", "Ninja", "-B", "build", "-DWEFT_PLUGINS=OFF"], cwd=tree, check=True,
                   stdout=subprocess.DEVNULL)
    for file, _, old, _ in table:
        if (tree / file).read_text().count(old) != 1:
            sys.exit(f"mutants.py: {file} does not have this once: {old}")
    why = found(tree, sorted({test for row in table for test in row[1]}), asked.jobs)
    if why:
        sys.exit(f"mutants.py: {why} without a fault")
    alive = 0
    for file, tests, old, new in table:
        text = (tree / file).read_text()
        try:
            (tree / file).write_text(text.replace(old, new))
            why = found(tree, tests, asked.jobs)
        finally:
            (tree / file).write_text(text)
        alive += why is None
        print(f"{why or 'LIVES'}: {file}: {old.strip()} -> {new.strip()}", flush=True)
    print(f"{len(table)} faults, {alive} that no test sees")
    return alive > 0


if __name__ == "__main__":
    sys.exit(main())
