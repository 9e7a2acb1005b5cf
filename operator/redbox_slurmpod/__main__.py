"""Starts the program `redbox-slurmpod`. What it can do is in `cli`."""

import sys

from redbox_slurmpod.cli import main

if __name__ == "__main__":
    sys.exit(main())
