#!/usr/bin/env python3
"""failures.py [--quick] [--pipeline] [--on KIND] [--only WORD] [--times N] [--jobs N] [--slower N] [--campaign NAME] [BUILD] - what becomes of a
run when one of its ranks fails, in every phase: as threads, as processes on this host, and on
two simulated hosts (root is needed for those; they are skipped without).

A case passes when the failure was noticed in time by the run itself, when exactly one line says
what happened, to which rank, and where that was, when the exit status is the documented one, and
when nothing is left running. --quick is a dozen cases, --on threads|mpi|hosts|mixed one way to run,
--pipeline failures in every action of a pipeline.

Campaigns: subsets, of 2 to 4 of 4 processes x 4 signals x 6 phases; together, all ranks crash at once,
--times of them; calls, each system call of the rendezvous fails once, in both roles.
"""
import argparse
import concurrent.futures
import copy
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from failure_cases import (EXPECT, LIMITS, NO_WORD_YET, SEEN_FROM_A_HOST, STEP,
                           Subset, Together, UNWATCHED, calls, cases, pipeline_cases, subsets, together)


class Runner:
    def __init__(self, build, here, top):
        self.build, self.here, self.top = build, here, top
        self.program = os.path.join(build, "tests/hosts/gpt_train_faulty")

    def launcher(self, case):
        if case.on == "threads":
            return []
        mpi = ["mpirun", "--quiet", "--oversubscribe", "--bind-to", "none"]
        if case.on == "mpi":
            return mpi + ["-np", str(case.processes)]
        each = 1 if case.on == "mixed" else case.processes // 2
        agent = f"'{self.here}/hosts.sh --on'"
        network = "10.77.0.0/24"
        return [f"{self.here}/hosts.sh", "--on", "node0", "exec", *mpi, "--mca", "plm_rsh_agent", agent,
                "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network,
                "-wdir", "{work}", "-x", "WEFT_PLUGINS", "-x", "WEFT_FAULT", "-x", "WEFT_FAULT_LOG",
                "--host", f"node0:{each},node1:{each}"]

    def command(self, case, work, seed):
        flags = ["--data", f"{self.top}/text", "--n-embd", "32", "--n-head", "4",
                 "--vocab-size", "256", "--seq-len", "16",
                 "--steps", str(100000 if case.action == "launcher" else STEP + 2), "--eval-interval", "0", "--threads-per-rank", "1",
                 *case.flags, "--global-batch-size", "8", "--rank-order", "started", "--seed", str(seed), "--stall-timeout", str(LIMITS.stall),
                 "--recorder-dir", f"{work}/recorder"]
        if case.phase == "save" or case.action == "term":
            flags += ["--save", f"{work}/run"]
        launch = [word.replace("{work}", work) for word in self.launcher(case)]
        return launch + [self.program] + flags

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
                status = job.wait(timeout=LIMITS.run)
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
        return case, acted and ended - acted, problems, self.reported(text), text

    @staticmethod
    def kill_when(job, log):
        for _ in range(10 * LIMITS.run // 2):
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
    def reported(text):
        """Lines of what ended the run: no warnings, and no notices that a start takes its time."""
        return [line for line in text.splitlines()
                if line.startswith("gpt_train") and " warning: " not in line and " still waits for the run's start " not in line]

    def judge(self, case, status, text, acted, ended):
        problems = []
        words, code = EXPECT[case.action]
        words = UNWATCHED.get((case.action, case.phase), words)
        words = words and words.replace("RANK", str(case.rank))
        reported = self.reported(text)
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
                len(reported) == 1 and re.search(words, reported[0])):
            problems += self.judge_hosts(reported)
        elif len(reported) != 1:
            problems.append(f"reported on {len(reported)} lines")
        elif not re.search(words, reported[0]):
            problems.append(f"does not say '{words}'")
        else:
            problems += case.judge_position(reported[0])
        return problems

    @staticmethod
    def judge_hosts(reported):
        """One line a host at most, each of what that host sees."""
        seen = [re.search(SEEN_FROM_A_HOST, line) for line in reported]
        hosts = [next(g for g in m.groups() if g) for m in seen if m]
        if not reported or len(hosts) < len(reported) or len(set(hosts)) < len(hosts):
            return [f"reported on {len(reported)} lines, not on one that a host sees"]
        return []


def hosts_possible(here):
    probe = subprocess.run([f"{here}/hosts.sh", "2", "-", "true"], capture_output=True)
    return probe.returncode == 0


def write_text(path):
    with open(path, "w") as text:
        for i in range(2000):
            text.write(f"On day {i} the cat sat on mat number {i * i % 89} and thought.\n")


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/hosts")
    here = os.path.realpath(here)
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pipeline", action="store_true", help="failures in actions of a pipeline")
    parser.add_argument("--sanitized", action="store_true", help="threads alone")
    parser.add_argument("--on", choices=["threads", "mpi", "hosts", "mixed"])
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--times", type=int, default=1, help="each case so often")
    parser.add_argument("--campaign", choices=["subsets", "together", "calls"])
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--slower", type=int, default=1, metavar="N",
                        help="the machine is N times slower than an idle one: --stall-timeout and all limits are N times as long")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    LIMITS.slower = options.slower

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

    choose = pipeline_cases if options.pipeline else cases
    chosen = [c for k in kinds for c in choose(k, options.quick)
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
            for case, took, problems, reported, text in pool.map(runner.run, seeds):
                failed += bool(problems)
                alone += hasattr(case, "alone")
                seconds = f"{took:5.1f} s" if took else "      -"
                print(f"{'FAIL' if problems else 'ok  '} {case.name:43} {seconds}  "
                      f"{reported[0] if reported else getattr(case, 'silent', '')}", flush=True)
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
