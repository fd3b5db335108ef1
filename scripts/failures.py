#!/usr/bin/env python3
"""failures.py [--quick] [--on KIND] [--only WORD] [--times N] [--jobs N] [--campaign NAME] [BUILD] - what becomes of a
run when one of its ranks fails, in every phase: as threads, as processes on this host, and on
two simulated hosts (root is needed for those; they are skipped without).

A case passes when the failure was noticed in time by the run itself, when exactly one line says
what happened, to which rank, and where that was, when the exit status is the documented one, and
when nothing is left running. --quick is a dozen cases, --on threads|mpi|hosts|mixed one way to run.

Campaigns: subsets, of 2 to 4 of 4 processes x 4 signals x 6 phases; together, all ranks crash at once,
--times of them; calls, each system call of the rendezvous fails once, in both roles.
"""
import argparse
import concurrent.futures
import copy
import errno
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send",
               "recv", "barrier"]
STALL = 2  # seconds: --stall-timeout of all runs
# seconds from the fault to the end of the run, by how ranks run; a dead process, any other fault
LIMIT = {"threads": 5, "mpi": 5, "hosts": 15, "mixed": 15}
START = 20  # seconds that a start may take, with that --stall-timeout
EXIT = 5  # seconds that exits may take, with that --stall-timeout
SILENCE = 10  # seconds until a process that is stopped counts as lost
STEP = 3

# What the one line has to say (RANK: whose), and the exit status of gpt_train; None: a signal's.
DIED = r"rank RANK: lost: process \d+ \(pid \d+, rank RANK[^)]*\) has ended; it was last heard of on "
EXPECT = {
    "kill": (DIED, 4),
    "quit": (DIED, 4),
    "stop": (r"rank RANK: lost: .* has been silent for 10 s; it was last heard of on ", 4),
    "segv": (r"rank RANK: SIGSEGV, an invalid memory reference; it was on ", None),
    "overflow": (r"rank RANK: SIGSEGV, an invalid memory reference; it was on ", None),
    "abort": (r"rank RANK: SIGABRT, the program gave up; it was on ", None),
    "slow_abort": (r"rank RANK: SIGABRT, the program gave up; it was on ", None),
    "stall": (r"rank RANK: stalled, it has done nothing for \d\.\d s, and 2\.0 are allowed; it was on ", 6),
    "slow_stall": (r"rank RANK: stalled, it has done nothing for \d\.\d s, and 2\.0 are allowed; it was on ", 6),
    "leave": (r"rank RANK has finished", 4),
    "mismatch": (r"over \w+, call \d+ of rank \d is .* that of rank \d is ", 5),
    "nonfinite": (r"rank \d: .*(inf|nan)", 7),
    "read": (r"rank RANK: cannot read the text: Input/output error; it was on ", 3),
    "launcher": (None, None),  # which is killed; nobody is left to read a line
    "full": (r"no checkpoint was saved: .*rank RANK: .*[Nn]o space left", 8),
}


# A process that the failure detector does not see yet, or no more: its host's others do.
UNWATCHED = {
    ("kill", "start"): r"process RANK (\(pid \d+\) on \w+ has ended while the run started|has not come)",
    ("stop", "start"): r"process RANK has not come|process RANK \(pid \d+[^)]*\) on \w+ has been stopped for 10 s while the run started",
    ("kill", "meet"): r"process RANK \(pid \d+.* has ended while the run started",
    # who may be in the world already, and silent there
    ("stop", "meet"): EXPECT["stop"][0] + r"|process RANK \(pid \d+[^)]*\) on \w+ has been stopped for 10 s while the run started",
    ("kill", "last"): r"process RANK \(pid \d+, rank RANK\) on \w+ has ended while the run ended",
    ("stop", "last"): r"process RANK \(pid \d+, rank RANK\) on \w+ has been stopped for 10 s while the run ended",
    ("stall", "last"): r"process RANK \(pid \d+, rank RANK\) on \w+ has not come to the end of the run within 5 s",
    ("stall", "destructor"): r"process RANK \(pid \d+, rank RANK\) on \w+ has not ended within 5 s of the run",
}
OUTSIDE = ("start", "meet", "last", "destructor", "end")
# Before the failure detector's connections are there no word passes between hosts: each says at most
# one line of what it sees, and knows the others' processes by nothing.
NO_WORD_YET = ("start", "meet")
SEEN_FROM_A_HOST = (r"on (node\d): process number \d of this host|seen from (node\d): |"
                    r"process \d \(pid \d+[^)]*\) on (node\d) has|"
                    r"has given up the start of the run, or has ended; process \d on (node\d) had")


