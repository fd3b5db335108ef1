#!/usr/bin/env python3
"""strangers.py [--starts N] [--seed S] [--only KIND] [BUILD] - starts of runs that another user of the host
disturbs. Root starts them, in namespaces of their own (mounts, network), and the disturbances run as user 65534.

Kinds, drawn by chance:
  names    takes names in the abstract namespace of sockets that are made of the user and the job
  folders  owns the shared folders that names would be in, or puts links there; the launcher's folder is not given
  flood    the same, and connects without end to the port on which process 0 waits, with three kinds of connection at a time: silent,
           with a part of a message, with a message whose token is wrong
  sockets  connects without end to every name of the run that the kernel lists
  lone     one process has the variables of a step of two whose other never comes, with each of the above

A start passes when it ends within its time with the digest of an undisturbed run (lone: with status 2 and its error),
and nothing of it is left running. Ends with 1 where one does not pass; 77 without the right to make namespaces.
"""
import argparse
import ctypes
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

STRANGER = 65534
KINDS = ("names", "folders", "flood", "sockets", "lone")
TIME = 40
HELLO = 24 + 64  # token, four numbers, host


def become_stranger():
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)


def fnv(text):
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


def child(function, *args, stranger=True):
    """A process of the other user, or of root, which ends with this one."""
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        try:
            if stranger:
                become_stranger()
            function(*args)
        finally:
            os._exit(0)
    return pid


def take_names(jobs, names):
    kept = []
    for job in jobs:
        for world in range(2):
            for name in names:
                s = socket.socket(socket.AF_UNIX)
                try:
                    s.bind(f"\0weft-{os.environ['WEFT_USER']}-{fnv(job):016x}-{world}-{name}")
                    s.listen()
                    kept.append(s)
                except OSError:
                    pass
    signal.pause()


def some_names(rng):
    return rng.sample(["0", "1", "2", "3", "reports0"], rng.randint(1, 5))


def take_names_at_start(top, names):
    """Waits for the job's identity, as any user can read it, and takes the names before the run does."""
    while not os.path.exists(f"{top}/job"):
        time.sleep(0.001)
    with open(f"{top}/job") as file:
        job = file.read()
    open(f"{top}/public/taken", "w").close()
    take_names([job], names)


def processes():
    """Processes of gpt_train, and which of the run's each is."""
    for pid in [int(p) for p in os.listdir("/proc") if p.isdigit()]:
        try:
            with open(f"/proc/{pid}/comm") as file:
                if file.read().strip() != "gpt_train":
                    continue
            with open(f"/proc/{pid}/environ") as file:
                yield pid, int((re.findall(r"OMPI_COMM_WORLD_RANK=(\d+)", file.read()) or ["0"])[0])
        except OSError:
            pass


