"""How MPI's ranks are started on the bed's release of Slurm: by srun where Debian built it with PMIx."""

from __future__ import annotations

import pytest

from redbox_bed.bed import Bed


def launcher(bed: Bed) -> str:
    """What a script puts before its program; its tasks are those of the job."""
    return "srun --mpi=pmix" if bed.plan.options.release.has_pmix else "mpirun"


def skip_without_pmix(bed: Bed) -> None:
    release = bed.plan.options.release
    if not release.has_pmix:
        pytest.skip(f"Debian's Slurm {release} is built without PMIx")
