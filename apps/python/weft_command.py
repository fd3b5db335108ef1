"""The command weft of the wheel: weft train, generate, eval, data, export, check, plan and so on, without numpy."""
import os
import pathlib
import sys


def main() -> int:
    """Becomes the program weft, with this command's arguments."""
    program = pathlib.Path(__file__).resolve().parent / "weft" / "bin" / "weft"
    if not program.exists():
        print(f"weft: {program} is missing: install the wheel (scripts/wheel.sh)", file=sys.stderr)
        return 3
    os.execv(program, ["weft", *sys.argv[1:]])