class Case:
    def __init__(self, on, action, phase, rank=2):
        self.on, self.action, self.phase, self.rank = on, action, phase, rank
        self.early = phase in ("init", *OUTSIDE)
        self.name = f"{on:8} {action:10} {phase:15} rank {rank}"

    def limit(self):
        extra = {"stall": STALL + 1.5, "slow_stall": STALL + 3.5, "stop": SILENCE + 1}.get(self.action, 0)
        if (self.action, self.phase) == ("stop", "start"):
            extra = START + 1
        if self.action == "stall" and self.phase in ("last", "destructor"):
            extra = EXIT + 1
        return LIMIT[self.on] + extra


def cases(on, quick):
    processes = on != "threads"
    phases = {
        "kill": ["start", "meet", "last", "init", "forward", *COLLECTIVES, "optimizer", "save", "exit"] if processes else [],
        "quit": ["forward", "exit"] if processes else [],
        "stop": ["start", "meet", "all_reduce", "last"] if processes else [],
        "overflow": ["forward"],
        "segv": ["init", "forward", "all_reduce", "optimizer", "exit"],
        "abort": ["forward"],
        "slow_abort": ["forward"],
        "stall": ["init", "forward", *COLLECTIVES, "optimizer", "exit"],
        "leave": ["forward", "all_gather", "optimizer"],
        "mismatch": [c for c in COLLECTIVES if c not in ("send", "recv", "barrier")],
        "nonfinite": ["forward"],
        "read": ["forward"],
        "full": ["save"],
        "launcher": ["forward"] if processes else [],
    }
    if quick:
        phases = {
            "threads": {"segv": ["forward"], "stall": ["forward"], "mismatch": ["all_gather"],
                        "full": ["save"]},
            "mpi": {"kill": ["meet", "all_reduce", "exit"], "segv": ["optimizer"],
                    "stall": ["forward", "last", "destructor"], "leave": ["all_gather"], "nonfinite": ["forward"],
                    "launcher": ["forward"]},
            "hosts": {"kill": ["init", "all_gather"], "slow_abort": ["forward"], "stall": ["optimizer"]},
            "mixed": {},
        }[on]
    if on == "mixed":  # before and after the failure detector nobody sees who is alone on its host
        phases = {action: [p for p in phases[action] if p not in OUTSIDE] for action in phases}
    chosen = [Case(on, action, phase) for action in phases for phase in phases[action]]
    if processes and not quick:  # the one that all others are connected to
        chosen += [Case(on, action, phase, 0) for action in ("kill", "segv", "stall")
                   for phase in ("init", "forward", "all_gather", "optimizer", "exit")]
        chosen.append(Case(on, "stop", "all_reduce", 0))
        if on != "mixed":
            chosen += [Case(on, "stall", phase, rank) for phase in ("last", "destructor") for rank in (0, 2)]
        chosen.append(Case(on, "slow_stall", "forward", 0))  # its reporter is late
    return chosen


class Subset(Case):
    """The same happens to several of four processes, in the same phase."""

    def __init__(self, on, action, phase, ranks):
        super().__init__(on, action, phase, ranks[0])
        self.ranks = ranks
        self.name = f"{on:8} {action:10} {phase:15} ranks {','.join(map(str, ranks))}"

    def limit(self):
        return super().limit() + 2

    def judge(self, runner, status, text, acted, ended):
        everybody = len(self.ranks) == 4
        told = runner.told(text)
        if acted is None:
            return ["the fault did not happen"]
        if self.action == "term":  # which asks for an end, with what has been done saved
            return [] if status in (0, 75) and not told else [f"exit status {status}", *told]
        if everybody and self.action == "stop" and status == "hangs":
            return []  # nobody is left who could notice
        problems = ["hangs"] if status == "hangs" else []
        if status != "hangs" and ended - acted > self.limit():
            problems.append(f"took {ended - acted:.1f} s of {self.limit()}")
        if status == 0:
            problems.append("exit status 0")
        if not told and not problems and self.action == "kill":
            # nobody is left, or the launcher ended the others before they could notice, or before
            # they had begun to look themselves
            self.silent = "all are dead" if everybody else f"{ended - acted:.2f} s to the launcher's end"
            if everybody or ended - acted < 0.35 or self.phase == "start":
                return []
        if len(told) != 1 and not (not told and everybody and self.action == "stop"):
            problems.append(f"told on {len(told)} lines")
        return problems


