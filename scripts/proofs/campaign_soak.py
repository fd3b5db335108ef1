"""
campaign_soak.py - a run of thousands of steps that saves every 50, evaluates and logs, on four ranks: its resident
memory, open descriptors and threads stay what they are once a tenth of it is done, and it ends with the digest of a
run of one rank. Trial 1 and all odd ones lose no rank; the even ones lose a rank every 100 steps and continue by its
buddy.
"""
import os
import re
import statistics
import subprocess
import time

from campaign_state import LIMIT, digests_of, drive, end, environment, write_lines
from training_runs import Failure

MODEL = ["--n-layer", "2", "--n-head", "4", "--n-embd", "16", "--seq-len", "16", "--global-batch-size", "4",
         "--dropout", "0.1", "--warmup-steps", "10", "--threads-per-rank", "1", "--device", "cpu", "--digest"]
EVERY, SAMPLES = 100, 0.05
MEMORY = 1024  # KiB that may come and go


def sample(pid):
    """Resident KiB, descriptors and threads of a process; None: it has ended."""
    try:
        status = open(f"/proc/{pid}/status").read()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]), descriptors, int(re.search(r"Threads:\s+(\d+)", status)[1])
    except (OSError, TypeError):
        return None


def watch(process, log, steps):
    """Samples of a run until it ends, each with the tenth of its steps that was under way."""
    tenths = [[] for _ in range(10)]
    done, lines, limit = 0, None, time.monotonic() + LIMIT + steps
    while process.poll() is None:
        if lines is None and log.exists():
            lines = open(log)
        done += sum(line.startswith('{"step"') for line in lines) if lines else 0
        found = sample(process.pid)
        if found:
            tenths[min(10 * done // steps, 9)].append(found)
        if time.monotonic() > limit:
            raise Failure(f"no end after {done} of {steps} steps")
        time.sleep(SAMPLES * min(1, steps / 10000))  # 1,000 steps may take two seconds
    return tenths


def flat(tenths):
    """Memory of the second and the last tenth in the median; descriptors and threads at the least, before and in the last half,
    since saves open more for a while. Failure where they differ."""
    if min(len(tenths[1]), len(tenths[9])) < 3:
        raise Failure(f"too short: {[len(tenth) for tenth in tenths]} samples")
    before, after = ([int(statistics.median(row[0] for row in tenths[i])), min(row[1] for row in samples),
                      min(row[2] for row in samples)] for i, samples in ((1, tenths[1]), (9, sum(tenths[5:], []))))
    reported = f"KiB, descriptors and threads are {before}, and at last {after}"
    if after[0] > before[0] + max(MEMORY, before[0] // 50) or after[1] > before[1] or after[2] > before[2]:
        trend = " ".join(str(int(statistics.median(row[0] for row in tenth))) for tenth in tenths if tenth)
        raise Failure(f"grows: {reported}; KiB of each tenth: {trend}")
    return before, after


def trial(options, random_, folder):
    """A run that is watched, and the digest of one rank."""
    write_lines(folder / "text")
    lossy = random_.number % 2 == 0
    base = ["--data", str(folder / "text"), *MODEL, "--seed", str(random_.randint(1, 1000)), "--steps",
            str(options.steps)]
    mesh = ["--tp", "2", "--dp", "2", "--strategy", "full_shard", "--save", str(folder / "run"), "--save-interval",
            "50", "--keep", "3", "--eval-interval", "200", "--eval-iters", "2"]
    if lossy:
        mesh += ["--elastic", "on", "--redundancy", "buddy"]
    found = environment(options.build, TMPDIR=str(folder))
    if lossy:
        # one arena: what the threads of a launch have freed is not kept separate from what those of the next one take
        found.update(MALLOC_ARENA_MAX="1", WEFT_FAULT=f"vanish step {random_.randrange(4)} {EVERY}",
                     WEFT_FAULT_MS="2", WEFT_FAULT_EVERY=str(EVERY))
    log, whole = folder / "log.jsonl", folder / "whole.jsonl"
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        process = subprocess.Popen([f"{options.build}/tests/hosts/gpt_train_faulty", *base, *mesh, "--log-jsonl",
                                    str(log)], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=found,
                                   start_new_session=True)
        try:
            tenths = watch(process, log, options.steps)
        finally:
            end(process)
    if process.returncode:
        raise Failure(f"status {process.returncode}: {(folder / 'err').read_text()[-600:]}")
    before, after = flat(tenths)
    lost = (folder / "err").read_text().count("the run continues after step")
    if lossy and lost < options.steps // EVERY - 1:
        raise Failure(f"{lost} ranks were lost, of {options.steps // EVERY}")
    subprocess.run([f"{options.build}/apps/gpt_train", *base, "--eval-interval", "0", "--log-jsonl", str(whole)],
                   check=True, capture_output=True, env=environment(options.build))
    if digests_of(log) != digests_of(whole):
        raise Failure("other digests than one rank has")
    return {"steps": options.steps, "lost": lost, "before": before, "after": after}


def reported(state):
    """Counts, for the last line."""
    rows = [row for row in state.rows.values() if row["passed"]]
    grown = max((row["after"][0] - row["before"][0] for row in rows), default=0)
    return (f"{state.total('steps')} steps, {state.total('lost')} ranks lost; memory, descriptors and threads stay, "
            f"memory within {grown} KiB")


def main(options):
    """See the head of this file."""
    return drive(options, "soak", trial, reported)
