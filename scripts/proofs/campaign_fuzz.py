"""
campaign_fuzz.py - the fuzzers of tests/fuzz in two builds: a fast one, which stops where a promise, an assertion or
the bounds of an array are broken, tries most inputs; what it has found new is then run through AddressSanitizer and
UndefinedBehaviorSanitizer, which try inputs of their own, too. Both grow one corpus. Inputs are counted over all
calls.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import time

from campaign_state import State
from training_runs import Failure, ROOT

BUILDS = {"fast": ["-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -g1 -fsanitize=bounds -fsanitize-trap=bounds"],
          "sanitized": ["-DWEFT_SANITIZE=address,undefined"]}
SECONDS = {"fast": 40, "sanitized": 5}


def make(options, name):
    """One of the two builds; its fuzzers."""
    folder = options.build_fuzz / name
    log = options.build_fuzz / f"{name}.log"
    folder.mkdir(parents=True, exist_ok=True)
    found = dict(os.environ, CC="clang", CXX="clang++")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    commands = [["cmake", "--build", folder, "-j", str(options.jobs), "--target", "fuzzers"]]
    if not (folder / "CMakeCache.txt").exists():
        commands.insert(0, ["cmake", *generator, "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                            "-DWEFT_FUZZ=ON", "-DBUILD_TESTING=ON", *BUILDS[name]])
    with open(log, "w") as out:
        for command in commands:
            if subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=found, check=False).returncode:
                raise Failure(f"cannot be built: see {log}")
    return sorted(path for path in (folder / "tests/fuzz").glob("fuzz_*") if path.is_file())


def fuzz(options, state, program, build, seconds):
    """One fuzzer for some seconds, and what is in the corpus once; its inputs."""
    corpus = options.build_fuzz / "corpus" / program.name
    corpus.mkdir(parents=True, exist_ok=True)
    found = state.folder / "failed"
    found.mkdir(exist_ok=True)
    command = [program, f"-max_total_time={seconds}", "-timeout=30", "-rss_limit_mb=2048", "-max_len=16384",
               f"-artifact_prefix={found}/{program.name}-{build}-", "-print_final_stats=1", corpus,
               ROOT / "tests/fuzz/corpus" / program.name.removeprefix("fuzz_")]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                          env=dict(os.environ, UBSAN_OPTIONS="print_stacktrace=1"))
    took = time.monotonic() - begun
    inputs = re.search(r"stat::number_of_executed_units: *(\d+)", done.stderr)
    row = {"passed": done.returncode == 0, "fuzzer": program.name, f"{build} inputs": int(inputs[1]) if inputs else 0,
           f"{build} seconds": took}
    if done.returncode:
        log = found / f"{program.name}-{build}.log"
        log.write_text(f"{' '.join(map(str, command))}\n{done.stderr}")
        print(f"campaign: {program.name}, {build}: status {done.returncode}; see {log}", flush=True)
    return row


def rounds(options, state):
    """Every fuzzer in both builds, repeatedly, until there were enough inputs or the time is over."""
    fuzzers = {build: make(options, build) for build in BUILDS}
    ends = time.monotonic() + 60 * options.minutes
    number = max((n for _, n in state.rows), default=0)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        while time.monotonic() < ends and inputs_of(state) < options.inputs:
            for build, programs in fuzzers.items():
                left = max(1, int((ends - time.monotonic()) * options.jobs / len(programs)))
                seconds = min(left, SECONDS[build])
                tries = [pool.submit(fuzz, options, state, program, build, seconds) for program in programs]
                for one in tries:
                    number += 1
                    state.add(number, one.result())


def inputs_of(state):
    """All that were tried."""
    return sum(state.total(f"{build} inputs") for build in BUILDS)


def main(options):
    """See the head of this file."""
    options.build_fuzz = options.build_fuzz.resolve()
    state = State(options.state, "fuzz", options.seed)
    rounds(options, state)
    for name in sorted({row["fuzzer"] for row in state.rows.values()}):
        rows = [row for row in state.rows.values() if row["fuzzer"] == name]
        text = []
        for build in BUILDS:
            inputs, seconds = (sum(row.get(f"{build} {what}", 0) for row in rows) for what in ("inputs", "seconds"))
            text.append(f"{build} {inputs:,} inputs, {inputs / max(seconds, 1e-9):,.0f}/s")
        print(f"{name}: {'; '.join(text)}")
    failed = state.failed()
    shares = ", ".join(f"{state.total(f'{build} inputs'):,} {build}" for build in BUILDS)
    print(f"fuzz: {inputs_of(state):,} inputs ({shares}), {len(failed)} runs failed")
    return 1 if failed else 0
