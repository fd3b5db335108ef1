"""failure_cases.py - what fails in failures.py, in which phase, and what has to be said of it."""
import errno
import itertools
import os
import re

COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send",
               "recv", "barrier"]
SILENCE = 10  # seconds until a process that is stopped counts as lost


class Limits:
    """Seconds that things may take, on a machine that is so many times slower than an idle one."""

    slower = 1

    @property
    def stall(self):  # --stall-timeout of all runs
        return 2 * self.slower

    @property
    def start(self):  # of a start, with that --stall-timeout
        return max(20, self.stall)

    @property
    def exit(self):  # of exits, with that --stall-timeout
        return max(5, self.stall)

    def end(self, on):  # from the fault to the end of the run, by how ranks run
        return self.slower * {"threads": 5, "mpi": 5, "hosts": 15, "mixed": 15}[on]

    @property
    def run(self):  # of a whole run, with all of these
        return 60 * self.slower


LIMITS = Limits()
STEP = 3

# What the one line has to say (RANK: whose), and the exit status of gpt_train; None: a signal's.
DIED = r"rank RANK: lost: process \d+ \(pid \d+, rank RANK[^)]*\) has ended; it was last heard of on "
EXPECT = {
    "kill": (DIED, 4),
    "quit": (DIED, 4),
    "exit": (r"rank RANK: _exit was called, which ends all ranks: return from the function of the run instead; it was on ", 1),
    "stop": (r"rank RANK: lost: .* has been silent for 10 s; it was last heard of on ", 4),
    "segv": (r"rank RANK: SIGSEGV, an invalid memory reference; it was on ", None),
    "overflow": (r"rank RANK: SIGSEGV, an invalid memory reference; it was on ", None),
    "abort": (r"rank RANK: SIGABRT, the program gave up; it was on ", None),
    "slow_abort": (r"rank RANK: SIGABRT, the program gave up; it was on ", None),
    "stall": (r"rank RANK: stalled, it has done nothing for \d+\.\d s, and \d+\.0 are allowed; it was on ", 6),
    "slow_stall": (r"rank RANK: stalled, it has done nothing for \d+\.\d s, and \d+\.0 are allowed; it was on ", 6),
    "leave": (r"rank RANK has finished", 4),
    "mismatch": (r"over \w+, call \d+ of rank \d is .* that of rank \d is ", 5),
    "nonfinite": (r"rank \d: .*(inf|nan)", 7),
    "read": (r"rank RANK: cannot read the text: Input/output error; it was on ", 3),
    "launcher": (None, None),  # which is killed; no process is left to read a line
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
    ("stall", "last"): r"process RANK \(pid \d+, rank RANK\) on \w+ has not reached the end of the run within \d+ s",
    ("stall", "destructor"): r"process RANK \(pid \d+, rank RANK\) on \w+ has not ended within \d+ s of the run",
}
OUTSIDE = ("start", "meet", "last", "destructor", "end")
# Before the failure detector's connections are there no word passes between hosts: each says at most
# one line of what it sees, and knows the others' processes by nothing.
NO_WORD_YET = ("start", "meet")
SEEN_FROM_A_HOST = (r"on (node\d): process number \d of this host|seen from (node\d): |"
                    r"process \d \(pid \d+[^)]*\) on (node\d) has|"
                    r"has given up the start of the run, or has ended; process \d on (node\d) had")


class Case:
    ranks = processes = 4
    flags = ["--tp", "2", "--dp", "2", "--n-layer", "2"]

    def __init__(self, on, action, phase, rank=2):
        self.on, self.action, self.phase, self.rank = on, action, phase, rank
        self.early = phase in ("init", *OUTSIDE)
        self.name = f"{on:8} {action:10} {phase:15} rank {rank}"

    def judge_position(self, line):
        """Host, coordinates in the mesh, step and collective of a rank that had them."""
        needed = [r" on \w+"]
        if self.phase in OUTSIDE:
            return []
        if not self.phase == "init":
            needed.append(r"shard \d, tp \d")
        if not self.early:
            needed.append(r"(in step|before its first)")
        if self.phase in COLLECTIVES and self.action in ("segv", "stall"):
            needed.append(rf"having begun {self.phase} over \w+")
        return [f"lacks '{n}'" for n in needed if not re.search(n, line)]

    def limit(self):
        extra = {"stall": LIMITS.stall + 1.5, "slow_stall": LIMITS.stall + 3.5, "stop": SILENCE + 1}.get(self.action, 0)
        if (self.action, self.phase) == ("stop", "start"):
            extra = LIMITS.start + 1
        if self.action == "stall" and self.phase in ("last", "destructor"):
            extra = LIMITS.exit + 1
        return LIMITS.end(self.on) + extra


