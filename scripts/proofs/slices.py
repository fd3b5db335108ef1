"""slices.py - long measurements in parts: what has been measured is kept in a file, and a run continues where the last one ended.

    slices.add_arguments(parser)        # --state FILE, --most SECONDS
    done = slices.Done(parser.parse_args())
    pair = done.once(["layout", 7], lambda: measure(7))

What is kept belongs to a program and to a command line; another one begins anew, with a file of its own."""
import hashlib
import json
import pathlib
import sys
import time

LEFT = 3  # exit status: something is left to be measured


def add_arguments(parser):
    parser.add_argument("--state", metavar="FILE", help="keep what has been measured, and go on from there")
    parser.add_argument("--most", type=float, metavar="SECONDS", help="with --state: begin no measurement after SECONDS, and "
                        "end with status 3 where one is left")


class Done:
    """What has been measured, by its key."""

    def __init__(self, a):
        if a.most is not None and not a.state:
            sys.exit("--most belongs to --state FILE")
        self.path, self.most, self.begin = a.state and pathlib.Path(a.state), a.most, time.monotonic()
        self.of = {name: value for name, value in vars(a).items() if name not in ("state", "most", "gpt_train")}
        program = pathlib.Path(a.gpt_train).resolve()
        self.of["program"] = [hashlib.sha256(file.read_bytes()).hexdigest()
                              for file in (program, program.parents[1] / "libweft.so.0.1") if file.exists()]
        self.found = self.read() if self.path and self.path.exists() else {}

    def read(self):
        kept = json.loads(self.path.read_text(encoding="utf-8"))
        if kept["of"] != self.of:
            sys.exit(f"{self.path} is of another command line or program: take another file, or remove it")
        return kept["found"]

    def once(self, key, measure):
        """What measure() gives, or gave."""
        key = json.dumps(key)
        if key in self.found:
            return self.found[key]
        if self.most is not None and time.monotonic() - self.begin > self.most:
            print(f"{len(self.found)} are measured, others are left: repeat the same command line", flush=True)
            sys.exit(LEFT)
        self.found[key] = measure()
        if self.path:
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps({"of": self.of, "found": self.found}), encoding="utf-8")
            new.replace(self.path)
        return self.found[key]
