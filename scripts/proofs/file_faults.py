#!/usr/bin/env python3
"""
file_faults.py [--calls | --stale] [--on KIND] [--stride N] [--jobs N] [BUILD] - campaigns against what
a run keeps on disk.

--calls: a run resumes from a checkpoint, saves at every step and writes a log; every call on its
checkpoints, its log and its lock fails once, with EIO, and calls that write with ENOSPC too. It has
to end in time; where it ends badly, one line says why; and the next run, with nothing failing, resumes and ends with
the digest of one that never stopped. As threads, in each kind of checkpoint, and as two processes of mpirun, in
either of them (--on threads|mpi).

--stale: runs are killed while they publish a checkpoint and between the two renames that replace
one: each kind of checkpoint x model x mesh. In each directory that is left, each of the others
begins: what was not published is gone afterwards, and a checkpoint that was replaced is gone on
with, or refused where it is of another model; what is saved is whole.

--stride N takes every N-th case. The first surprise of each kind is printed; status 1.
"""
import argparse
import collections
import concurrent.futures
import errno
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

STEPS, BEFORE, TIMEOUT = 4, 2, 60
BASE = ["--n-head", "4", "--seq-len", "16", "--global-batch-size", "4", "--eval-interval", "0",
        "--threads-per-rank", "1", "--device", "cpu", "--warmup-steps", "1", "--digest"]
MODELS = {"small": ["--n-layer", "1", "--n-embd", "16"],
          "wide": ["--n-layer", "1", "--n-embd", "48"],
          "llama": ["--arch", "llama", "--n-layer", "2", "--n-embd", "16"]}
MESHES = {"1": [], "dp 4": ["--dp", "4"], "tp 2 dp 2": ["--tp", "2", "--dp", "2"],
          "zero1": ["--dp", "2", "--strategy", "zero1"]}
KINDS = ("sharded", "full", "local")
WRITES = ("write", "pwrite", "ftruncate", "fsync", "mkdir", "open", "fopen", "fflush", "rename")
MPIRUN = ["mpirun", "--quiet", "--oversubscribe", "--bind-to", "none", "-np", "2"]


class Surprise(Exception):
    """A case that went otherwise; its text says how."""


class Setup:
    """Programs, and a folder to work in."""

    def __init__(self, build, folder):
        self.train = str(build / "apps/gpt_train")
        self.ckpt = str(build / "apps/ckpt")
        self.library = str(build / "tests/libfile_call_faults.so")
        self.folder = pathlib.Path(folder)
        self.text = self.folder / "text.txt"
        self.text.write_text("".join(f"On day {i} the cat sat on mat {i * i % 89}.\n"
                                     for i in range(400)))
        self.number = itertools.count()

    def fresh(self):
        """The name of a directory that is not there yet."""
        return self.folder / f"case{next(self.number)}"

    def run(self, flags, under=None, at=0, process=None, launcher=(), only=None, code="5", count=None):
        """gpt_train; its calls under a path are counted, and number `at` fails with a code."""
        fault = {"WEFT_FAIL_UNDER": str(under), "WEFT_FAIL_AT": str(at), "WEFT_FAIL_WITH": code,
                 "LD_PRELOAD": self.library}
        if only:
            fault["WEFT_FAIL_ONLY"] = only
        if process is not None:
            fault["WEFT_FAIL_RANK"] = str(process)
        if count:
            fault["WEFT_FAIL_COUNT"] = str(count)
        command = [self.train, "--data", str(self.text), *BASE, *flags]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        if launcher and under:
            command = [*launcher, *itertools.chain(*(("-x", f"{k}={v}") for k, v in fault.items())),
                       *command]
        elif under:
            environment.update(fault)
        elif launcher:
            command = [*launcher, *command]
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False,
                              env=environment)

    def whole(self, path):
        """What is wrong with a checkpoint, by ckpt verify; None."""
        done = subprocess.run([self.ckpt, "verify", str(path)], capture_output=True, text=True,
                              timeout=TIMEOUT, check=False)
        return done.stderr.strip() if done.returncode else None


def need(good, what, done=None):
    """Surprise where something is not so."""
    if not good:
        said = f"\n{done.args}\nstatus {done.returncode}: {done.stderr[-600:]}" if done else ""
        raise Surprise(what + said)


def last_digest(done):
    """The digest of the last step that was printed."""
    found = re.findall(r"digest ([0-9a-f]{16})", done.stdout)
    return found[-1] if found else None


# ---- every call fails once ----

