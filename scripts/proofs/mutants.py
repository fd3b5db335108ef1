#!/usr/bin/env python3
"""mutants.py [--jobs N] [--only WORD]... [--since COMMIT] DIR - puts each fault of tests/mutants.txt into a copy of the
tree, one at a time, builds the tests that the row names, and runs them: a fault that they pass is one that the tests do
not see.

DIR is where the copy and its build lie; a second run builds only what changed. --only takes the rows that have WORD in
their file, text or tests, --since those whose file changed after COMMIT. The tests have to pass without a fault first;
how long each takes then is what limits it later. A line for each fault begins with what came of it:

  dead     a test failed by its exit status or by a signal
  hangs    a test ended neither in its limit nor in four times that, and then did in the first limit without the fault
  timeout  likewise, but without the fault it did not end in time either: no proof
  skipped  a test does not run on this machine, and the others pass: no proof
  unbuilt  the fault does not compile: no proof
  LIVES    all tests pass

Exit status: 0 where every fault is dead or hangs.
"""
import argparse
import collections
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/mutants.txt"
LEAST, TIMES, RETRY = 60, 10, 4  # seconds and times of the run without a fault that a test has; times of that again


def rows(text):
    """(file, tests, old, new) of every block of lines: 'FILE TEST...', then what '-' says becomes what '+' says."""
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith("#")]
        if lines:
            old, new = ("\n".join(line[1:] for line in lines[1:] if line[0] == sign) for sign in "-+")
            file, *tests = lines[0].split()
            yield file, tests, old, new


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")


def copy_tree(to):
    """Copies tracked files, those that changed alone, and removes what is tracked no longer."""
    names = {name for name in git("ls-files") if name and (ROOT / name).is_file()}
    for name in names:
        source, target = ROOT / name, to / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for folder in (path for path in to.iterdir() if path.is_dir() and path.name != "build"):
        for path in folder.rglob("*"):
            if path.is_file() and str(path.relative_to(to)) not in names:
                path.unlink()


def build(tree, tests, jobs):
    """What the build of tests says where it fails, else None: of all that there is for no tests. A test that is a script
    has all programs built."""
    targets = sorted({test.split(".")[1] if ".test_" in test else "apps/all" for test in tests})
    made = subprocess.run(["ninja", "-C", "build", f"-j{jobs}", *targets], cwd=tree, capture_output=True, text=True)
    return made.stdout[-3000:] if made.returncode else None


@functools.cache
def commands(tree):
    """Each test of a build by its name, as ctest lists them."""
    listed = subprocess.run(["ctest", "--test-dir", "build", "--show-only=json-v1"], cwd=tree, check=True,
                            capture_output=True, text=True).stdout
    return {test["name"]: test for test in json.loads(listed)["tests"] if "command" in test}


def run(tree, name, limit):
    """How a test ends: passed, skipped, dead or timeout, and how long it took. Its command is run as ctest has it, under
    a limit of our own: ctest gives one status for a test that failed and one that was ended."""
    if not (test := commands(tree).get(name)):
        sys.exit(f"mutants.py: there is no test {name}")
    has = {one["name"]: one["value"] for one in test.get("properties", [])}
    begun = time.monotonic()
    process = subprocess.Popen(test["command"], cwd=has.get("WORKING_DIRECTORY", tree / "build"), start_new_session=True,
                               env=os.environ | dict(one.split("=", 1) for one in has.get("ENVIRONMENT", [])),
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        status = -signal.SIGALRM  # as of tests that end themselves by alarm()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    ends = {has.get("SKIP_RETURN_CODE"): "skipped", -signal.SIGALRM: "timeout", 0: "passed"}
    return ends.get(status, "dead"), time.monotonic() - begun


def judge(tree, tests, limits):
    """What the tests say of a tree: (passed, skipped, dead or timeout, the test): the first that does not pass, but one
    that fails before one that ran out of time, before one that is skipped."""
    ends = []
    for test in tests:
        end, _ = run(tree, test, limits[test])
        if end == "timeout":
            end, _ = run(tree, test, limits[test] * RETRY)
        if end == "dead":
            return end, test
        ends.append((end, test))
    return max(ends, key=lambda one: ["passed", "skipped", "timeout"].index(one[0]))


def try_fault(tree, row, limits, jobs):
    """What came of a row, and the test that says so."""
    file, tests, old, new = row
    text = (tree / file).read_text()
    try:
        (tree / file).write_text(text.replace(old, new))
        if build(tree, tests, jobs):
            return "unbuilt", ""
        end, test = judge(tree, tests, limits)
    finally:
        (tree / file).write_text(text)
    if end != "timeout":
        return "LIVES" if end == "passed" else end, test
    if why := build(tree, [test], jobs):
        sys.exit(f"mutants.py: does not build without a fault:\n{why}")
    return "hangs" if run(tree, test, limits[test])[0] == "passed" else "timeout", test


def limits_of(tree, tests, jobs):
    """The limit of each test, by its time in the tree without a fault, where it has to pass or is skipped."""
    if why := build(tree, [], jobs):  # scripts run more than apps: what makes writes fail, a bench
        sys.exit(f"mutants.py: does not build:\n{why}")
    limits = {}
    for test in tests:
        end, seconds = run(tree, test, 3600)
        if end not in ("passed", "skipped"):
            sys.exit(f"mutants.py: {test} is {end} without a fault")
        limits[test] = max(LEAST, TIMES * seconds)
    return limits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--since", default="")
    parser.add_argument("dir", type=pathlib.Path)
    asked = parser.parse_args()
    tree = asked.dir.resolve() / "tree"
    table = list(rows(TABLE.read_text()))
    changed = set(git("diff", "--name-only", asked.since)) if asked.since else set()
    if asked.only or asked.since:
        table = [row for row in table if row[0] in changed
                 or any(word in " ".join([row[0], *row[1], row[2]]) for word in asked.only)]
    if not table:
        sys.exit("mutants.py: no row has what --only and --since ask for")
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    subprocess.run(["cmake", "-G", "Ninja", "-B", "build", "-DWEFT_PLUGINS=OFF"], cwd=tree, check=True,
                   stdout=subprocess.DEVNULL)
    for file, _, old, _ in table:
        if (tree / file).read_text().count(old) != 1:
            sys.exit(f"mutants.py: {file} does not have this once: {old}")
    limits = limits_of(tree, sorted({test for row in table for test in row[1]}), asked.jobs)
    came = collections.Counter()
    for row in table:
        end, test = try_fault(tree, row, limits, asked.jobs)
        came[end] += 1
        print(f"{end:8}{test or '-'}: {row[0]}: {row[2].strip()} -> {row[3].strip()}", flush=True)
    print(f"{len(table)} faults:", ", ".join(f"{count} {end}" for end, count in came.items()))
    return came["dead"] + came["hangs"] < len(table)


if __name__ == "__main__":
    sys.exit(main())
