"""Whether a file is a secret of this account alone, by its mode.

A pod's Secret belongs to root, and to the group of the pod (fsGroup), which no other account has: mode 0440
is as private there as 0400 is on a host.
"""

from __future__ import annotations

import os
import stat

OTHERS = 0o077
GROUP_READS = 0o040


def is_private(status: os.stat_result) -> bool:
    """Whether its owner, and at most this process's own group, can read it, and no group can write it."""
    of_own_group = GROUP_READS if status.st_gid == os.getegid() else 0
    return not stat.S_IMODE(status.st_mode) & OTHERS & ~of_own_group
