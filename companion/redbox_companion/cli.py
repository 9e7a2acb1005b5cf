"""The program `redbox-companion`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from redbox_companion import outcome
from redbox_companion.companion import Companion, leave
from redbox_companion.redbox import Redbox
from redbox_companion.settings import BadSettings, settings_from

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Stand for one Slurm job in a pod that the operator made."""
    parser = argparse.ArgumentParser(
        prog="redbox-companion",
        description="Stands for one Slurm job in Kubernetes: submits it, relays its output, exits as it did.",
        epilog="It is told what to do by the environment of the pod that the Red Box operator makes.",
    )
    parser.add_argument("--version", action="version", version=f"redbox-companion {_version()}")
    parser.parse_args(argv)
    signal.signal(signal.SIGTERM, leave)
    try:
        settings = settings_from(os.environ)
        return Companion(settings, Redbox(settings)).run()
    except BadSettings as error:
        sys.stderr.write(f"redbox-companion: {error}\n")
        return outcome.BAD_SETTINGS


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - costs 20 ms, and only --version needs it

    return metadata.version("red-box")
