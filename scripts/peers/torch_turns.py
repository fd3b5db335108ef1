"""Contestants of compare_torch.py that take turns step by step: each is stopped while others
take theirs. So what slows a machine for a second slows all of them alike."""
import os
import signal
import time

POLL = 1e-3  # seconds between looks at a log


class Stopped:
    """A contestant's process. It runs in take_step() alone, and to its end after a last SIGCONT."""

    def __init__(self, process, log):
        self.process, self.log, self.read = process, log, 0

    def signal(self, number):
        """Send a signal to all its processes."""
        os.killpg(self.process.pid, number)

    def steps_done(self):
        """How many lines of steps its log has by now."""
        if not self.log.exists():
            return 0
        with open(self.log, encoding="utf-8") as log:
            return sum('"step"' in line and line.endswith("\n") for line in log)

    def ended(self):
        """Whether the process is no more; it keeps its status for wait4."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def take_step(self):
        """Milliseconds of one step more, from where the last ended: its line in the log."""
        begin = time.monotonic()
        self.signal(signal.SIGCONT)
        size = -1
        while True:
            now = self.log.stat().st_size if self.log.exists() else 0
            if now != size:  # a look into the log only when it has grown
                size = now
                if self.steps_done() > self.read:
                    break
            if self.ended():
                break
            time.sleep(POLL)
        ms = (time.monotonic() - begin) * 1e3
        self.signal(signal.SIGSTOP)
        self.read += 1
        return ms


def take_turns(stopped, steps):
    """Milliseconds of each step of each contestant: {name: [ms]}."""
    ms = {name: [] for name in stopped}
    for step in range(steps):
        names = list(stopped)
        for name in names[::-1] if step % 2 else names:
            ms[name].append(stopped[name].take_step())
    return ms
