"""Starts `kubectl-slurm`. The commands are in `cli`."""

import sys

from kubectl_slurm.cli import main as run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
