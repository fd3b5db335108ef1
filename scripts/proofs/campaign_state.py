"""
campaign_state.py - what the campaigns of campaign.py share: trials that are functions of a seed and a number, which
of them were done, what is kept of those that fail, and processes that never outlive their trial.
"""
import concurrent.futures
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import pathlib

from training_runs import Failure

LIMIT = 90  # seconds for a run of a second or so, on a machine that is busy: it hangs


class State:
    """The trials of one campaign, one JSON line each, of which the last with a number counts."""

    def __init__(self, folder, name, seed):
        self.name, self.seed = name, seed
        self.folder = pathlib.Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / f"{name}.jsonl"
        self.rows = {}
        self.lock = threading.Lock()
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                row = json.loads(line)
            except ValueError:  # the campaign ended while it was written
                continue
            self.rows[row["seed"], row["number"]] = row

    def add(self, number, row):
        """Note that a trial was done."""
        row = {"seed": self.seed, "number": number, **row}
        with self.lock:
            self.rows[self.seed, number] = row
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")

    def left(self, options):
        """Numbers that are to be done now."""
        if options.only is not None:
            return [options.only]
        return [n for n in range(1, options.trials + 1) if (self.seed, n) not in self.rows]

    def total(self, key):
        """The sum of a count over all that was done."""
        return sum(row.get(key, 0) for row in self.rows.values())

    def failed(self):
        """Trials that failed, and were not repeated with another end."""
        return [row["number"] for row in self.rows.values() if not row["passed"]]

    def keep(self, number, folder, text):
        """Leave what there is of a trial that failed."""
        where = self.folder / "failed" / f"{self.name}-{number}"
        shutil.rmtree(where, ignore_errors=True)
        where.parent.mkdir(exist_ok=True)
        shutil.copytree(folder, where, symlinks=True)
        (where / "what").write_text(text + "\n")
        return where


def one(state, trial, options, number):
    """Do a trial in a folder of its own, and note what came of it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"weft-{state.name}-"))
    try:
        random_ = random.Random(f"{state.name} {state.seed} {number}")
        random_.number = number
        counts = trial(options, random_, folder)
        state.add(number, {"passed": True, **counts})
    except (Failure, subprocess.SubprocessError, OSError, ValueError, KeyError, IndexError) as failed:
        text = f"{type(failed).__name__}: {failed}" if not isinstance(failed, Failure) else str(failed)
        where = state.keep(number, folder, text)
        state.add(number, {"passed": False})
        print(f"campaign: {state.name} {number} of seed {state.seed}: {text.splitlines()[0]}; see {where}",
              file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def drive(options, name, trial, reported):
    """All trials that are left, and the line that says what was done; the exit status."""
    state = State(options.state, name, options.seed)
    numbers = state.left(options)
    begun = shown = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(one, state, trial, options, number) for number in numbers]
        try:
            for done, job in enumerate(concurrent.futures.as_completed(jobs), 1):
                job.result()
                if time.monotonic() - shown > 30:
                    shown = time.monotonic()
                    left = (shown - begun) / done * (len(jobs) - done)
                    print(f"{name}: {done} of {len(jobs)}, {left:.0f} s left; {reported(state)}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    failed = state.failed()
    print(f"{name}: {len(state.rows)} trials, {len(failed)} failed; {reported(state)}")
    return 1 if failed else 0


def environment(build, **more):
    """What programs find: the plugins of the build, and an OpenMPI that root may use."""
    return dict(os.environ, WEFT_PLUGINS=str(build), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                **more)


def end(process):
    """A process and all that it has started, where they have not ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def pids_of(word):
    """Processes with a word in their command lines, but for this one."""
    listed = subprocess.run(["pgrep", "-f", "--", str(word)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split() if int(pid) != os.getpid()]


def write_lines(path):
    """A small text, the same everywhere."""
    path.write_text("".join(f"On day {i} the cat sat on mat {i * i % 89}.\n" for i in range(400)))


def digests_of(log):
    """The digests of a log's steps, by step."""
    rows = []
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:  # the run was killed while it wrote it
            continue
    return {row["step"]: row["digest"] for row in rows if "step" in row}


def newest(folder):
    """The step that latest names, 0 where nothing was published; the checkpoint's digest."""
    try:
        name = (folder / "latest").read_text().strip()
    except FileNotFoundError:
        return 0, None
    index = json.loads((folder / name / "index.json").read_text())
    return int(name.removeprefix("step-")), index["digest"]
