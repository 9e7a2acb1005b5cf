"""Files that an administrator installs for agents: texts for `redbox init`, rules for `redbox check`.

Each gives the account `redbox` one right: to start agents as members of one group.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

from redbox.agents.program.guard import is_writable_by_root_only
from redbox.agents.program_source import agent_source
from redbox.agents.transports.sudo import AGENT_PATH

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\Z")  # hpc@example.org: a directory's group with its domain

SUDOERS = """\
# Red Box: the account {account} may start agents as members of {group}, and nothing else.
# An agent's input and output are the users' scripts, secrets and files: sudo must not log them.
Defaults!{agent} !log_input, !log_output, !requiretty, !use_pty, env_reset
{account} ALL = (%{group}) NOPASSWD: {agent} ""
"""

SSHD = """\
# Red Box: certificates that {account}'s own CA signs are trusted for members of {group} only. They are good
# for five minutes, one user, the server's addresses and the one command that starts an agent.
Match Group {group}
    TrustedUserCAKeys {ca_path}
    ClientAliveInterval 15
    ClientAliveCountMax 4
Match All
"""

AGENT_CONF = """\
# Red Box: read by every agent before anything else. Only root may write this file and its directory.
# No agent runs as root, nor as a uid below this.
min_uid = {min_uid}
# Where Slurm's and the container runtime's commands are looked for.
path = {path}
"""


def render_sudoers(*, account: str = "redbox", group: str = "redbox-users", agent: str = AGENT_PATH) -> str:
    return SUDOERS.format(account=_checked(account), group=_checked(group), agent=agent)


def render_sshd(
    *, account: str = "redbox", group: str = "redbox-users", ca_path: str = "/etc/redbox/ssh-ca.pub"
) -> str:
    """Return a file for sshd_config.d; it ends in `Match All`, so that later settings hold for all users."""
    return SSHD.format(account=_checked(account), group=_checked(group), ca_path=ca_path)


def render_agent_conf(*, min_uid: int, path: str) -> str:
    return AGENT_CONF.format(min_uid=min_uid, path=path)


def check_agent_file(path: Path = Path(AGENT_PATH)) -> Iterator[str]:
    """Yield the faults of the installed agent, each with its remedy."""
    try:
        status = path.lstat()
    except OSError as error:
        yield f"{path}: {error.strerror}: install the agent there"
        return
    if not stat.S_ISREG(status.st_mode):
        yield f"{path} is not a regular file: install the agent there"
        return
    if not status.st_mode & stat.S_IXOTH:
        yield f"{path} cannot be executed: chmod 755 {path}"
    for part in (path, *path.parents):
        if not is_writable_by_root_only(part.stat()):
            yield f"{part} may be written by others than root: chown root {part}; chmod go-w {part}"
    if path.read_bytes() != agent_source():
        yield f"{path} is not the agent of this red-box: install the agent again"


def _checked(name: str) -> str:
    if not NAME.match(name) or name == "ALL":  # sudo's name for all users
        raise ValueError(f"{name!r} is not a valid name of an account or group")
    return name
