"""The agent as one file: the modules of `program`, joined."""

from __future__ import annotations

from functools import cache

from redbox.node.joined_program import join_package

HEAD = '''#!/usr/bin/python3 -IS
"""Red Box's agent: acts for red-box as the user that it runs as.

Made from redbox/agents/program by `redbox.agents.program_source`. Python 3.6 or newer, standard library
only. It takes no arguments and exchanges frames on stdin and stdout.
"""
'''


@cache
def agent_source() -> bytes:
    return join_package("redbox.agents.program", "entry", HEAD)
