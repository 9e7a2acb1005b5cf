"""Starting an agent where none is installed: a fixed command that reads the agent's source from stdin.

The source comes from the server, for two reasons: the login node then needs nothing but sshd and a Python,
and what runs there is always of the server's own version. It gives nothing away that an installed file would
hold back: who may start an agent may run anything as that user through it. What such a user may be is held by
sshd's configuration.

The command is one literal that sh, csh and fish read alike: no `!`, `$`, backquote, backslash or newline, and
single quotes around everything else. `exec` and `env -i` leave neither the login shell nor its environment
behind.
"""

from __future__ import annotations

from redbox.agents.program_source import agent_source

PROGRAM = 'import sys; f = sys.stdin.buffer; exec(compile(f.read(int(f.readline())), "redbox-agent", "exec"))'
ARGV = ("/usr/bin/python3", "-I", "-S", "-c", PROGRAM)
COMMAND = f"exec /usr/bin/env -i /usr/bin/python3 -I -S -c '{PROGRAM}'"


def bootstrap_preamble() -> bytes:
    """Return what the command reads: the length of the source, and the source."""
    source = agent_source()
    return b"%d\n%b" % (len(source), source)
