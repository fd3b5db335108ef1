#!/usr/bin/env python3
"""
elastic_hosts.py [--trials N] [--seed S] [--hosts N] [--save] [--silent] [--each N] [--steps N] [--slower N] [BUILD] - proves that a lost host costs no step and no bit:
each trial trains on four simulated hosts (--hosts 2: on two, the smallest cluster) of eight ranks each (--each), started by mpirun_hosts.sh --elastic, kills all that runs on a random
one at a random moment and wipes its memory, and has to end with the digests of a run that lost none, each step logged once.
The host stays away, or comes back after some seconds and rejoins. With --silent it loses its network first, as by
a loss of power: no connection is closed. Nothing is saved
to a disk, but with --save, whose checkpoints are older than what hosts hold.

Hosts are network namespaces (tests/hosts/hosts.sh), which takes root; mpirun runs on a fifth one. Prints how long it took to
return to work. Status 1 with the first trial that fails, 77 where hosts cannot be made.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from elastic import MODEL, STRATEGIES, numbers_of
from training_runs import Failure, ROOT, write_text

MAKE = ROOT / "tests/hosts/hosts.sh"
AGENT = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
[ ! -e {folder}/down-$1 ] || exit 255
exec {make} --on "$@"
"""
BACK = re.compile(r"continuing after step (\d+) with what hosts have kept in \S+ --pp \d+ --dp (\d+) --tp \d+, ([\d.]+) s later")


