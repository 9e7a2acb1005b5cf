"""Starts the program `redbox-companion`. What it can do is in `cli`."""

import sys

from redbox_companion.cli import main

if __name__ == "__main__":
    sys.exit(main())
