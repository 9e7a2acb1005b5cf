"""Section `slurm` of the settings, with the reasons for its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How Slurm's commands are called."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of Slurm's tools and of the jobs, such as SLURM_CONF."""
    allow_federation: bool = False
    """Submit although the cluster is in a federation and jobs may run where red-box does not watch."""
    image_cache: str = "{home}/.cache/redbox/images"
    """The directory of a user's images, on all compute nodes; {home} and {user} are replaced."""
    images_days: int = 30
    """Images that no job has used for so many days are removed when the next one is pulled; 0: never."""
    container_setup: str = ""
    """Lines of sh that run before a container: `. /etc/profile.d/lmod.sh; module load apptainer`."""

    # Slurm's tools give up after 9 s with a dead slurmctld, 29 s with a cut cable, 49 s with a dead munged.
    read_s: float = 15.0
    accounting_s: float = 30.0
    submit_s: float = 130.0  # the agent ends an sbatch after 120 s, and reports it
    facts_s: float = 300.0  # for how long the settings of slurm.conf are kept
    users_at_most: int = 200  # with more users squeue lists the jobs of all
