"""Section `slurm` of the settings, with the reasons for its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How Slurm's commands are called."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """For Slurm's tools where they need it: SLURM_CONF. Jobs get it too."""
    allow_federation: bool = False
    """A cluster of a federation may run jobs elsewhere, where red-box does not look."""
    image_cache: str = "{home}/.cache/redbox/images"
    """Where a user's images are kept, seen by all compute nodes; {home} and {user} are replaced."""
    images_days: int = 30
    """Images that no job has used for so many days are removed when the next one is pulled; 0: none is."""
    container_setup: str = ""
    """Lines of sh before the runtime is looked for: `. /etc/profile.d/lmod.sh; module load apptainer`."""

    # Slurm's own patience: 9 s with a dead slurmctld, 29 s with a cut cable, 49 s with a dead munged.
    read_s: float = 15.0
    accounting_s: float = 30.0
    submit_s: float = 130.0  # the agent ends an sbatch after 120 s, and says so
    facts_s: float = 300.0  # how long what slurm.conf says is believed
    users_at_most: int = 200  # squeue is asked for single users up to so many
