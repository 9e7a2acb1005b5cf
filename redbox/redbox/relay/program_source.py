"""The relay as one file, and the command and input that start it where nothing of Red Box is installed."""

from __future__ import annotations

from functools import cache

from redbox.core.joined_program import join_package

PACKAGE = "redbox.relay.program"
MODULES = ("frames", "places", "children", "streams", "ports", "attached", "relay")
HEAD = '''#!/usr/bin/python3 -IS
"""Red Box's relay: runs sessions and connections of one caller on a node of a job, as the job's user.

Made from redbox/relay/program by `redbox.relay.program_source`. Python 3.6 or newer, standard library only.
It takes no arguments and exchanges frames on stdin and stdout.
"""
'''
BOOTSTRAP = """import os
def take(n):
    b = b""
    while len(b) < n:
        part = os.read(0, n - len(b))
        if not part: os._exit(1)
        b += part
    return b
exec(compile(take(int(take(8))), "redbox-relay", "exec"))
"""
"""Reads no further than the source: what follows is the relay's own input."""
PYTHON = "/usr/bin/python3"


@cache
def relay_source() -> bytes:
    return join_package(
        PACKAGE,
        MODULES,
        HEAD,
        node=("job_processes", "listeners", "loader_variables", "attachments", "pipes"),
        shared=("credit",),
    )


def relay_command() -> list[str]:
    return [PYTHON, "-I", "-S", "-c", BOOTSTRAP]


def relay_preamble() -> bytes:
    """The command's input: eight digits of length, and the source."""
    source = relay_source()
    return b"%08d" % len(source) + source
