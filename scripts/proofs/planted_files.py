#!/usr/bin/env python3
"""
planted_files.py [--short] [--on COMMAND] [BUILD] - what others may have put where programs write, and what becomes of it.

At each name that a command writes to, and at each that one could guess for its temporary files, lies, one after the other: a link to a file
of a victim, a link to where there is none, another name of the victim's file, a link to the victim's folder, a folder with a
file in it, a pipe without a reader, and, where root runs this, another user's file. The victim's files have to stay as they are,
byte for byte, none may be added, and the command has to succeed, with a file of its own under the name, or to end with words in
time. Also: each command is killed while it writes, and rerun: nothing of the killed one is left.

Not among them: --log-jsonl and --tensorboard, whose rows are appended to the file that is named.

--short: one kind, a link, at all names at once, of the commands that take no time. Prints how many cases passed; status 1
where one did not.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

TIMEOUT = 60
MARK = "0123456789abcdef"
KINDS = ["link", "nowhere", "name", "folder link", "folder", "pipe", "another user's"]
G = ["gpt_train", "--n-head", "2", "--n-embd", "16", "--n-layer", "1", "--seq-len", "16", "--global-batch-size", "4",
     "--eval-interval", "0", "--threads-per-rank", "1", "--device", "cpu", "--data", "text"]
DATASET = [".bin", ".idx", ".dataset.json"]
MASK = [".loss.bin", ".loss.idx"]


def partial(path):
    """Names that a temporary file beside it has or had, as far as they can be guessed."""
    path = pathlib.PurePath(path)
    return [f"{path}.partial", f"{path}.part", f"{path}.tmp", str(path.parent / f".{path.name}.part"),
            str(path.parent / f".{path.name}.{MARK}.partial")]


class Command:
    """argv: with BASE for a file of the fixtures; names: that it writes to; before: files of the fixtures that lie there first."""

    def __init__(self, name, argv, names, before=(), quick=True, others=(), removes=()):
        self.name, self.argv, self.names, self.before, self.quick = name, argv, names, before, quick
        self.others = others    # names that it makes and no command reads: of temporary files and folders
        self.removes = removes  # names of its own protocol: what lies there goes
        self.guessed = [g for n in names for g in partial(n)] + list(others)


def commands():
    yield Command("save-config", G + ["--steps", "0", "--save-config", "out.json", "--print-config"], ["out.json"])
    yield Command("plan json", G + ["--plan", "--json", "out.json"], ["out.json"])
    yield Command("search json", G + ["--plan", "--search", "--ranks", "2", "--machine", "BASE/machine.json", "--json", "out.json"], ["out.json"])
    yield Command("chakra", G + ["--plan", "--chakra", "."], ["weft.0.et", "weft.groups.json"])
    yield Command("report", G + ["--steps", "1", "--report-json", "out.json"], ["out.json"])
    yield Command("trace", G + ["--steps", "2", "--trace", "out.json"], ["out.json"])
    yield Command("log-digests", G + ["--steps", "1", "--log-digests", "."], ["rank-00000.jsonl"])
    yield Command("calibrate", G + ["--calibrate", "out.json"], ["out.json"], quick=False)
    for kind in ("sharded", "full", "local"):
        yield Command(f"save {kind}", G + ["--steps", "2", "--save", ".", "--checkpoint", kind], ["lock", "latest", "step-00000002"],
                      quick=kind == "sharded", removes=["latest.partial", f"step-00000002.{MARK}.partial", "step-00000002.replaced"])
    yield Command("save best", G + ["--steps", "2", "--save", ".", "--save-best", "--eval-interval", "1"], ["best"])
    yield Command("save of a model that is kept", G[:-2] + ["--data", "BASE/ids.idx", "--steps", "1", "--save", ".", "--init-from", "BASE/hf"],
                  ["pretrained", "pretrained/config.json", "pretrained/tokenizer.json"])
    yield Command("export", ["gpt_export", "BASE/run", "TO", "--overwrite"], ["TO/config.json", "TO/model.safetensors"],
                  others=["TO/.partial", "TO/.replaced", f".TO.{MARK}.partial"])
    yield Command("export in place", ["gpt_export", "BASE/run", ".", "--overwrite"], ["config.json", "model.safetensors"],
                  others=[".partial", ".replaced", f"..{MARK}.partial"], quick=False)
    yield Command("export of adapters", ["gpt_export", "BASE/lora", "TO", "--overwrite"],
                  ["TO/adapter_config.json", "TO/adapter_model.safetensors"], others=[f".TO.{MARK}.partial"])
    yield Command("export of a folder", ["gpt_export", "BASE/hf", "TO", "--overwrite"],
                  ["TO/config.json", "TO/model.safetensors", "TO/tokenizer.json"], quick=False)
    yield Command("export of a gguf file", ["gpt_export", "BASE/model.gguf", "TO", "--overwrite"],
                  ["TO/config.json", "TO/model.safetensors", "TO/tokenizer.json", "TO/tokenizer_config.json"])
    yield Command("export to a gguf file", ["gpt_export", "BASE/hf", "--gguf", "out.gguf", "--tokenizer", "none", "--overwrite"], ["out.gguf"])
    yield Command("tokenize", ["gpt_data", "tokenize", "text", "--output", "x"], ["x" + e for e in DATASET + MASK])
    yield Command("chat", ["gpt_data", "chat", "BASE/chats.jsonl", "--tokenizer", "BASE/tokenizer", "--chat-template", "chatml", "--output", "x"],
                  ["x" + e for e in DATASET + MASK])
    yield Command("pack", ["gpt_data", "pack", "BASE/chats", "--seq-len", "64", "--output", "x"], ["x" + e for e in DATASET + MASK])
    yield Command("train-bpe", ["gpt_data", "train-bpe", "text", "--vocab-size", "300", "--output", "."], ["tokenizer.json", "tokenizer_config.json"])
    yield Command("mesh_info svg", ["mesh_info", "--dp", "2", "--svg", "out.svg"], ["out.svg"])
    yield Command("schedule svg", ["schedule", "show", "1f1b", "--pp", "2", "--micro", "4", "--svg", "out.svg"], ["out.svg"])
    yield Command("gpt_diff svg", ["gpt_diff", "--svg", "out.svg", "BASE/log.jsonl"], ["out.svg"])
    yield Command("recorder", G + ["--steps", "100000", "--recorder-dir", "."], ["rank-0.rec"], quick=False)


class Campaign:
    def __init__(self, build, top):
        self.bin, self.top = build / "apps", top
        self.base = top / "base"
        self.base.mkdir()
        self.fixtures()

    def call(self, argv, cwd, timeout=TIMEOUT):
        argv = [str(self.bin / argv[0])] + [a.replace("BASE", str(self.base)) for a in argv[1:]]
        return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)

    def make(self, *argv):
        done = self.call(argv, self.base)
        if done.returncode != 0:
            sys.exit(f"planted_files: {' '.join(argv)}: {done.stderr}")

    def fixtures(self):
        (self.base / "text").write_text("".join(f"On day {i} the cat sat on mat number {i * i % 89}.\n" for i in range(300)))
        rows = [{"messages": [{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": f"{i} it is"}]} for i in range(40)]
        (self.base / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.make(*G, "--steps", "1", "--save", "run", "--log-jsonl", "log.jsonl")
        self.make(*G, "--steps", "1", "--save", "lora", "--lora-rank", "2", "--arch", "llama")
        self.make("gpt_data", "train-bpe", "text", "--vocab-size", "300", "--output", "tokenizer")
        tokenizer = self.base / "tokenizer" / "tokenizer.json"
        words = json.loads(tokenizer.read_text())
        for i, word in enumerate(("<|im_start|>", "<|im_end|>")):
            words["added_tokens"].append({**words["added_tokens"][0], "id": 300 + i, "content": word})
        tokenizer.write_text(json.dumps(words))
        self.make("gpt_data", "chat", "chats.jsonl", "--tokenizer", "tokenizer", "--chat-template", "chatml", "--output", "chats")
        self.make(*G, "--steps", "1", "--save", "llama", "--arch", "llama", "--vocab-size", "304")
        self.make("gpt_export", "llama", "hf")
        shutil.copy(tokenizer, self.base / "hf")
        self.make("gpt_data", "tokenize", "text", "--tokenizer", "tokenizer", "--output", "ids")
        self.make("gpt_export", "hf", "--gguf", "model.gguf")
        self.make("mesh_info", "--dp", "2")
        shutil.copy(pathlib.Path(__file__).resolve().parents[2] / "docs" / "machines" / "h100.json", self.base / "machine.json")

    def plant(self, folder, name, kind, victim):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if kind == "link":
            path.symlink_to(victim / "precious")
        elif kind == "nowhere":
            path.symlink_to(victim / "made")
        elif kind == "name":
            os.link(victim / "precious", path)
        elif kind == "folder link":
            path.symlink_to(victim / "folder")
        elif kind == "folder":
            path.mkdir()
            (path / "mine").write_text("mine")
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.write_text("theirs")
            os.chmod(path, 0o666)
            os.chown(path, 65534, 65534)

    def victim(self, folder):
        (folder / "folder").mkdir(parents=True)
        (folder / "precious").write_text("precious")
        for name in ("model.safetensors", "config.json", "tokenizer.json", "step-00000001", "0-0.safetensors"):
            (folder / "folder" / name).write_text(f"precious {name}")
        os.chown(folder / "folder", os.getuid(), os.getgid())

    @staticmethod
    def seen(folder):
        """All that is in a folder: names, contents, modes, times of change."""
        found = {}
        for path in sorted(folder.rglob("*")):
            s = path.lstat()
            # another name of a file, where it is made or goes, is no change of the file
            found[str(path.relative_to(folder))] = (s.st_mode, s.st_ino, s.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        return found

    def signalled(self, argv, cwd):
        """A run that is asked for its recordings, and ended."""
        argv = [str(self.bin / argv[0]), *argv[1:]]
        with subprocess.Popen(argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            run.stdout.readline()
            time.sleep(0.5)
            run.send_signal(signal.SIGUSR2)
            time.sleep(0.3)
            run.send_signal(signal.SIGTERM)
            out, err = run.communicate(timeout=TIMEOUT)
        return subprocess.CompletedProcess(argv, 0 if run.returncode in (-15, 143, 75) else run.returncode, out, err)

    def begin(self, command):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.top))
        work = folder / "work"
        work.mkdir()
        shutil.copy(self.base / "text", work)
        if command.name in ("export", "export of adapters", "export of a folder", "export of a gguf file"):
            (work / "TO").mkdir()
        self.victim(folder / "victim")
        return folder, work

    def run(self, command, work):
        if command.name == "recorder":
            return self.signalled(command.argv, work)
        return self.call(command.argv, work)

    def case(self, command, names, kind):
        """The surprise of a case, or ''."""
        folder, work = self.begin(command)
        problem = []
        for name in names:
            if not any(name.startswith(other + "/") for other in names):
                self.plant(work, name, kind, folder / "victim")
        before = self.seen(folder / "victim")
        try:
            done = self.run(command, work)
        except subprocess.TimeoutExpired:
            return "it does not end"
        if self.seen(folder / "victim") != before:
            problem.append("the victim's files are changed")
        if done.returncode < 0 or done.returncode > 127:
            problem.append(f"it ends by a signal, {done.returncode}")
        if done.returncode != 0 and not done.stderr.strip():
            problem.append(f"it ends with {done.returncode} without a word")
        for name in names:
            path = work / name
            if kind == "folder" and name in command.names and not (path / "mine").exists() and name not in command.removes:
                problem.append(f"the folder {name} has lost what was in it")
            if kind != "folder" and done.returncode == 0 and name in command.names and os.path.lexists(path):
                s = path.lstat()
                if not (stat.S_ISREG(s.st_mode) and s.st_nlink == 1 and s.st_uid == os.geteuid()) and not stat.S_ISDIR(s.st_mode) \
                        and f"{pathlib.PurePath(name).name}: " not in done.stderr:
                    problem.append(f"{name} is no file of its own, and the command succeeds")
        if problem:
            problem.append(done.stderr.strip()[-300:])
        shutil.rmtree(folder)
        return "; ".join(problem)

    def killed(self, command):
        """A command is killed at some moments, and run to its end: nothing of the killed ones stays."""
        folder, work = self.begin(command)
        start = time.monotonic()
        whole = self.run(command, work)
        took = time.monotonic() - start
        if whole.returncode != 0:
            return f"it fails: {whole.stderr.strip()[-300:]}"
        wanted = sorted(str(p.relative_to(work)) for p in work.rglob("*"))
        argv = [str(self.bin / command.argv[0])] + [a.replace("BASE", str(self.base)) for a in command.argv[1:]]
        for at in range(1, 9):
            with subprocess.Popen(argv, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
                time.sleep(took * at / 8)
                run.kill()
        self.run(command, work)
        left = sorted(str(p.relative_to(work)) for p in work.rglob("*") if ".partial" in p.name or p.name.endswith(".part"))
        missing = [n for n in wanted if not (work / n).exists()]
        left += [p.name for p in folder.iterdir() if p.name not in ("work", "victim")]
        shutil.rmtree(folder)
        return f"left {left}, missing {missing}" if left or missing else ""


def cases(campaign, short):
    for command in commands():
        if short:
            if command.quick:
                for kind in ("link", "folder link") if "kept" in command.name else ("link",):
                    yield command, kind, lambda c=command, k=kind: campaign.case(c, c.names + c.guessed + list(c.removes), k)
            continue
        for kind in KINDS:
            if kind == "another user's" and os.geteuid() != 0:
                continue
            for name in command.names + command.guessed + list(command.removes):
                yield command, f"{kind} at {name}", lambda c=command, n=name, k=kind: campaign.case(c, [n], k)
        if command.name != "recorder":
            yield command, "killed", lambda c=command: campaign.killed(c)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--on", default="")
    parser.add_argument("build", nargs="?", default="build")
    flags = parser.parse_args()
    counts, surprises = {}, 0
    if os.geteuid() != 0 and not flags.short:
        print("skipped, which root alone can make: another user's file")
    with tempfile.TemporaryDirectory() as top:
        campaign = Campaign(pathlib.Path(flags.build).resolve(), pathlib.Path(top))
        for command, what, run in cases(campaign, flags.short):
            if flags.on not in command.name:
                continue
            problem = run()
            done, passed = counts.get(command.name, (0, 0))
            counts[command.name] = (done + 1, passed + (not problem))
            if problem:
                surprises += 1
                print(f"FAIL  {command.name}, {what}: {problem}", flush=True)
    for name, (done, passed) in counts.items():
        print(f"{name}: {passed} of {done}")
    print(f"{sum(p for _, p in counts.values())} of {sum(d for d, _ in counts.values())} cases passed")
    sys.exit(1 if surprises else 0)


if __name__ == "__main__":
    main()