def fail_call(setup, before, flags, launcher, process, at, code, digest):
    """Call number `at` fails in a run from `before`; then a run without faults."""
    folder = setup.fresh()
    shutil.copytree(before, folder / "run")
    counted = folder / "count"
    save = ["--steps", str(STEPS), "--save", str(folder / "run"), "--save-interval", "1", "--keep",
            "2", "--log-jsonl", str(folder / "run/log.jsonl"), "--stall-timeout", "20", *flags]
    try:
        done = setup.run(save, folder / "run", at, process, launcher, code=code, count=counted)
        lines = counted.read_text().splitlines() if counted.exists() else []
        call = next((line.split(" ", 1)[1] for line in lines if line.startswith(f"{at} ")), None)
        if call is None:
            return None
        name = call.split()[0] + " " + re.sub(r"[0-9a-f]{16}", "*", pathlib.Path(call.split()[1]).name)
        said = [line for line in done.stderr.splitlines() if line.startswith("gpt_train: ")]
        need(done.returncode in (0, 3, 8), f"{name}: an undocumented status", done)
        need(done.returncode == 0 or said, f"{name}: ends without a word", done)
        need(len(said) <= 2, f"{name}: reported more than once", done)
        if done.returncode == 0:
            need(last_digest(done) == digest, f"{name}: another digest", done)
        saved = sorted(folder.glob("run/step-????????"))
        need(saved, f"{name}: nothing is left", done)
        again = setup.run(save, launcher=launcher)
        need(again.returncode == 0, f"{name}: the next run fails", again)
        need("continuing from" in again.stdout, f"{name}: the next run begins anew", again)
        after = re.search(r"after step (\d+)", again.stdout)
        need(int(after[1]) >= BEFORE, f"{name}: the next run goes back", again)
        need(int(after[1]) == STEPS or last_digest(again) == digest, f"{name}: another digest after it",
             again)
        for path in folder.glob("run/step-????????"):
            wrong = setup.whole(path)
            need(not wrong, f"{name}: not whole: {wrong}")
        need((folder / "run/latest").read_text() == f"step-{STEPS:08d}\n", f"{name}: latest is old")
        # what could not be deleted goes with the next save, where there is one
        need(int(after[1]) == STEPS or not list(folder.glob("run/step-*.*")),
             f"{name}: something is left over")
        return name.split()[0], done.returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def calls_of(setup, before, flags, launcher, process, stride):
    """(number, errno) of each call that a run without faults makes; some more, for threads vary."""
    folder = setup.fresh()
    shutil.copytree(before, folder / "run")
    save = ["--steps", str(STEPS), "--save", str(folder / "run"), "--save-interval", "1", "--keep",
            "2", "--log-jsonl", str(folder / "run/log.jsonl"), *flags]
    done = setup.run(save, folder / "run", 0, process, launcher, count=folder / "count")
    need(done.returncode == 0, "a run without faults fails", done)
    lines = (folder / "count").read_text().splitlines()
    shutil.rmtree(folder)
    cases = []
    for number, line in enumerate(lines, 1):
        cases.append((number, str(errno.EIO)))
        if line.split()[1] in WRITES:
            cases.append((number, str(errno.ENOSPC)))
    return cases[::stride]


def call_campaign(setup, arguments, pool):
    """All configurations; the number of surprises."""
    configurations = []
    if arguments.on in ("threads", None):
        for kind in KINDS:
            configurations.append((f"threads, {kind}", ["--dp", "2", "--checkpoint", kind], (), None))
        configurations.append(("threads, asynchronous", ["--tp", "2", "--async-save", "on"], (), None))
    if arguments.on in ("mpi", None) and shutil.which("mpirun"):
        for process in (0, 1):
            configurations.append((f"process {process} of 2", ["--dp", "2"], MPIRUN, process))
    surprises = 0
    for name, flags, launcher, process in configurations:
        flags = [*MODELS["small"], *flags]  # few tensors: the calls of each are alike
        before = setup.fresh()
        before.mkdir()
        first = setup.run(["--steps", str(STEPS), "--save", str(before / "run"), "--save-interval",
                           str(BEFORE), "--keep", "0", *flags], launcher=launcher)
        need(first.returncode == 0, "a first run fails", first)
        digest = last_digest(first)
        shutil.rmtree(before / f"run/step-{STEPS:08d}")
        (before / "run/latest").write_text(f"step-{BEFORE:08d}\n")
        cases = calls_of(setup, before / "run", flags, launcher, process, arguments.stride)
        jobs = {pool.submit(fail_call, setup, before / "run", flags, launcher, process, at, code,
                            digest): (at, code) for at, code in cases}
        surprises += report(name, jobs)
        shutil.rmtree(before)
    return surprises


