"""
campaign_fault_kinds.py - the faults of campaign_faults.py. Each draws what it does and when, changes one start of a
run, and says which ends of that start it may have: an exit status, and how many lines.
"""
import errno
import os
import re
import shutil
import signal
import subprocess
import time

from campaign_draws import value_of
from campaign_state import newest
from failure_cases import COLLECTIVES, EXPECT, NO_WORD_YET, OUTSIDE, UNWATCHED, cases, pipeline_cases
from failures import Runner

STEPS, STALL = 8, 4
DIED = "lost: process|has ended|has been silent|has not come"


def signals(*names):
    """The statuses of a program that ends by a signal, and of a shell's or mpirun's for it."""
    return [status for name in names for status in (-signal.Signals[f"SIG{name}"], 128 + signal.Signals[f"SIG{name}"])]


CRASHES = signals("SEGV", "ABRT", "BUS", "KILL", "TERM")


class Fault:
    """One that does nothing: a start that ends well."""

    apart = False  # from others, in a start that leaves nothing

    def __init__(self, trial):
        self.trial, self.random = trial, trial.random
        self.step = self.random.randint(0, STEPS - 1)
        self.delay = self.random.random()
        self.draw()

    def draw(self):
        """What it does."""

    def reported(self):
        """What it is, in few words."""
        return type(self).__name__

    def environment(self):
        """What the program finds."""
        return {}

    def command(self, words):
        """What is started."""
        return words

    def before(self):
        """Just before the start."""

    def during(self, process):
        """Once the program runs."""

    def after(self):
        """When it has ended."""

    def wait(self, process):
        """Until the moment that was drawn: within the start, or a bit after a step."""
        limit = time.monotonic() + 20
        while self.step and process.poll() is None and time.monotonic() < limit and self.trial.steps() < self.step:
            time.sleep(0.003)
        start = 0.05 if self.trial.way == "threads" else 0.6
        time.sleep(self.delay * (0.02 if self.step else start))

    def accepts(self, status, lines):
        """Whether a start may end so."""
        return status == 0 and not lines


class Rank(Fault):
    """What gpt_train_faulty does to one of its ranks."""

    def draw(self):
        trial = self.trial
        choose = pipeline_cases if trial.pipeline else cases
        known = [(case.action, case.phase) for case in choose(trial.way, False)]
        known += [("vanish", "step"), ("lose", "forward"), ("lose", "optimizer")] * 3
        slow = ("stop", "stall", "slow_stall")  # which have to be waited for
        if trial.ranks == 1:  # there is no other rank to send to, or to miss it
            known = [(a, p) for a, p in known if p not in COLLECTIVES and a != "leave"]
        known = [(a, p) for a, p in known if a not in ("launcher", "slow_abort") and (p != "save" or trial.saving)
                 and (a not in slow or self.random.random() < 0.25)]
        self.action, self.phase = self.random.choice(sorted(set(known)))
        self.rank = self.random.randrange(trial.processes if self.phase in OUTSIDE else trial.ranks)
        self.at = 0 if self.phase in ("init", *OUTSIDE) else max(1, self.step)

    def reported(self):
        return f"WEFT_FAULT='{self.action} {self.phase} {self.rank} {self.at}'"

    def environment(self):
        return {"WEFT_FAULT": f"{self.action} {self.phase} {self.rank} {self.at}", "WEFT_FAULT_MS": "4"}

    def accepts(self, status, lines):
        if super().accepts(status, lines):
            return self.trial.elastic or not self.trial.acted() or self.action in ("full", "stop")
        words, code = EXPECT.get(self.action, ("its device is gone", 1))
        words = UNWATCHED.get((self.action, self.phase), words).replace("RANK", r"\d+").replace("2\\.0", r"\d\.0")
        if self.trial.way == "hosts" and self.phase in ("last", "destructor"):  # who is alone on a host is not named
            words += "|MPI_Finalize has not ended within"
        if self.action == "quit":  # its exit handlers may take longer than a stall on a busy machine
            words += "|stalled, it has done nothing"
        codes = [code] if code is not None else CRASHES
        if self.trial.way != "threads":  # mpirun's is that of the process that it sees end first
            codes = [1, 4, 6, *codes, *CRASHES]
        if self.action == "full":
            return status == 8
        killed = self.action == "kill" and status in signals("KILL")
        if killed and not lines and self.phase in ("start", "exit", "last"):
            return self.trial.note("silent")
        if self.trial.way == "hosts" and self.phase in NO_WORD_YET:
            return status in codes and not Runner.judge_hosts(lines)
        return status in codes and len(lines) == 1 and bool(re.search(f"{words}|{DIED}", lines[0]))


