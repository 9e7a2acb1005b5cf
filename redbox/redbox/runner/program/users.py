"""The user and group that a container sees: other numbers for the job's own, in a user namespace around it.

One number of each kind is mapped, which is the user's own: the kernel lets nobody have more without help. So
nothing is allowed inside that the user may not do outside, and files are the user's.
"""

import os
import shutil
from typing import List, Tuple

from redbox.runner.program.processes import run_bounded
from redbox.runner.program.rules import Document, StartFailed
from redbox.runner.program.volumes import write_once

UNSHARE_HELP_S = 5.0
BIND_ACCOUNTS = 'mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/group && shift 2 && exec "$@"'
"""Apptainer does not start as a user whom /etc/passwd does not have."""


def with_user_inside(spec: Document, command: List[str], home: str, folder: str) -> List[str]:
    """The command, as the user and group that the container asks for, if it does."""
    user, group = spec.get("runAsUser"), spec.get("runAsGroup")
    if user is None and group is None:
        return command
    ids = (os.getuid() if user is None else user, os.getgid() if group is None else group)
    unshare = find_unshare()
    passwd = write_once(folder, "passwd-" + spec["name"], passwd_file(ids, home))
    accounts = [passwd, write_once(folder, "group-" + spec["name"], group_file(ids[1]))]
    bind = [unshare, "-U", "-m", "--map-root-user", "--", "/bin/sh", "-c", BIND_ACCOUNTS, "sh", *accounts]
    return [
        *bind,
        unshare,
        "-U",
        "--map-user={}".format(ids[0]),
        "--map-group={}".format(ids[1]),
        "--",
        *command,
    ]


def find_unshare() -> str:
    unshare = shutil.which("unshare")
    if unshare is not None:
        help_text = run_bounded([unshare, "--help"], dict(os.environ), UNSHARE_HELP_S, lambda: False)[1]
        if "--map-user" in help_text and "--map-group" in help_text:
            return unshare
    raise StartFailed(
        "this node cannot show a container another user, since its unshare (util-linux) has no --map-user: "
        "leave out runAsUser, runAsGroup and fsGroup"
    )


def passwd_file(ids: Tuple[int, int], home: str) -> str:
    entries = {0: "root:x:0:0:root:/root:/bin/sh\n"}
    entries[ids[0]] = "{}:x:{}:{}::{}:/bin/sh\n".format("user" if ids[0] else "root", *ids, home)
    return "".join(entries.values())


def group_file(group: int) -> str:
    return "root:x:0:\n" + ("group:x:{}:\n".format(group) if group else "")
