"""User namespaces of this node: whether users may make them, and one in which a user has other numbers.

One number of each kind is mapped, which is the user's own: the kernel lets nobody have more without help. So
nothing is allowed inside that the user may not do outside, and files are the user's.
"""

import os
import shutil
import subprocess
from contextlib import suppress
from typing import Dict, List, Optional, Tuple

NAMESPACE_SETTINGS = ("user/max_user_namespaces", "kernel/unprivileged_userns_clone")
UNSHARE_HELP_S = 5.0
BIND_ACCOUNTS = 'mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/group && shift 2 && exec "$@"'
"""Apptainer does not start as a user whom /etc/passwd does not have."""
NO_MAP = (
    "node {} cannot show a container another user, since its unshare (util-linux) has no --map-user: leave "
    "out runAsUser, runAsGroup and fsGroup"
)


def find_namespace_bar(folder: str = "/proc/sys") -> Optional[str]:
    """The setting of the kernel by which users can make no user namespaces; None if they can."""
    for name in NAMESPACE_SETTINGS:
        with suppress(OSError), open(os.path.join(folder, name)) as file:
            if file.read().strip() == "0":
                return name.replace("/", ".")
    return None


def find_unshare() -> Optional[str]:
    """The program that maps a user; None where it is too old."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        text = subprocess.check_output([unshare, "--help"], timeout=UNSHARE_HELP_S)
        if b"--map-user" in text and b"--map-group" in text:
            return unshare
    return None


def account_files(folder: str, container: str) -> Dict[str, str]:
    """The files that have the user whom a container is shown, by the paths that they replace."""
    return {"/etc/" + name: os.path.join(folder, name + "-" + container) for name in ("passwd", "group")}


def with_user_inside(
    unshare: str, ids: Tuple[int, int], files: Dict[str, str], command: List[str]
) -> List[str]:
    """The command as a user and a group of these numbers, whom `account_files` have."""
    accounts = files["/etc/passwd"], files["/etc/group"]
    bind = [unshare, "-U", "-m", "--map-root-user", "--", "/bin/sh", "-c", BIND_ACCOUNTS, "sh", *accounts]
    numbers = ["--map-user={}".format(ids[0]), "--map-group={}".format(ids[1])]
    return [*bind, unshare, "-U", *numbers, "--", *command]


def passwd_file(ids: Tuple[int, int], home: str) -> str:
    entries = {0: "root:x:0:0:root:/root:/bin/sh\n"}
    entries[ids[0]] = "{}:x:{}:{}::{}:/bin/sh\n".format("user" if ids[0] else "root", *ids, home)
    return "".join(entries.values())


def group_file(group: int) -> str:
    return "root:x:0:\n" + ("group:x:{}:\n".format(group) if group else "")
