"""Section `jobs` of the settings: the numbers of `jobs`, with the reasons for their defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from redbox.core.token_buckets import Rate
from redbox.core.yaml_document import Section

DAY_S = 86_400.0


class JobsSettings(Section):
    """Submits, polling, and how long jobs are kept."""

    directory: str = "{home}/redbox/{namespace}/{name}"
    """The default working directory; `-{key8}` is appended."""
    journal: Path = Path("/var/lib/redbox")
    """The journal's directory, on a local disk."""
    pods: bool = True
    """Whether pods of Kubernetes become jobs; false: new ones are refused, those that run go on."""
    mark_secret: Path = Path("/var/lib/redbox/mark.secret")
    """Signs the marks on jobs; the same on a standby."""

    # answer_within_s < slurm.submit_s (one sbatch) < submit_limit_s: an sbatch may outlast the answer.
    answer_within_s: float = 25.0
    """A submit is answered after so long, also where sbatch still runs; sbatch itself has 120 s."""
    submit_limit_s: float = 150.0
    """For one submit, sbatch included."""
    settle_s: float = 60.0
    """A submit without an answer stays unconfirmed for so long after its sbatch last ran."""
    # slurmctld refuses a submit that is late by more: munge's credentials live for so long (munged --ttl).
    arrives_within_s: float = 300.0
    """Only after so long is a held retry released: munge's credentials live no longer (munged --ttl)."""
    submits_per_second: Annotated[float, Field(gt=0)] = 20.0
    """Per caller."""
    submit_burst: float = 200.0
    """Per caller: submits at once before submits_per_second counts."""

    reads_per_minute: Annotated[float, Field(gt=0)] = 50.0
    """Polls of the queue per minute, at most; one shows the jobs of all users."""
    read_burst: float = 5.0
    """Polls in a row before reads_per_minute counts."""
    shortest_interval_s: float = 1.2
    """Between two polls, at least."""
    longest_interval_s: float = 10.0
    """Between two polls, at most."""
    partitions_every_s: float = 10.0
    """The age after which partitions and nodes are queried again."""
    call_limit_s: float = 60.0
    """For one read of the workload manager, whose own deadlines are shorter."""
    min_job_age_s: float = 300.0
    """Slurm's MinJobAge: how long squeue still shows a job that has ended."""

    final_after_s: float = 30.0
    """A state that Slurm may still requeue is final after so long."""
    rows_late_s: float = 600.0
    """Accounting rows arrive late: until then the state of a job that squeue does not show is unknown."""
    restarted_for_s: float = 15.0
    """A restarted slurmctld has answered for so long before jobs that it does not show are forgotten."""
    cancel_again_s: float = 10.0
    """A cancel without effect is sent again after so long, with growing pauses."""
    watch_unconfirmed_s: float = 1800.0
    """How long polls look for an unconfirmed submit: it may still arrive."""

    keep_final_s: float = 30 * DAY_S
    """How long jobs that have ended are kept."""
    keep_tombstones_s: float = 31 * DAY_S
    """How long cancelled keys are refused: longer than the longest token that a caller may hold."""
    tombstones_per_owner: int = 10_000
    """Cancelled keys that were never submitted, per owner; an operator's oldest make room for new ones."""
    retention_every_s: float = 600.0
    """Between two removals of jobs and keys that are no longer kept."""

    bookmark_every_s: float = 10.0
    """Between two bookmarks of a watch."""
    slow_watcher_s: float = 60.0
    """A watch whose reader takes nothing for so long is ended."""
    deletions_remembered: int = 10_000
    """A watch that resumes from before so many deletions has to list again."""
    page_size: int = 500
    """Jobs in one page of a list."""

    fence_refuses_s: float = 180.0
    """After a take-over by a standby: how long submits are refused."""
    fence_holds_s: float = 600.0
    """After a take-over: how long submits are held and looked up in Slurm."""

    @property
    def submit_rate(self) -> Rate:
        return Rate(self.submits_per_second, self.submit_burst)
