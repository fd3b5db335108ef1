"""python -m weft COMMAND ..: the programs, as `weft` runs them."""
import sys

from weft_command import main

if __name__ == "__main__":
    sys.exit(main())