def cases(on, quick):
    processes = on != "threads"
    phases = {
        "kill": ["start", "meet", "last", "init", "forward", *COLLECTIVES, "optimizer", "save", "exit"] if processes else [],
        "quit": ["forward", "exit"] if processes else [],
        "exit": ["forward", "optimizer"],
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
    if on == "mixed":  # before and after the failure detector no other process sees one that is alone on its host
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
        reported = runner.reported(text)
        if acted is None:
            return ["the fault did not happen"]
        if self.action == "term":  # which asks for an end, with what has been done saved
            return [] if status in (0, 75) and not reported else [f"exit status {status}", *reported]
        if everybody and self.action == "stop" and status == "hangs":
            return []  # no process is left to notice
        problems = ["hangs"] if status == "hangs" else []
        if status != "hangs" and ended - acted > self.limit():
            problems.append(f"took {ended - acted:.1f} s of {self.limit()}")
        if status == 0:
            problems.append("exit status 0")
        if not reported and not problems and self.action == "kill":
            # no process is left, or the launcher ended the others before they could notice, or before
            # they had begun to look themselves
            self.silent = "all are dead" if everybody else f"{ended - acted:.2f} s to the launcher's end"
            if everybody or ended - acted < 0.35 or self.phase == "start":
                return []
        if len(reported) != 1 and not (not reported and everybody and self.action == "stop"):
            problems.append(f"reported on {len(reported)} lines")
        return problems


class Together(Case):
    """All ranks crash at once: as threads, 8 or 32, or as 4 processes."""

    def __init__(self, on, ranks, number):
        super().__init__(on, "segv", "forward", -1)
        self.ranks = ranks
        tp = 2 if ranks == 4 else 4
        self.flags = ["--tp", str(tp), "--dp", str(ranks // tp), "--n-layer", "2"]
        self.name = f"{on:8} {ranks} ranks crash together, {number}"

    def judge(self, runner, status, text, acted, ended):
        reported = runner.reported(text)
        problems = [] if status not in (0, "hangs") else [f"exit status {status}"]
        if len(reported) != 1 or not re.search(r"rank \d+: SIGSEGV, an invalid memory", reported[0]):
            problems.append(f"reported on {len(reported)} lines")
        # the process may be gone before it has noted when it crashed
        if acted is not None and status != "hangs" and ended - acted > self.limit():
            problems.append("late")
        return problems


class Call(Case):
    """A system call of the rendezvous fails once in one process; the run continues, or says why not."""

    def __init__(self, name, number, process, code):
        super().__init__("mpi", "call", "meet", process)
        self.call = f"{name} {number} {process} {code}"
        self.name = f"mpi      {name} {number} of process {process} fails: {errno.errorcode.get(code, code)}"

    def judge(self, runner, status, text, acted, ended):
        reported = runner.reported(text)
        if status == "hangs":
            return ["hangs"]
        wanted = 0 if status == 0 else 1
        return [] if len(reported) == wanted else [f"exit status {status}, reported on {len(reported)} lines"]


class Pipeline(Case):
    """A failure in an action of a pipeline of three stages, each on two ranks: in the middle, or where the action is."""

    ranks = processes = 6

    def __init__(self, on, action, phase, rank=2):
        super().__init__(on, action, phase, rank)
        schedule = "1f1b" if phase == "B" else "zb-h1"
        strategy = "zero1" if phase.startswith("REDUCE") else "shard_grad_op"
        self.flags = ["--pp", "3", "--dp", "2", "--pp-schedule", schedule, "--strategy", strategy, "--n-layer", "4",
                      "--micro-batch-size", "1", *(["--recompute", "stage"] if phase == "R" else [])]

    def judge_position(self, line):
        """Host, coordinates in the mesh, step, stage, micro-batch and action: of the rank, or of one that misses it."""
        if self.action == "nonfinite":
            needed = rf"micro-step \d, {self.phase}1\.\d of stage 1, on rank {self.rank},"
            return [] if re.search(needed, line) else [f"lacks '{needed}'"]
        where = r" on \w+, pp %s, shard \d, in step \d, in %s \(action \d+ of \d+\)"
        action = rf"{self.phase}(_[FB])?(\d+(\.\d+(-\d+)?)?)?"
        others = self.action in ("leave", "mismatch")  # of which any reports it
        if others:
            action = r"[A-Z]+(_[FB])?(\d+(\.\d+(-\d+)?)?)?"
        pp = r"\d" if others else str(self.rank // 2)
        needed = where % (pp, action)
        return [] if re.search(needed, line) else [f"lacks '{needed}'"]


def pipeline_cases(on, quick):
    """Each kind of action of a middle stage; TIE is the last stage's, and the first and the last stage read."""
    everywhere = ["F", "I", "W", "B", "R", "SEND", "SENT", "RECV", "RECVD", "UNSHARD", "RESHARD", "REDUCE", "REDUCED",
                  "TIE", "NORM", "OPT"]
    processes = on != "threads"
    phases = {
        "kill": everywhere if processes else [],
        "stop": everywhere if processes else [],
        "segv": everywhere,
        "stall": everywhere,
        "leave": everywhere[:-1],  # the others miss it after their last action
        "mismatch": ["UNSHARD", "REDUCE"],
        "nonfinite": ["F", "I", "B"],
        "read": ["F", "I"],
    }
    if quick:
        phases = {
            "threads": {"segv": ["I"], "stall": ["RECVD"], "leave": ["UNSHARD"], "read": ["F"]},
            "mpi": {"kill": ["W"], "stall": ["SENT"], "segv": ["REDUCE"]},
            "hosts": {"kill": ["F"]},
            "mixed": {},
        }[on]

    def rank(action, phase):
        """The rank by which its process is reported: its first."""
        if action == "read":
            return 0 if phase == "F" else 4
        return {"TIE": 0 if on == "mixed" else 4}.get(phase, 3 if on == "mixed" else 2)

    return [Pipeline(on, action, phase, rank(action, phase)) for action in phases for phase in phases[action]]


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
