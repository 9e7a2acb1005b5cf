"""What depends on the bed's release of Slurm: that of a bed beside it, and how MPI's ranks are started."""

from __future__ import annotations

import os

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Options, Release


def chosen() -> Release:
    """The release of this run's beds."""
    return Release.read(os.environ.get("BED_RELEASE") or Options().release)


def launcher(bed: Bed) -> str:
    """What a script puts before its program; its tasks are those of the job."""
    return "srun --mpi=pmix" if bed.plan.options.release.has_pmix else "mpirun"


def skip_without_pmix(bed: Bed) -> None:
    release = bed.plan.options.release
    if not release.has_pmix:
        pytest.skip(f"Debian's Slurm {release} is built without PMIx")
