"""`python -m redbox_bed`."""

import os
import signal
import sys
from types import FrameType


def _leave(number: int, _: FrameType | None) -> None:
    """For Ctrl-C while the commands are still being imported; later each says what goes on from where."""
    print("\nbed: interrupted before it began", file=sys.stderr, flush=True)
    os._exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _leave)
    from redbox_bed.cli import main

    main()
