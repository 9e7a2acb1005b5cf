"""Open files: as many for red-box as the host lets it have, and no more of them for those whom it starts.

A server needs thousands. Programs expect the usual soft limit (1024): some loop over all descriptors, and
`select` breaks beyond it. sbatch hands its limits on to jobs, so what is red-box's own must not reach it.
"""

from __future__ import annotations

import resource

PRLIMIT = (
    "/usr/bin/prlimit"  # of util-linux. In the child itself only fork could do it, and there are threads.
)
GIVEN = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def take_all() -> None:
    """Raise the soft limit to the hard one, for this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def as_given() -> tuple[str, ...]:
    """What has to stand before a child's command, so that it has the limit that red-box was started with."""
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return () if now == GIVEN else (PRLIMIT, f"--nofile={GIVEN}:", "--")
