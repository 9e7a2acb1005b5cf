"""Starting an agent where none is installed: a fixed command that reads the agent's source from stdin.

The server sends the source for two reasons: the login node needs only sshd and a Python, and the agent always
has the server's version. An installed file would be no safer, because an account that may start an agent may
run anything as that user through it. sshd's configuration restricts the users.

The command is one literal that sh, csh and fish read alike: no `!`, `$`, backquote, backslash or newline, and
single quotes around the rest. `exec` and `env -i` drop the login shell and its environment.
"""

from __future__ import annotations

from redbox.agents.program.guard import DEFAULT_PATH
from redbox.agents.program_source import agent_source

PROGRAM = 'import sys; f = sys.stdin.buffer; exec(compile(f.read(int(f.readline())), "redbox-agent", "exec"))'
ARGV = ("/usr/bin/python3", "-I", "-S", "-c", PROGRAM)
COMMAND = f"exec /usr/bin/env -i /usr/bin/python3 -I -S -c '{PROGRAM}'"


def bootstrap_preamble(path: str | None = None, *, home_first: bool = False) -> bytes:
    """Return the command's input: the length of the source, and the source.

    `path` replaces the agent's own directories of tools; agent.conf on the login node takes precedence. With
    `home_first` outcomes are recorded in the home directory, which the hosts of one name share.
    """
    source = agent_source()
    if path is not None:
        source = _replaced(source, f'DEFAULT_PATH = "{DEFAULT_PATH}"', f'DEFAULT_PATH = "{path}"')
    if home_first:
        source = _replaced(source, "HOME_FIRST = False", "HOME_FIRST = True")
    return b"%d\n%b" % (len(source), source)


def _replaced(source: bytes, line: str, other: str) -> bytes:
    assert source.count(line.encode()) == 1, line  # noqa: S101 # a line of our own program
    return source.replace(line.encode(), other.encode())
