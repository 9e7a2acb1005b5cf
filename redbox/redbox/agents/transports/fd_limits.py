"""Open files: red-box raises its own limit as far as the host allows, and not that of its children.

A server needs thousands. Programs expect the usual soft limit (1024): some loop over all descriptors, and
`select` breaks beyond it. sbatch passes its limits on to jobs, so red-box's own limit must not reach it.
"""

from __future__ import annotations

import resource

# Of util-linux. In the child itself only fork could do it, and there are threads.
PRLIMIT = "/usr/bin/prlimit"
GIVEN = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def take_all() -> None:
    """Raise the soft limit to the hard one, for this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def as_given() -> tuple[str, ...]:
    """The prefix of a child's command that restores the limit that red-box was started with."""
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return () if now == GIVEN else (PRLIMIT, f"--nofile={GIVEN}:", "--")