def sockets():
    """Ports of 127.0.0.1 on which gpt_train listens, and not MPI in it, which listens on all addresses."""
    ports = {}
    with open("/proc/net/tcp") as file:
        for r in [line.split() for line in file][1:]:
            if r[3] == "0A" and r[1].startswith("0100007F"):
                ports[f"socket:[{r[9]}]"] = r[1].split(":")[1]
    found = set()
    for pid, _ in processes() if ports else []:
        try:
            found |= {ports[x] for x in (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")) if x in ports}
        except OSError:
            pass
    return sorted(int(port, 16) for port in found)


def show_sockets(top):
    """Writes the ports where the other user sees them, as a scan of ports would find them. The run's other processes
    are held up for a moment, as on a busy host, so that the flood is there before them."""
    held = False
    while True:
        ports = sockets()
        with open(f"{top}/sockets.new", "w") as file:
            file.write(" ".join(map(str, ports)))
        os.rename(f"{top}/sockets.new", f"{top}/sockets")
        if ports and not held:
            others = [pid for pid, number in processes() if number]
            for sign in (signal.SIGSTOP, signal.SIGCONT):
                for pid in others:
                    try:
                        os.kill(pid, sign)
                    except OSError:
                        pass
                time.sleep(0.3 if sign == signal.SIGSTOP else 0)
            held = True
        time.sleep(0.0005)


def flood(way, top):
    head = struct.pack("<II", 0, HELLO)
    words = (b"", head[:5], head + struct.pack("<Qiiii", 1, 1, 1, 1, 0) + b"stranger".ljust(64, b"\0"))[way]
    kept, n = [None] * 150, 0
    while True:
        with open(f"{top}/sockets") as file:
            ports = [int(port) for port in file.read().split()]
        for port in ports:
            for _ in range(200):
                s = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.setblocking(False)
                try:
                    s.connect_ex(("127.0.0.1", port))
                    s.send(words)
                except OSError:
                    pass
                kept[n % len(kept)], n = s, n + 1
        if not ports:
            time.sleep(0.001)


def connect_to_names():
    kept = []
    while True:
        with open("/proc/net/unix") as file:
            names = {line.split()[-1] for line in file if "weft-" in line}
        for name in names:
            s = socket.socket(socket.AF_UNIX)
            try:
                s.connect("\0" + name[1:] if name[0] == "@" else name)
                s.send(b"e")
                kept.append(s)
            except OSError:
                pass
        del kept[:-500]
        time.sleep(0.0005)


def disturb(kind, rng, top, environment):
    """Begins a disturbance: the processes, and what the run has to be started with."""
    before, pids = [], []
    if kind == "names":
        before = ["sh", "-c", f'test -e {top}/job || (printf %s "$PMIX_NAMESPACE" >{top}/job.$$ && mv {top}/job.$$ {top}/job); '
                  f'n=0; while [ ! -e {top}/public/taken ] && [ $n -lt 300 ]; do sleep 0.01; n=$((n+1)); done; sleep 0.1; exec "$0" "$@"']
        pids.append(child(take_names_at_start, top, some_names(rng)))
    if kind in ("folders", "flood"):
        before = ["env", "-u", "PMIX_SERVER_TMPDIR", "-u", "XDG_RUNTIME_DIR"]
        for folder in ("/dev/shm/weft-0", "/tmp/weft-0"):
            if rng.random() < 0.3 and kind == "folders":
                os.symlink("/", folder)
            else:
                os.mkdir(folder, 0o700 if rng.random() < 0.5 else 0o777)
            os.chown(folder, STRANGER, STRANGER, follow_symlinks=False)
    if kind == "flood":
        pids.append(child(show_sockets, top, stranger=False))
        while not os.path.exists(f"{top}/sockets"):
            time.sleep(0.001)
        pids += [child(flood, way, top) for way in range(3)]
    if kind == "sockets":
        pids += [child(connect_to_names) for _ in range(2)]
    return before, pids


def lone_environment(environment):
    return dict(environment, SLURM_JOB_ID="5", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2", SLURM_PROCID="0",
                SLURM_LOCALID="0", SLURM_NODEID="0", SLURM_STEP_TASKS_PER_NODE="2")


class Campaign:
    def __init__(self, build, seed):
        self.build, self.seed = build, seed
        self.top = tempfile.mkdtemp(prefix="weft-strangers-", dir="/run")
        os.chmod(self.top, 0o755)
        with open(f"{self.top}/text", "w") as file:
            file.write("".join(random.Random(1).choice(["ba", "no", "ri", "se ", "lendor "]) for _ in range(6000)))
        self.wanted = self.digests(self.run(["--dp", "1"], 1, [], dict(os.environ))[1])

    def flags(self, more):
        return ["--data", f"{self.top}/text", "--n-head", "4", "--n-embd", "32", "--n-layer", "2", "--seq-len", "32",
                "--global-batch-size", "12", "--steps", "2", "--digest", "--eval-interval", "0",
                "--threads-per-rank", "1", *more]

    def run(self, more, processes, before, environment, lone=False):
        launcher = [] if processes == 1 else ["mpirun", "--quiet", "--oversubscribe", "--bind-to", "none", "-np",
                                              str(processes)]
        environment = dict(environment, WEFT_PLUGINS=self.build, OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        job = subprocess.Popen(launcher + before + [f"{self.build}/apps/gpt_train"] + self.flags(more), env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            text = job.communicate(timeout=TIME)[0]
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.kill()
            return None, job.communicate()[0]
        return job.returncode, text

    @staticmethod
    def digests(text):
        return re.findall(r"digest ([0-9a-f]{16})", text)

    def trial(self, number, only):
        rng = random.Random(f"{self.seed} {number}")
        kind = only or KINDS[number % len(KINDS)]
        for path in (f"{self.top}/job", f"{self.top}/sockets", f"{self.top}/public"):
            shutil.rmtree(path) if os.path.isdir(path) else os.path.exists(path) and os.unlink(path)
        os.mkdir(f"{self.top}/public")
        os.chmod(f"{self.top}/public", 0o1777)
        for folder in ("/dev/shm", "/tmp"):
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                if name.startswith("weft-"):
                    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        lone = kind == "lone"
        inner = rng.choice(["folders", "flood", "sockets"]) if lone else kind
        processes = 1 if lone else rng.randint(2, 4)
        environment = lone_environment(os.environ) if lone else dict(os.environ)
        if lone and rng.random() < 0.5: # its job is known, so the names are
            pids = [child(take_names, ["50"], some_names(rng))]
            before = []
            time.sleep(0.1)
        else:
            before, pids = disturb(inner, rng, self.top, environment)
        more = ["--dp", str(2 if lone else processes)]
        limit = rng.choice([None, "0", "5"])
        if limit:
            more += ["--stall-timeout", limit]
        begun = time.monotonic()
        status, text = self.run(more, processes, before, environment)
        took = time.monotonic() - begun
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        good = (status == 2 and "srun started 2 processes" in text) if lone else \
            (status == 0 and self.digests(text) == self.wanted)
        left = subprocess.run(["pgrep", "-f", f"gpt_train.*{self.top}/text"], stdout=subprocess.PIPE).stdout
        name = kind + (f" ({inner})" if lone else "")
        print(f"{'ok  ' if good and not left else 'FAIL'} {number:4d} {name:16} {processes} processes, stall timeout {limit}: "
              f"{took:.1f} s" + ("" if good else f", status {status}: {text[-600:]}") + (", processes are left" if left else ""),
              flush=True)
        for pid in left.split():
            os.kill(int(pid), signal.SIGKILL)
        return kind, bool(good and not left)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("build", nargs="?", default="build")
    a = parser.parse_args()
    a.build = os.path.abspath(a.build)
    private = ["unshare", "--mount", "--propagation", "private", "--pid", "--mount-proc", "--fork", "--kill-child", "--net"]
    if not a.inside:
        if os.geteuid() or subprocess.run(private + ["true"], stderr=subprocess.DEVNULL).returncode:
            print("skipped: no right to make namespaces here (root has it)")
            return 77
        return subprocess.run(private + [sys.executable, os.path.abspath(__file__), "--inside", *sys.argv[1:]]).returncode
    for folder in ("/dev/shm", "/tmp"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", folder], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.environ["WEFT_USER"] = str(os.geteuid())
    os.environ["TMPDIR"] = "/tmp"
    campaign = Campaign(a.build, a.seed)
    results = [campaign.trial(i, a.only) for i in range(a.starts)]
    shutil.rmtree(campaign.top)
    for kind in KINDS:
        of = [good for k, good in results if k == kind]
        if of:
            print(f"{kind}: {sum(of)} of {len(of)}")
    print(f"{sum(good for _, good in results)} of {len(results)} starts passed")
    return 0 if all(good for _, good in results) else 1


if __name__ == "__main__":
    sys.exit(main())
