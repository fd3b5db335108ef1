"""
campaign_kills.py - SIGKILL at random instants of runs that save all the time. A trial is a chain of 20 kills of one
model: after each the checkpoint that latest names is at least the last one that was said to be saved, is whole, and
has the digest of a run that was never stopped; the next start, often on another mesh, continues from it. A run that
ends is looked at and begun anew. The last one is not killed. Some have the optimizer's state in files of a folder
(--offload-dir), where nothing is left.
"""
import json
import re
import shutil
import subprocess
import time

from campaign_draws import mesh_of, model_of, saving_of, value_of
from campaign_state import LIMIT, drive, end, environment, newest, write_lines
from training_runs import Failure

KILLS, STEPS = 20, 24


class Chain:
    """Starts of one run, in one folder."""

    def __init__(self, options, random_, folder):
        self.options, self.random, self.folder = options, random_, folder
        self.run = folder / "run"
        self.model = model_of(random_, STEPS)
        self.saving = saving_of(random_)
        self.mesh = mesh_of(random_, self.model)[0]
        self.state = folder / "state"
        if random_.random() < 0.3:
            self.saving += ["--offload", "optimizer", "--offload-dir", str(self.state)]
        self.seen = self.kills = self.ends = self.began = 0
        write_lines(folder / "text")

    def start(self, to, *more):
        """A run that saves there; what it says is in out and err."""
        self.command = [f"{self.options.build}/apps/gpt_train", "--data", f"{self.folder}/text", *self.model,
                        *self.mesh, *self.saving, "--save", str(to), *more]
        with open(self.folder / "out", "w") as out, open(self.folder / "err", "w") as err:
            return subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.folder,
                                    env=environment(self.options.build), start_new_session=True)

    def need(self, good, what):
        """Failure where something is not so."""
        if not good:
            said = (self.folder / "err").read_text()[-600:]
            raise Failure(f"after {self.kills} kills: {what}\n{' '.join(self.command)}\n{said}")

    def whole(self):
        """The run without a stop: how long it takes, and its digests."""
        begun = time.monotonic()
        where = self.folder / "whole"
        process = self.start(where, "--keep", "0")
        try:
            self.need(process.wait(LIMIT) == 0, "a run without kills fails")
        finally:
            end(process)
        self.life = time.monotonic() - begun
        saved = [json.loads(index.read_text()) for index in where.glob("step-*/index.json")]
        self.expected = {index["step"]: index["digest"] for index in saved}  # of adapters alone, where there are some
        self.need(sorted(self.expected) == list(range(1, STEPS + 1)), "a run without kills lacks steps")
        shutil.rmtree(where)

    def wait_to_kill(self, process):
        """Until an instant of the start, of the steps, or of the end."""
        where, share = self.random.random(), self.random.random()
        if where < 0.25:
            time.sleep(0.02 * share)
        elif where < 0.9:
            time.sleep(min(self.life, 0.4) * share)
        else:
            limit = time.monotonic() + LIMIT
            while process.poll() is None and time.monotonic() < limit:
                if f"step {STEPS - 1}/" in (self.folder / "out").read_text():
                    break
                time.sleep(0.002)
            time.sleep(0.01 * share)

    def look(self, status):
        """What a run has left that was killed, or has ended."""
        out, err = (self.folder / "out").read_text(), (self.folder / "err").read_text()
        self.need(status in (0, -9), f"status {status}")
        self.need(not err, f"something was said: {err.splitlines()[0] if err else ''}")
        left = [path.name for path in self.state.iterdir()] if self.state.exists() else []
        self.need(not left, f"left over in {self.state}: {' '.join(left)}")
        began = re.search(r"^continuing from .* after step (\d+)$", out, re.MULTILINE)
        self.began = int(began[1]) if began else 0
        if re.search("^step ", out, re.MULTILINE):
            self.need(self.began >= self.seen, f"did not go on from step {self.seen} or later")
        named, digest = newest(self.run)
        said = [int(step) for step in re.findall(r"^saved \S*/step-(\d+)\n", out, re.MULTILINE)]
        self.need(named >= max([self.seen, *said]), f"latest names step {named}; saved were {[self.seen, *said]}")
        if named:
            expected = self.expected[named]
            self.need(digest == expected, f"step {named} has digest {digest}, and without kills {expected}")
            done = subprocess.run([f"{self.options.build}/apps/ckpt", "verify", str(self.run / f"step-{named:08d}")],
                                  capture_output=True, text=True, check=False, timeout=LIMIT)
            self.need(done.returncode == 0, f"step {named} is not whole: {done.stderr.strip()}")
        self.seen = named

    def kill_one(self):
        """A start, and its kill; a run that ends before is not counted, and begun anew."""
        if value_of(self.saving, "--checkpoint") != "local" and self.random.random() < 0.5:
            self.mesh = mesh_of(self.random, self.model)[0]
        process = self.start(self.run)
        try:
            self.wait_to_kill(process)
            process.kill()
            status = process.wait(LIMIT)
        finally:
            end(process)
        self.look(status)
        if status == 0:
            self.finished()
        else:
            self.kills += 1

    def finished(self):
        """A run has ended: nothing but whole checkpoints is there, where it has saved anything."""
        self.need(self.seen == STEPS, f"the end is step {self.seen}")
        left = [path.name for path in self.run.glob("step-*.*")] if self.began < STEPS else []
        self.need(not left, f"left over: {' '.join(left)}")
        shutil.rmtree(self.run)
        self.seen = 0
        self.ends += 1


def trial(options, random_, folder):
    """A chain of kills."""
    chain = Chain(options, random_, folder)
    chain.whole()
    starts = 0
    while chain.kills < KILLS:
        chain.kill_one()
        starts += 1
        chain.need(starts < 10 * KILLS, "hardly a run is killed before its end")
    process = chain.start(chain.run)
    try:
        status = process.wait(LIMIT)
    finally:
        end(process)
    chain.need(status == 0, f"the last start has status {status}")
    chain.look(status)
    chain.finished()
    return {"kills": chain.kills, "ends": chain.ends}


def main(options):
    """See the head of this file."""
    return drive(options, "kills", trial, lambda state: (
        f"{state.total('kills')} kills, none lost, none torn; {state.total('ends')} runs ended with the "
        "digest of one without stops"))
