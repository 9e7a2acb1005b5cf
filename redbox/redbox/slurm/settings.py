"""Section `slurm` of the settings, with the reasons for its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from redbox.core.yaml_document import Section


class MetricsSettings(Section):
    """Slurm's own metrics at /metrics/slurm, for callers with the role metrics."""

    users_accounts: bool = False
    """Whether /metrics/slurm/users-accounts is served: the jobs of each Unix user and account by name."""
    every_s: Annotated[float, Field(ge=1)] = 30.0
    """The age after which squeue, scontrol or sdiag is run again, at the next scrape."""
    values_of_a_label: Annotated[int, Field(ge=1)] = 2_000
    """Nodes, partitions, users or accounts at most; how many are left out is a metric."""


class SlurmSettings(Section):
    """How Slurm's commands are called."""

    environment: Mapping[str, str] = {}
    """Variables that Slurm's tools need, such as SLURM_CONF. Jobs get them too; jobs alone
    get SQUEUE_*, SINFO_* and SACCT_*, which change what these tools print."""
    allow_federation: bool = False
    """Submit although the cluster is in a federation and jobs may run where red-box does not watch."""
    image_cache: str = "{home}/.cache/redbox/images"
    """Where a user's images and the runner of pods are kept, visible on all compute nodes; {home} and {user}
    are replaced."""
    images_days: int = 30
    """A pull removes images that no job has used for so many days; 0 keeps all."""
    images_within_s: float = 600.0
    """A pod whose image cannot be pulled for so long fails, and gives back its allocation; 0: it waits."""
    container_setup: str = ""
    """Lines of sh that run before a container or a pod: `. /etc/profile.d/lmod.sh; module load apptainer`."""

    # Slurm's tools give up after 9 s with a dead slurmctld, 29 s with a cut cable, 49 s with a dead munged.
    read_s: float = 15.0
    """For one squeue, scontrol or sinfo."""
    accounting_s: float = 30.0
    """For one sacct."""
    # jobs.answer_within_s < submit_s < jobs.submit_limit_s, which is for the whole submit.
    submit_s: float = 130.0
    """For one sbatch; the agent itself ends an sbatch after 120 s, and reports that."""
    facts_s: float = 300.0
    """How long settings that were read from slurm.conf are used before they are read again."""
    metrics: MetricsSettings = MetricsSettings()
    users_at_most: int = 200
    """Up to so many users, squeue is limited to their jobs; with more it lists those of all users."""