class Together(Case):
    """All ranks crash at once: as threads, 8 or 32, or as 4 processes."""

    def __init__(self, on, ranks, number):
        super().__init__(on, "segv", "forward", -1)
        self.ranks = ranks
        self.name = f"{on:8} {ranks} ranks crash together, {number}"

    def judge(self, runner, status, text, acted, ended):
        told = runner.told(text)
        problems = [] if status not in (0, "hangs") else [f"exit status {status}"]
        if len(told) != 1 or not re.search(r"rank \d+: SIGSEGV, an invalid memory", told[0]):
            problems.append(f"told on {len(told)} lines")
        # the process may be gone before it has noted when it crashed
        if acted is not None and status != "hangs" and ended - acted > self.limit():
            problems.append("late")
        return problems


class Call(Case):
    """A system call of the rendezvous fails once in one process; the run goes on, or says why not."""

    def __init__(self, name, number, process, code):
        super().__init__("mpi", "call", "meet", process)
        self.call = f"{name} {number} {process} {code}"
        self.name = f"mpi      {name} {number} of process {process} fails: {errno.errorcode.get(code, code)}"

    def judge(self, runner, status, text, acted, ended):
        told = runner.told(text)
        if status == "hangs":
            return ["hangs"]
        wanted = 0 if status == 0 else 1
        return [] if len(told) == wanted else [f"exit status {status}, told on {len(told)} lines"]


def subsets():
    return [Subset("mpi", action, phase, ranks)
            for action in ("kill", "segv", "term", "stop")
            for phase in ("start", "meet", "forward", "all_reduce", "exit", "last")
            for size in (2, 3, 4) for ranks in itertools.combinations(range(4), size)]


def together(times):
    kinds = [("threads", 8), ("threads", 32), ("mpi", 4)]
    return [Together(*kinds[i % 3], i) for i in range(times)]


def calls(runner):
    """As often as each process makes each call in a run without a fault."""
    log = f"{runner.top}/calls"
    runner.run((1000 * (os.getpid() % 1000000), Call("none", 0, 0, 0)), {"WEFT_FAIL_LOG": log})
    found = []
    for line in sorted(set(open(log).read().splitlines())):
        process, name, count = line.split()
        if int(process) > 1:
            continue
        for number in range(1, min(int(count), 4) + 1):
            for code in (errno.EINTR, errno.ENOMEM, errno.ECONNRESET):
                found.append(Call(name, number, int(process), code))
    return found


