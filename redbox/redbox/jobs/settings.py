"""The numbers of `jobs`, with the reasons for their defaults."""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class JobsSettings:
    """Section `jobs` of the settings."""

    directory: str = (
        "{home}/redbox/{namespace}/{name}"  # the default working directory; `-{key8}` is appended
    )

    # Submits. An answer is given after `answer_within_s`, whatever sbatch does; sbatch itself has 120 s.
    answer_within_s: float = 25.0
    submit_limit_s: float = 150.0
    settle_s: float = 60.0  # an unanswered submit is in doubt for so long after its sbatch was last seen
    # Only then is its retry released: a submit that is late by more is refused by slurmctld, for munge's
    # credentials live for so long (munged --ttl).
    arrives_within_s: float = 300.0
    submits_per_second: float = 20.0  # per caller
    submit_burst: float = 200.0

    # Polling.
    reads_per_minute: float = 50.0
    read_burst: float = 5.0
    shortest_interval_s: float = 1.2
    longest_interval_s: float = 10.0
    partitions_every_s: float = 10.0  # the age after which partitions and nodes are queried again
    call_limit_s: float = 60.0  # for one read of the workload manager, whose own deadlines are shorter
    min_job_age_s: float = 300.0  # Slurm's: how long squeue still shows a job that ended

    # Ends.
    final_after_s: float = 30.0  # a state that Slurm may still requeue is final after so long
    rows_late_s: float = 600.0  # accounting rows arrive late: until then an absent job's state is unknown
    cancel_again_s: float = 10.0  # a cancel that shows no effect is sent again, ever more rarely
    watch_doubts_s: float = 1800.0  # a submit that may still arrive is looked for so long

    # Keeping.
    keep_final_s: float = 30 * DAY_S
    keep_tombstones_s: float = 31 * DAY_S  # longer than the longest token that a caller may hold
    tombstones_per_owner: int = 10_000  # of keys that never were; of an operator's the oldest give way
    sweep_every_s: float = 600.0

    # Watches.
    bookmark_every_s: float = 10.0
    slow_watcher_s: float = 60.0
    deletions_remembered: int = 10_000
    page_size: int = 500

    # Take-over by a standby: submits are refused first, then held and looked up.
    fence_refuses_s: float = 180.0
    fence_holds_s: float = 600.0
