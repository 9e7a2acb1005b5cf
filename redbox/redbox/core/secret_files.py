"""Whether a file is a secret of this account alone, by its mode.

A pod's Secret belongs to root, and to the group of the pod (fsGroup), which no other account has: mode 0440
is as private there as 0400 is on a host. On a host, where the file is red-box's own, its group may be that of
all users.
"""

from __future__ import annotations

import os
import stat

OTHERS = 0o077
GROUP_READS = 0o040


def is_private(status: os.stat_result) -> bool:
    """Whether its owner alone can read it, or, of another owner's file, at most this process's own group."""
    of_own_group = GROUP_READS if is_handed_in(status) else 0
    return not stat.S_IMODE(status.st_mode) & OTHERS & ~of_own_group


def is_handed_in(status: os.stat_result) -> bool:
    """Whether another owner gave it to this process's group, as a kubelet does."""
    return status.st_uid != os.geteuid() and status.st_gid == os.getegid()
