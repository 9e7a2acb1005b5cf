"""The relay as one file, and the command that starts it where nothing of Red Box is installed."""

from __future__ import annotations

from functools import cache

from redbox.node.joined_program import join_package
from redbox.node.program.sent_programs import BOOTSTRAP

HEAD = '''#!/usr/bin/python3 -IS
"""Red Box's relay: runs sessions and connections of one caller on a node of a job, as the job's user.

Made from redbox/relay/program by `redbox.relay.program_source`. Python 3.6 or newer, standard library only.
It takes no arguments and exchanges frames on stdin and stdout.
"""
import gc
gc.disable()  # until the first turn of the relay: imports take less time
'''
LATE = frozenset({"json", "socket", "typing"})
"""A third of the time of a start, which the first session of a job waits for."""
PYTHON = "/usr/bin/python3"


@cache
def relay_source() -> bytes:
    return join_package("redbox.relay.program", "relay", HEAD, late=LATE)


def relay_command() -> list[str]:
    """The agent sends it the packed source."""
    return [PYTHON, "-I", "-S", "-c", BOOTSTRAP]