class Signal(Fault):
    """A signal to a process of the run, or to what launched it."""

    def draw(self):
        self.signal = self.random.choice(("KILL", "KILL", "TERM", "INT", "STOP"))
        self.launcher = self.trial.way != "threads" and self.signal == "KILL" and self.random.random() < 0.2
        self.process, self.length = self.random.randrange(self.trial.processes), 0.1 + 1.4 * self.random.random()

    def reported(self):
        where = "the launcher" if self.launcher else f"process {self.process}"
        return f"{self.signal} to {where} {self.delay:.2f} after step {self.step}"

    def during(self, process):
        self.wait(process)
        pids = [process.pid] if self.trial.way == "threads" or self.launcher else self.trial.ranks_of(process)
        if process.poll() is not None or not pids:
            return
        pid = pids[self.process % len(pids)]
        try:
            os.kill(pid, signal.Signals[f"SIG{self.signal}"])
            if self.signal == "STOP":
                time.sleep(self.length)
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def accepts(self, status, lines):
        if super().accepts(status, lines):
            return True
        asked = [75, *signals("TERM", "INT")]
        if self.launcher:
            return status == -signal.SIGKILL and len(lines) <= 1
        if self.signal in ("TERM", "INT") and status in asked and not lines:
            return True
        if self.trial.way == "threads":
            return self.signal == "KILL" and status == -signal.SIGKILL and not lines
        if self.signal == "STOP":
            return False
        ends = [1, 4, *asked, *signals("KILL")]
        if not lines and self.signal == "KILL" and status in ends:
            return self.trial.note("silent")
        # one that is asked to end before it listens dies of that
        return status in ends and len(lines) == 1 and bool(re.search(DIED, lines[0]))


class Call(Fault):
    """A call on the files of checkpoints, or on the log, fails."""

    def draw(self):
        self.log = not self.trial.saving or self.random.random() < 0.15
        self.number = self.random.randint(1, 20) if self.log else int(2 ** self.random.uniform(0, 8))
        self.code = self.random.choice((errno.EIO, errno.ENOSPC))
        self.process = 0 if self.log else self.random.randrange(self.trial.processes)

    def reported(self):
        where = "the log" if self.log else "checkpoints"
        return f"{errno.errorcode[self.code]} at call {self.number} of process {self.process} on {where}"

    def environment(self):
        more = {} if self.trial.way == "threads" else {"WEFT_FAIL_RANK": str(self.process)}
        return {"WEFT_FAIL_UNDER": str(self.trial.log if self.log else self.trial.run),
                "WEFT_FAIL_AT": str(self.number), "WEFT_FAIL_WITH": str(self.code),
                "LD_PRELOAD": f"{self.trial.build}/tests/libfile_call_faults.so", **more}

    def accepts(self, status, lines):
        return super().accepts(status, lines) or status == 8 or status in (0, 2, 3) and 1 <= len(lines) <= 2


class Torn(Fault):
    """A file of the newest checkpoint is cut short, or has another byte."""

    def draw(self):
        self.cut, self.file, self.at_share = self.random.random() < 0.5, self.random.random(), self.random.random()

    def reported(self):
        return f"{'cut' if self.cut else 'another byte in'} {self.trial.torn or 'no'} checkpoint at {self.at_share:.3f}"

    def before(self):
        step = newest(self.trial.run)[0] if self.trial.saving else 0
        if not step:
            return
        files = sorted(path for path in (self.trial.run / f"step-{step:08d}").iterdir() if path.stat().st_size)
        path = files[int(self.file * len(files))]
        data = bytearray(path.read_bytes())
        at = int(self.at_share * len(data))
        if self.cut:
            data = data[:at]
        else:
            data[at] ^= 1 << int(self.file * 64) % 8
        path.write_bytes(bytes(data))
        self.trial.torn = f"{path.parent.name}/{path.name}"

    def accepts(self, status, lines):
        """Refused by name where there is no other checkpoint; then the owner removes what is there."""
        if super().accepts(status, lines):
            return True
        refused = status in (2, 3, 8) and len(lines) == 1 and "step-" in lines[0] and bool(self.trial.torn)
        if refused:
            for path in self.trial.run.iterdir():  # the folder itself may be a disk
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.trial.note("refused")
        return refused


