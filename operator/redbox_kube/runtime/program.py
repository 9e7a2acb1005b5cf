"""Starts a controller's command line, or names the extra of the wheel that is not installed."""

import gc
import sys

from redbox_shared.program_modules import import_program


def run(part: str, *, extra: str = "") -> None:
    """Run the commands in `cli` of the package `redbox_PART`, whose extra has the part's name or `extra`."""
    try:
        cli = import_program(f"redbox_{part}.cli")
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("redbox_"):
            raise
        fix = f"install red-box's wheel with this extra: pip install 'WHEEL[{extra or part}]'"
        sys.exit(f"redbox-{part}: {missing.name} is not installed: {fix}")
    gc.freeze()  # 85,000 objects of modules, which each full collection would look at
    cli.app()