def report(name, jobs):
    """What came of the cases of a configuration; how many were surprises."""
    print(f"{name}: {len(jobs)} cases", flush=True)
    ends, surprises = collections.Counter(), collections.Counter()
    for job in concurrent.futures.as_completed(jobs):
        try:
            end = job.result()
            ends[end[1] if end else "not reached"] += 1
        except (Surprise, subprocess.TimeoutExpired) as surprise:
            what = str(surprise).split("\n", maxsplit=1)[0]
            if not surprises[what]:
                print(f"{name}, {jobs[job]}: {surprise}", flush=True)
            surprises[what] += 1
    count = sum(surprises.values())
    print(f"{name}: {len(jobs)} cases, {count} surprises; "
          + ", ".join(f"{n} ended with {end}" for end, n in sorted(ends.items(), key=str)), flush=True)
    return count


# ---- what killed runs leave ----

def leave(setup, kind, model, mesh, how):
    """A directory in which a run was killed while it published step 1, or replaced it."""
    folder = setup.fresh()
    flags = [*MODELS[model], *MESHES[mesh], "--checkpoint", kind, "--save", str(folder)]
    at = 1 # of the renames: the first one shows the checkpoint
    if how == "replaced":
        first = setup.run([*flags, "--steps", "1"])
        need(first.returncode == 0, "a first run fails", first)
        flags += ["--resume", "none", "--seed", "7"]
        at = 2 # the first one puts the old one aside
    killed = setup.run([*flags, "--steps", "1"], folder, at, only="rename", code="kill")
    need(killed.returncode == -signal.SIGKILL, "was not killed", killed)
    left = [path.name for path in folder.glob("step-*.*")]
    need(any(name.endswith(f".{how}") for name in left), f"{how}: only {left} is left")
    if how == "partial": # and as an older version named it
        shutil.copytree(folder / left[0], folder / "step-00000001.partial")
    return folder


def meet(setup, left, how, first, second):
    """Another run in a copy of a directory that was left."""
    folder = setup.fresh()
    shutil.copytree(left, folder, symlinks=True)
    kind, model, mesh = second
    flags = [*MODELS[model], *MESHES[mesh], "--checkpoint", kind, "--save", str(folder), "--steps",
             "2", "--save-interval", "1"]
    try:
        done = setup.run(flags)
        if how == "replaced" and (model != first[1] or (first[0] == "local" and mesh != first[2])):
            need(done.returncode == 2 and re.search("is of another model|saved as local", done.stderr),
                 f"{how}: is not refused", done)
            need(not setup.whole(folder / "step-00000001.replaced"), f"{how}: the old one is lost")
            done = setup.run([*flags, "--resume", "none"])
        elif how == "replaced":
            need("after step 1" in done.stdout, f"{how}: does not go on", done)
        need(done.returncode == 0, f"{how}: fails", done)
        for step in (1, 2):
            wrong = setup.whole(folder / f"step-{step:08d}")
            need(not wrong, f"{how}: not whole: {wrong}")
        need(not list(folder.glob("step-*.*")), f"{how}: something is left over")
        return how, done.returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stale_campaign(setup, arguments, pool):
    """The matrix; the number of surprises."""
    states = list(itertools.product(KINDS, MODELS, MESHES))
    surprises = 0
    for how in ("partial", "replaced"):
        left = dict(zip(states, pool.map(lambda s, h=how: leave(setup, *s, h), states)))
        pairs = list(itertools.product(states, states))[::arguments.stride]
        jobs = {pool.submit(meet, setup, left[a], how, a, b): (a, b) for a, b in pairs}
        surprises += report(f"left over, {how}", jobs)
        for folder in left.values():
            shutil.rmtree(folder)
    return surprises


def main():
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="only calls that fail")
    parser.add_argument("--stale", action="store_true", help="only what killed runs leave")
    parser.add_argument("--on", choices=("threads", "mpi"), help="default: both")
    parser.add_argument("--stride", type=int, default=1, help="every N-th case")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=pathlib.Path("build"))
    arguments = parser.parse_args()
    surprises = 0
    with tempfile.TemporaryDirectory(prefix="weft-files-") as folder, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        setup = Setup(arguments.build.resolve(), folder)
        if not os.access(setup.library, os.R_OK):
            sys.exit(f"there is no {setup.library}: scripts/build.sh build makes it")
        if not arguments.stale:
            surprises += call_campaign(setup, arguments, pool)
        if not arguments.calls:
            surprises += stale_campaign(setup, arguments, pool)
    sys.exit(1 if surprises else 0)


if __name__ == "__main__":
    main()
