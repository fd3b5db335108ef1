"""
campaign_faults.py - runs that meet one to three faults at random moments: as threads, as processes of mpirun, over
two simulated hosts. Each start ends in time, well or with one line that says what happened and a documented exit
status, and leaves nothing running; the last start meets none, resumes, and ends with the digest of a run that was
never disturbed, or a damaged checkpoint was refused by name.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import campaign_fault_kinds as kinds
from campaign_draws import mesh_of, model_of, saving_of, value_of
from campaign_fault_kinds import STALL, STEPS
from campaign_state import LIMIT, digests_of, drive, end, environment, newest, pids_of, write_lines
from failures import Runner, hosts_possible
from training_runs import Failure, ROOT

# Lines of a run that continues, and those of saves that failed, of which the last one decides.
INFORMS = re.compile(r"; trying \S+$|continues after step|continuing after step|restarts|ranks are back|"
                     r"no checkpoint was saved| warning: ")
HOSTS = str(ROOT / "tests/hosts")


class Trial:
    """Starts of one run, in one folder."""

    def __init__(self, options, random_, folder):
        self.random, self.folder, self.build = random_, folder, str(options.build)
        self.text, self.run, self.log = folder / "text", folder / "run", folder / "log.jsonl"
        self.way = random_.choice(options.ways)
        self.torn, self.notes, self.number, self.disk = "", {}, 0, False
        self.ends = []
        self.faulty = f"{self.build}/tests/hosts/gpt_train_faulty"
        write_lines(self.text)
        self.draw()
        self.runner = Runner(self.build, HOSTS, str(folder))
        self.on = self.way

    def draw(self):
        """The run, and its faults."""
        random_ = self.random
        model = model_of(random_, STEPS)
        self.elastic = random_.random() < 0.35 and value_of(model, "--optimizer") != "muon"
        mesh, self.ranks = self.mesh(model)
        self.pipeline = "--pp" in mesh
        self.processes = 1 if self.way == "threads" else self.ranks
        self.saving = saving_of(random_, random_.choice((1, 1, 2, 3))) if random_.random() < 0.75 else []
        if self.saving:
            self.saving += ["--save", str(self.run)]
        self.flags = [*model, *mesh, *self.saving, "--digest", "--stall-timeout", str(STALL), "--log-jsonl",
                      str(self.log), "--rank-order", "started"]
        self.model = model
        if self.elastic:
            self.flags += ["--elastic", "on"]
        if self.elastic and self.way != "threads":
            self.flags += ["--recovery-dir", f"/dev/shm/{self.folder.name}", "--nnodes", str(self.processes)]
        self.disk = bool(self.saving) and self.way == "threads" and random_.random() < 0.2 and kinds.mounts()
        chosen = [kind for kind in kinds.ALL if kinds.possible(kind, self)]
        weights = [kinds.ALL[kind] for kind in chosen]
        faults = [kind(self) for kind in random_.choices(chosen, weights, k=random_.randint(1, 3))]
        if self.disk:
            faults[0] = kinds.Disk(self)
        self.starts = []
        for fault in faults:
            last = self.starts[-1] if self.starts else []
            alone = any(f.apart or isinstance(f, kinds.Console) for f in [fault, *last])
            alike = any(isinstance(f, type(fault)) for f in last)
            if last and random_.random() < 0.25 and not alone and not alike:
                last.append(fault)
            else:
                self.starts.append([fault])

    def mesh(self, model):
        """A mesh for it; one that has all of its state twice, where it is to go on without a rank."""
        mesh, ranks = mesh_of(self.random, model, least=1 if self.way == "threads" else 2)
        if not self.elastic:
            return mesh, ranks
        strategy = value_of(mesh, "--strategy")
        if strategy in (None, "zero1"):
            return self.mesh(model)
        return mesh + ([] if strategy in ("no_shard", "hybrid_shard") else ["--redundancy", "buddy"]), ranks

    def note(self, what):
        """Count something that is allowed, and worth to be known."""
        self.notes[what] = self.notes.get(what, 0) + 1
        return True

    def mount(self, how):
        """The disk of the checkpoints."""
        self.run.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", how, "none", str(self.run)], check=True)

    def steps(self):
        """How many steps the run that is under way has logged."""
        return self.out.read_text(errors="replace").count(f"/{STEPS}  loss") if self.out.exists() else 0

    def acted(self):
        """Whether a rank has met its fault."""
        return (self.folder / "acted").exists()

    def ranks_of(self, process):
        """Processes of the program, in the order in which they began."""
        found = []
        for pid in pids_of(f"--log-jsonl {self.log}"):
            try:
                if pid != process.pid and os.readlink(f"/proc/{pid}/exe") == self.faulty:
                    found.append(pid)
            except OSError:  # it has ended
                continue
        return sorted(found)

    def command(self, faults):
        """The words of a start, and what its program finds."""
        found = {"WEFT_FAULT_LOG": f"{self.folder}/acted"}
        for fault in faults:
            found.update(fault.environment())
        apart = any(fault.apart for fault in faults)
        flags = self.flags
        if apart:
            flags = [*self.model, *self.flags[len(self.model):]]
            for name in ("--save", "--log-jsonl"):
                if name in flags:
                    flags[flags.index(name) + 1] = f"{self.folder}/apart{name}"
        words = [self.faulty, "--data", str(self.text), *flags]
        launcher = [word.replace("{work}", str(self.folder)) for word in self.runner.launcher(self)]
        if launcher:  # the preloaded library is for the program alone
            named = [(name, value) for name, value in found.items() if name != "WEFT_FAULT"]
            exports = [word for name, value in named for word in ("-x", f"{name}={value}")]
            at = launcher.index("mpirun") + 1
            launcher[at:at] = exports
            found = {name: value for name, value in found.items() if not name.startswith(("LD_", "WEFT_FAIL"))}
        words = [*launcher, *words]
        for fault in faults:
            words = fault.command(words)
        return words, environment(self.build, TMPDIR=str(self.folder), **found)

    def start(self, faults):
        """One start, with its faults; what came of it."""
        self.number += 1
        self.out, err = self.folder / f"out{self.number}", self.folder / f"err{self.number}"
        (self.folder / "acted").unlink(missing_ok=True)
        if not self.saving and "--recovery-dir" not in self.flags:  # it restarts, and rows of another run are not added to
            self.log.unlink(missing_ok=True)
        for fault in faults:
            fault.before()
        words, found = self.command(faults)
        with open(self.out, "w") as out, open(err, "w") as errors:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, cwd=self.folder,
                                       env=found, start_new_session=True)
        helpers = [threading.Thread(target=fault.during, args=(process,)) for fault in faults]
        for helper in helpers:
            helper.start()
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = "hangs"
            if self.way != "threads" and not Runner.children(process.pid):  # docs/reliability.md
                self.note("mpirun")
                status = -9
        finally:
            for helper in helpers:
                helper.join()
            left = self.left()
            end(process)
            for fault in faults:
                fault.after()
        printed = self.out.read_text(errors="replace").splitlines()
        reported = "\n".join([err.read_text(errors="replace"), *(line for line in printed if line.startswith("gpt_train"))])
        self.judge(faults, words, found, status, left, reported)

    def left(self):
        """Processes of the run that are there for longer than they may be."""
        for _ in range(40):
            pids = pids_of(self.log)
            if not pids:
                return []
            time.sleep(0.1)
        for pid in pids:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        return pids

    def judge(self, faults, words, found, status, left, reported):
        """Failure where a start ended as none of its faults may make it end."""
        torn = self.torn.split("/")[0]
        lines = [line for line in Runner.reported(reported) if not INFORMS.search(line)]
        others = [line for line in lines if not torn or torn not in line]
        if status == 0 or others:  # that a checkpoint cannot be used ends a run where there is no other word
            lines = others
        what = "; ".join(fault.reported() for fault in faults) or "no fault"
        self.ends.append(f"{what}: status {status}" + "".join(f": {line}" for line in lines[:1]))
        expected = any(fault.accepts(status, lines) for fault in faults or [kinds.Fault(self)])
        if expected and not left and status != "hangs":
            return
        variables = " ".join(f"{k}='{v}'" for k, v in found.items() if k.startswith(("WEFT_", "LD_PRELOAD")))
        running = f", left running: {left}" if left else ""
        raise Failure(f"start {self.number}: {what}: status {status}, {len(lines)} lines{running}"
                      f"\n{variables} {' '.join(words)}\n{reported[-3000:]}")

    def whole(self):
        """The run that nothing disturbs, on one rank."""
        log = self.folder / "whole.jsonl"
        data = ["--data", str(self.text), "--log-jsonl", str(log)]
        subprocess.run([f"{self.build}/apps/gpt_train", *data, *self.model, "--digest"], check=True, timeout=LIMIT,
                       capture_output=True, env=environment(self.build))
        return digests_of(log)

    def ended(self, expected):
        """What the last start has left: every step is that of the run that nothing disturbed."""
        steps = digests_of(self.log)
        for step, digest in steps.items():
            if digest != expected[step]:
                raise Failure(f"step {step} has digest {digest}, and undisturbed {expected[step]}\n"
                              f"{' '.join(self.flags)}")
        # a row that found no room is missing, where the checkpoint after it was saved
        if STEPS not in steps and (not self.saving or newest(self.run)[0] != STEPS):
            raise Failure(f"the log ends with step {max(steps, default=0)}\n{' '.join(self.flags)}")
        step, digest = newest(self.run) if self.saving else (STEPS, None)
        if digest and "--lora-rank" not in self.model and digest != expected[step]:  # that of adapters is of them alone
            raise Failure(f"the checkpoint of step {step} has digest {digest}\n{' '.join(self.flags)}")
        if step != STEPS:
            raise Failure(f"step {newest(self.run)[0]} is the last that was saved\n{' '.join(self.flags)}")
        for path in self.run.glob("step-????????") if self.saving else []:
            done = subprocess.run([f"{self.build}/apps/ckpt", "verify", str(path)], capture_output=True, text=True,
                                  check=False, timeout=LIMIT)
            if done.returncode and not (self.torn and path.name in self.torn):
                raise Failure(f"{path.name} is not whole: {done.stderr}")


def trial(options, random_, folder):
    """A run, its faults, and the start after them."""
    this = Trial(options, random_, folder)
    expected, memory = this.whole(), pathlib.Path("/dev/shm") / folder.name
    if this.disk:
        this.mount("size=64m")
    try:
        for faults in this.starts:
            this.start(faults)
        this.start([])
        this.ended(expected)
    except BaseException:
        if this.disk:  # what is on it is kept with the other files
            shutil.copytree(this.run, folder / "disk", symlinks=True)
        if memory.is_dir():
            shutil.copytree(memory, folder / "recovery")
        raise
    finally:
        if this.disk:
            subprocess.run(["umount", str(this.run)], check=True)
        shutil.rmtree(memory, ignore_errors=True)
    faults = [fault for start in this.starts for fault in start]
    return {"faults": len(faults), "starts": this.number, f"way {this.way}": 1, "elastic": int(this.elastic),
            "ends": this.ends, **this.notes,
            **{f"kind {type(fault).__name__}": sum(isinstance(f, type(fault)) for f in faults) for fault in faults}}


def reported(state):
    """Counts, for the last line."""
    keys = sorted({key for row in state.rows.values() for key in row if key.startswith(("kind ", "way "))})
    some = [f"{key.split()[1]} {state.total(key)}" for key in keys]
    allowed = [f"{state.total(key)} {text}" for key, text in (
        ("silent", "killed before others could say so"), ("refused", "damaged checkpoints refused by name"),
        ("mpirun", "times mpirun, with no process left, did not end")) if state.total(key)]
    return "; ".join([f"{state.total('faults')} faults in {state.total('starts')} starts: {', '.join(some)}", *allowed])


def main(options):
    """See the head of this file."""
    options.ways = [options.on] if options.on else ["threads", "mpi"]
    if not shutil.which("mpirun"):
        options.ways = ["threads"]
    if options.hosts:
        if os.environ.get("WEFT_INSIDE") != "yes":
            if not hosts_possible(HOSTS):
                sys.exit("campaign: no right to make namespaces, networks and mounts here")
            os.execve(f"{HOSTS}/hosts.sh", [f"{HOSTS}/hosts.sh", "2", "-", sys.executable, *sys.argv],
                      dict(os.environ, WEFT_INSIDE="yes"))
        options.ways = [*options.ways, "hosts"]
    return drive(options, "faults", trial, reported)