class Disk(Fault):
    """The disk of checkpoints has no room, or next to none."""

    def draw(self):
        self.room = self.random.choice((0, 8, 64, 200, 400))

    def reported(self):
        return f"{self.room} KiB on the disk"

    def before(self):
        used = shutil.disk_usage(self.trial.run).used
        self.trial.mount(f"remount,size={max(used // 1024 + self.room, 4)}k")  # 0 is no limit

    def after(self):
        self.trial.mount("remount,size=64m")

    def accepts(self, status, lines):
        return super().accepts(status, lines) or status == 8 and not lines or status in (3, 8) and len(lines) == 1


class Data(Fault):
    """What is to be trained on is cut short, or something else."""

    apart = True

    def draw(self):
        self.size = self.random.choice(("gone", "folder", 0, self.random.randint(1, 40), self.random.randint(1, 6000)))

    def reported(self):
        return f"data: {self.size}"

    def command(self, words):
        other = self.trial.folder / "other"
        if self.size == "folder":
            other.mkdir(exist_ok=True)
        elif self.size != "gone":
            other.write_bytes(self.trial.text.read_bytes()[:self.size])
        return [str(other) if word == str(self.trial.text) else word for word in words]

    def after(self):
        other = self.trial.folder / "other"
        if other.is_dir():
            other.rmdir()
        other.unlink(missing_ok=True)

    def accepts(self, status, lines):
        enough = isinstance(self.size, int) and self.size > 16
        return enough and super().accepts(status, lines) or status in (2, 3) and len(lines) == 1


class Shrinks(Fault):
    """The data is cut short while the run reads it, and restored for the next start."""

    def draw(self):
        self.size = self.random.choice((0, 1000, self.random.randint(1, 12000)))

    def reported(self):
        return f"data cut to {self.size} bytes {self.delay:.2f} after step {self.step}"

    def before(self):
        self.whole = self.trial.text.read_bytes()

    def during(self, process):
        self.wait(process)
        os.truncate(self.trial.text, self.size)

    def after(self):
        self.trial.text.write_bytes(self.whole)

    def accepts(self, status, lines):
        return super().accepts(status, lines) or status in (2, 3) and len(lines) == 1


class Config(Fault):
    """A file of flags that is no JSON, or has what is no flag."""

    apart = True

    def draw(self):
        good = '{"lr": 0.001, "beta2": 0.95, "clip_grad": 1.0, "weight_decay": 0.1, "strategy": "full_shard"}'
        at = self.random.randrange(len(good))
        self.text = self.random.choice((good[:at], good[:at] + self.random.choice('"{}[]\x00\x7f\\,:') + good[at:],
                                        good.replace("lr", "Ir"), good.replace("0.95", "-7"),
                                        good.replace("0.1", '"much"')))

    def reported(self):
        return f"config: {self.text!r}"

    def command(self, words):
        path = self.trial.folder / "config.json"
        path.write_text(self.text)
        return [*words, "--config", str(path)]

    def accepts(self, status, lines):
        return status in (2, 3) and len(lines) == 1


class Console(Fault):
    """Standard output, or input, is closed, full, or not read for a while."""

    def draw(self):
        self.how = self.random.choice(("closed", "full", "gone", "slow", "no input"))
        self.length = 1.5 * STALL * self.random.random() ** 2

    def reported(self):
        return f"console: {self.how}" + (f" for {self.length:.1f} s" if self.how == "slow" else "")

    def command(self, words):
        ends = {"closed": ">&-", "full": ">/dev/full", "gone": f"| head -c {int(self.delay * 900)} >/dev/null",
                "slow": f"| (sleep {self.length}; cat >out)", "no input": "<&-"}
        # a pipe that is full before anything is said, so that the first word waits
        fill = "head -c 65536 /dev/zero; " if self.how == "slow" else ""
        return ["bash", "-c", f'set -o pipefail; {{ {fill}"$@"; }} {ends[self.how]}', "run", *words]


ALL = {Rank: 8, Signal: 6, Call: 5, Torn: 4, Disk: 2, Data: 1, Shrinks: 1, Config: 1, Console: 2}


def possible(kind, trial):
    """Whether a kind of fault can be met in a trial."""
    needs = {Torn: trial.saving, Disk: trial.disk, Console: trial.way == "threads", Shrinks: trial.way != "hosts",
             Call: trial.saving or value_of(trial.flags, "--log-jsonl")}
    return bool(needs.get(kind, True))


def mounts():
    """Whether disks can be made here."""
    probe = ["unshare", "-m", "true"]
    return os.geteuid() == 0 and subprocess.run(probe, capture_output=True, check=False).returncode == 0