def layout_of(random_, hosts, each):
    """Flags of `hosts` hosts with `each` ranks each."""
    layouts = [(1, each // n, n * hosts) for n in (1, 2, 4) if n <= each]
    if hosts > 2:  # of two hosts each would be a stage, with its buddies
        layouts.append((2, each // 2, hosts))
    pp, tp, dp = random_.choice(layouts)
    strategy = random_.choice(STRATEGIES)
    flags = ["--pp", pp] if pp > 1 else []
    flags += ["--tp", tp, "--dp", dp, "--strategy", *strategy.split()]
    if strategy == "hybrid_shard":
        flags += ["--dp-replicate", min(4 if dp > 4 else 2, hosts)]
    return [str(flag) for flag in flags], dp


def model_of(arch, steps):
    """That of elastic.py, with enough steps for a host to be lost and to come back in."""
    flags = ["--arch", arch, *MODEL, "--global-batch-size", "16"]
    flags[flags.index("--steps") + 1] = str(steps)
    return flags


def rows_of(log):
    rows = []
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:  # it is being written
            continue
        if "step" in row:
            rows.append(row)
    return rows


def link(host, state):
    """The host's network, up or down."""
    subprocess.run(["nsenter", f"--net=/media/{host}/net", "ip", "link", "set", "eth0", state], check=True)


def kill(host):
    """All that runs there, and its memory."""
    network = os.stat(f"/media/{host}/net").st_ino
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.stat(process / "ns/net").st_ino == network:
                os.kill(int(process.name), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            continue
    for path in pathlib.Path(f"/media/{host}/shm").iterdir():
        shutil.rmtree(path, ignore_errors=True)


def start(options, folder, flags):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PROBE="1",
                       WEFT_PLUGINS=str(options.build), OMPI_MCA_plm_rsh_agent=f"{folder}/agent",
                       OMPI_MCA_btl_tcp_if_include="10.77.0.0/24", OMPI_MCA_oob_tcp_if_include="10.77.0.0/24")
    hosts = [f"node{host}" for host in range(options.hosts)]
    command = [ROOT / "scripts/mpirun_hosts.sh", "--elastic", ",".join(hosts), options.each, options.build / "apps/gpt_train",
               "--data", folder / "text", *flags, "--log-jsonl", folder / "log"]
    words = " ".join(str(word) for word in command)
    with open(folder / "out", "w") as out:
        return subprocess.Popen([MAKE, "--on", f"node{options.hosts}", f"cd {folder} && exec {words}"], stdout=out, stderr=subprocess.STDOUT,
                                env=environment, start_new_session=True)


def trial(options, random_, number, expected):
    arch = random_.choice(("gpt2", "llama"))
    flags, dp = layout_of(random_, options.hosts, options.each)
    host, after, returns = f"node{random_.randrange(options.hosts)}", random_.randint(3, 9), random_.random() < 0.5
    described = f"trial {number}: {arch} {' '.join(flags)}, {host} lost after step {after}, {'back' if returns else 'away'}"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / "text")
        (folder / "agent").write_text(AGENT.format(folder=folder, make=MAKE))
        (folder / "agent").chmod(0o755)
        if arch not in expected:
            subprocess.run([options.build / "apps/gpt_train", "--data", folder / "text", *model_of(arch, options.steps), "--log-jsonl",
                            folder / "log"], check=True, capture_output=True)
            expected[arch] = numbers_of(rows_of(folder / "log"))
            (folder / "log").unlink()
        saving = ["--save", str(folder / "run"), "--save-interval", "5"] if options.save else []
        job = start(options, folder, model_of(arch, options.steps) + flags + saving)
        try:
            limit = time.time() + 60 * options.slower
            while len(rows_of(folder / "log")) < after and time.time() < limit:
                time.sleep(0.02)
            time.sleep(random_.random() * 0.2)
            (folder / f"down-{host}").touch()
            if options.silent:
                link(host, "down")
            kill(host)
            if returns:
                time.sleep(2 + random_.random() + 12 * options.silent)
                link(host, "up")
                (folder / f"down-{host}").unlink()
            status = job.wait(timeout=120 * options.slower)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            status = "hangs"
        link(host, "up")
        out, rows = (folder / "out").read_text(), rows_of(folder / "log")
    back = BACK.findall(out)
    if status != 0 or not back:
        raise Failure(f"{described}: status {status}: {out}")
    if [row["step"] for row in rows] != list(range(1, options.steps + 1)):
        raise Failure(f"{described}: steps {[row['step'] for row in rows]} were logged: {out}")
    if numbers_of(rows) != expected[arch]:
        raise Failure(f"{described}: other digests: {out}")
    return float(back[0][2]), int(back[0][1]) < dp, [float(one[2]) for one in back[1:] if int(one[1]) == dp]


def campaign(options):
    random_ = random.Random(options.seed)
    expected, times, smaller, grown = {}, [], 0, []
    try:
        for number in range(1, options.trials + 1):
            took, less, more = trial(options, random_, number, expected)
            times.append(took)
            smaller += less
            grown += more
            print(f"\r{number} of {options.trials} ", end="", flush=True)
    except Failure as failure:
        print(f"\nelastic_hosts.py: {failure}", file=sys.stderr)
        return 1
    print(f"\n{len(times)} hosts lost of {options.hosts} with {options.each} ranks each, no step lost, all digests those of runs without a loss\n"
          f"back at work after {statistics.median(times):.2f} s in the median, {max(times):.2f} s at most, {smaller} times on a "
          f"smaller mesh; grown again {len(grown)} times" + (f", in {statistics.median(grown):.2f} s" if grown else ""))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=4, choices=(2, 4))
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--each", type=int, default=8, choices=(2, 4, 8), help="ranks a host")
    parser.add_argument("--steps", type=int, default=60, help="enough for a host to be lost and to come back in")
    parser.add_argument("--slower", type=int, default=1, help="the machine is so many times slower than an idle one, and a trial may take so many "
                        "times as long")
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    if os.environ.get("WEFT_INSIDE") == "yes":
        return campaign(options)
    return subprocess.run([MAKE, str(options.hosts + 1), "-", sys.executable, __file__, "--trials", str(options.trials), "--seed",
                           str(options.seed), "--hosts", str(options.hosts), "--each", str(options.each), "--steps", str(options.steps),
                           "--slower", str(options.slower), *["--save"] * options.save,
                           *["--silent"] * options.silent, options.build],
                          env=dict(os.environ, WEFT_INSIDE="yes"), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