class Runner:
    def __init__(self, build, here, top):
        self.build, self.here, self.top = build, here, top
        self.program = os.path.join(build, "tests/hosts/gpt_train_faulty")

    def launcher(self, on):
        if on == "threads":
            return []
        mpi = ["mpirun", "--quiet", "--oversubscribe", "--bind-to", "none"]
        if on == "mpi":
            return mpi + ["-np", "4"]
        agent = f"'{self.here}/hosts.sh --on'"
        network = "10.77.0.0/24"
        return [f"{self.here}/hosts.sh", "--on", "node0", "exec", *mpi, "--mca", "plm_rsh_agent", agent,
                "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network,
                "-wdir", "{work}", "-x", "WEFT_PLUGINS", "-x", "WEFT_FAULT", "-x", "WEFT_FAULT_LOG",
                "--host", "node0:1,node1:1" if on == "mixed" else "node0:2,node1:2"]

    def command(self, case, work, seed):
        flags = ["--data", f"{self.top}/text", "--n-layer", "2", "--n-embd", "32", "--n-head", "4",
                 "--vocab-size", "256", "--seq-len", "16",
                 "--steps", str(100000 if case.action == "launcher" else STEP + 2), "--eval-interval", "0", "--threads-per-rank", "1",
                 *self.mesh(case), "--rank-order", "started", "--seed", str(seed), "--stall-timeout", str(STALL),
                 "--recorder-dir", f"{work}/recorder"]
        if case.phase == "save" or case.action == "term":
            flags += ["--save", f"{work}/run"]
        launch = [word.replace("{work}", work) for word in self.launcher(case.on)]
        return launch + [self.program] + flags

    @staticmethod
    def mesh(case):
        ranks = case.ranks if isinstance(case, Together) else 4
        return ["--tp", "2" if ranks == 4 else "4", "--dp", str(ranks // (2 if ranks == 4 else 4)),
                "--global-batch-size", "8"]

    @staticmethod
    def fault(case):
        step = 0 if case.early or isinstance(case, Together) else STEP
        action = "mark" if case.action == "launcher" else case.action
        ranks = case.ranks if isinstance(case, Subset) else [case.rank]
        return ";".join(f"{action} {case.phase} {rank} {step}" for rank in ranks)

    def run(self, numbered, more=()):
        seed, case = numbered
        work = tempfile.mkdtemp(dir=self.top)
        log = f"{work}/acted"
        environment = dict(os.environ, WEFT_PLUGINS=self.build, WEFT_FAULT_LOG=log,
                           WEFT_FAULT=self.fault(case), WEFT_FAIL_CALL=getattr(case, "call", ""),
                           TMPDIR=work, OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **dict(more))
        alone = False
        with open(f"{work}/out", "w+") as out:
            job = subprocess.Popen(self.command(case, work, seed), cwd=work, env=environment,
                                   stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                if case.action == "launcher":
                    self.kill_when(job, log)
                status = job.wait(timeout=60)
            except subprocess.TimeoutExpired:
                status = "hangs"
                alone = not self.children(job.pid)
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            ended = time.time()
            left = self.left(seed)
            out.seek(0)
            text = out.read()
        times = open(log).read().split() if os.path.exists(log) else []
        acted = float(times[-1]) if times else None
        if alone:  # in its own end, which is judged as if it had come
            case.alone = True
            status, ended = -signal.SIGKILL, acted or ended
        if hasattr(case, "judge"):
            problems = case.judge(self, status, text, acted, ended)
        else:
            problems = self.judge(case, status, text, acted, ended)
        if left:
            problems.append(f"left running: {' '.join(left)}")
            self.end_all(left)
        return case, acted and ended - acted, problems, self.told(text), text

    @staticmethod
    def kill_when(job, log):
        for _ in range(300):
            if os.path.exists(log):
                break
            time.sleep(0.1)
        job.kill()

    @staticmethod
    def children(pid):
        """States of those that have not ended."""
        listed = subprocess.run(["ps", "-o", "stat=", "--ppid", str(pid)], capture_output=True, text=True)
        return [state for state in listed.stdout.split() if not state.startswith("Z")]

    @staticmethod
    def left(seed):
        """Processes of the run that are still there two seconds after its end."""
        pids = []
        for _ in range(20):
            pids = subprocess.run(["pgrep", "-f", f"--seed {seed} "], capture_output=True,
                                  text=True).stdout.split()
            if not pids:
                break
            time.sleep(0.1)
        return pids

    @staticmethod
    def end_all(pids):
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass

    @staticmethod
    def told(text):
        return [line for line in text.splitlines()
                if line.startswith("gpt_train") and " warning: " not in line]

    def judge(self, case, status, text, acted, ended):
        problems = []
        words, code = EXPECT[case.action]
        words = UNWATCHED.get((case.action, case.phase), words)
        words = words and words.replace("RANK", str(case.rank))
        told = self.told(text)
        if acted is None:
            return ["the fault did not happen"]
        if case.action == "launcher":
            return []
        if status == "hangs":
            problems.append("hangs")
        elif ended - acted > case.limit():
            problems.append(f"took {ended - acted:.1f} s of {case.limit()}")
        if status == 0:
            problems.append("exit status 0")
        # mpirun's own is that of the process that it sees end first
        if code is not None and status not in (code, "hangs") and not (
                case.on != "threads" and case.action in ("kill", "quit", "stop")):
            problems.append(f"exit status {status}, not {code}")
        if case.on in ("hosts", "mixed") and case.phase in NO_WORD_YET and not (
                len(told) == 1 and re.search(words, told[0])):
            problems += self.judge_hosts(told)
        elif len(told) != 1:
            problems.append(f"told on {len(told)} lines")
        elif not re.search(words, told[0]):
            problems.append(f"does not say '{words}'")
        else:
            problems += self.judge_place(case, told[0])
        return problems

    @staticmethod
    def judge_hosts(told):
        """One line a host at most, each of what that host sees."""
        seen = [re.search(SEEN_FROM_A_HOST, line) for line in told]
        hosts = [next(g for g in m.groups() if g) for m in seen if m]
        if not told or len(hosts) < len(told) or len(set(hosts)) < len(hosts):
            return [f"told on {len(told)} lines, not on one that a host sees"]
        return []

    @staticmethod
    def judge_place(case, line):
        """Host, place in the mesh, step and collective of a rank that had them."""
        needed = [r" on \w+"]
        if case.phase in OUTSIDE:
            return []
        if not case.phase == "init":
            needed.append(r"shard \d, tp \d")
        if not case.early:
            needed.append(r"(in step|before its first)")
        if case.phase in COLLECTIVES and case.action in ("segv", "stall"):
            needed.append(rf"having begun {case.phase} over \w+")
        return [f"lacks '{n}'" for n in needed if not re.search(n, line)]


def hosts_possible(here):
    probe = subprocess.run([f"{here}/hosts.sh", "2", "-", "true"], capture_output=True)
    return probe.returncode == 0


def write_text(path):
    with open(path, "w") as text:
        for i in range(2000):
            text.write(f"On day {i} the cat sat on mat number {i * i % 89} and thought.\n")


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/hosts")
    here = os.path.realpath(here)
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sanitized", action="store_true", help="threads alone")
    parser.add_argument("--on", choices=["threads", "mpi", "hosts", "mixed"])
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--times", type=int, default=1, help="each case so often")
    parser.add_argument("--campaign", choices=["subsets", "together", "calls"])
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    build = os.path.abspath(options.build)

    kinds = ["mpi"] if options.campaign else [options.on] if options.on else ["threads", "mpi", "hosts", "mixed"]
    if options.sanitized:
        kinds = ["threads"]
    if not shutil.which("mpirun") and kinds != ["threads"]:
        print("skipped but for threads: mpirun is not here (Debian: openmpi-bin)")
        kinds = ["threads"]
    if not options.inside and any(k in kinds for k in ("hosts", "mixed")):
        if hosts_possible(here):
            os.execv(f"{here}/hosts.sh", [f"{here}/hosts.sh", "2", "-", sys.executable,
                                          os.path.abspath(__file__), *sys.argv[1:], "--inside"])
        print("skipped on hosts: no right to make namespaces, networks and mounts here")
        kinds = [k for k in kinds if k not in ("hosts", "mixed")]

    chosen = [c for k in kinds for c in cases(k, options.quick)
              if not options.only or options.only in c.name] * options.times
    top = tempfile.mkdtemp(prefix="weft-failures-")
    failed = alone = 0
    try:
        write_text(f"{top}/text")
        runner = Runner(build, here, top)
        if options.campaign:
            chosen = {"subsets": subsets, "together": lambda: together(options.times),
                      "calls": lambda: calls(runner)}[options.campaign]()
            chosen = [c for c in chosen if not options.only or options.only in c.name]
            if options.campaign != "together":
                chosen *= options.times
        seeds = enumerate(map(copy.copy, chosen), start=1000 * (os.getpid() % 1000000) + 1)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for case, took, problems, told, text in pool.map(runner.run, seeds):
                failed += bool(problems)
                alone += hasattr(case, "alone")
                seconds = f"{took:5.1f} s" if took else "      -"
                print(f"{'FAIL' if problems else 'ok  '} {case.name:43} {seconds}  "
                      f"{told[0] if told else getattr(case, 'silent', '')}", flush=True)
                if problems:
                    print(f"     {'; '.join(problems)}")
                    print("\n".join("     | " + line for line in text.splitlines()[-20:]), flush=True)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    print(f"{len(chosen) - failed} of {len(chosen)} failures noticed in time, named and cleaned up")
    if alone:
        print(f"after {alone} of them mpirun, with no process left, did not end (docs/reliability.md)")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
