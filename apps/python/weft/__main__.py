"""python -m weft COMMAND ..: the programs, as `weft` runs them."""
import os
import pathlib
import sys


def main() -> int:
    """Becomes the program weft of the wheel, with its arguments."""
    program = pathlib.Path(__file__).parent / "bin" / "weft"
    if not program.exists():
        print(f"weft: {program} is missing: install the wheel (scripts/wheel.sh)", file=sys.stderr)
        return 3
    os.execv(program, ["weft", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
