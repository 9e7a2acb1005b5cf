"""The numbers of slurmctld's scheduler, as sdiag has them."""

from __future__ import annotations

from collections.abc import Mapping

from redbox.core.gauges import FamilyOfGauges, number

HELP: Mapping[str, str] = {
    "agent_cnt": "Number of agent threads",
    "agent_queue_size": "Outgoing RPC retry queue length",
    "agent_thread_cnt": "Total active agent-created threads",
    "backfilled_het_jobs": "Heterogeneous components backfilled",
    "backfilled_jobs": "Total backfilled jobs since reset",
    "bf_active": "Whether the backfill scheduler is running",
    "bf_cycle_cnt": "Backfill cycle count",
    "bf_cycle_last": "Last backfill cycle time, in microseconds",
    "bf_cycle_max": "Max backfill cycle time, in microseconds",
    "bf_cycle_tot": "Sum of backfill cycle times, in microseconds",
    "bf_depth_mean": "Mean backfill cycle depth",
    "bf_depth_tot": "Sum of backfill job depths",
    "bf_depth_try_tot": "Sum of backfill depth attempts",
    "bf_exit_end": "Backfill cycles that reached the end of the job queue",
    "bf_exit_max_job_start": "Backfill cycles that hit bf_max_job_start",
    "bf_exit_max_job_test": "Backfill cycles that hit bf_max_job_test",
    "bf_exit_state_changed": "Backfill cycles that ended as the system's state changed",
    "bf_exit_table_limit": "Backfill cycles that hit bf_node_space_size",
    "bf_exit_timeout": "Backfill cycles that hit bf_max_time",
    "bf_last_depth": "Last backfill depth",
    "bf_last_depth_try": "Last backfill depth attempts",
    "bf_mean_cycle": "Mean backfill cycle time, in microseconds",
    "bf_mean_table_sz": "Mean backfill table size",
    "bf_queue_len": "Backfill queue length",
    "bf_queue_len_mean": "Mean backfill queue length",
    "bf_queue_len_tot": "Sum of backfill queue lengths",
    "bf_table_size": "Backfill table size",
    "bf_table_size_tot": "Sum of backfill table sizes",
    "bf_try_depth_mean": "Mean depth attempts in backfill",
    "bf_when_last_cycle": "Timestamp of last backfill cycle",
    "last_backfilled_jobs": "Backfilled jobs since last reset of the statistics",
    "last_proc_req_start": "Since when the statistics are counted",
    "sched_exit_end": "Scheduling cycles that reached the end of the job queue",
    "sched_exit_lic": "Scheduling cycles that were blocked on licenses",
    "sched_exit_max_depth": "Scheduling cycles that hit default_queue_depth",
    "sched_exit_max_job_start": "Scheduling cycles that hit sched_max_job_start",
    "sched_exit_rpc_cnt": "Scheduling cycles that hit max_rpc_cnt",
    "sched_exit_timeout": "Scheduling cycles that hit max_sched_time",
    "sched_mean_cycle": "Mean scheduling cycle time, in microseconds",
    "sched_mean_depth_cycle": "Mean depth of scheduling cycles",
    "sched_stats_timestamp": "Statistics snapshot timestamp",
    "schedule_cycle_cnt": "Scheduling cycle count",
    "schedule_cycle_depth": "Processed jobs depth total",
    "schedule_cycle_last": "Last scheduling cycle time, in microseconds",
    "schedule_cycle_max": "Max scheduling cycle time, in microseconds",
    "schedule_cycle_tot": "Sum of scheduling cycle times, in microseconds",
    "schedule_queue_len": "Jobs pending queue length",
    "sdiag_job_states_ts": "Job states timestamp",
    "sdiag_jobs_canceled": "Jobs canceled since reset",
    "sdiag_jobs_completed": "Jobs completed since reset",
    "sdiag_jobs_failed": "Jobs failed since reset",
    "sdiag_jobs_pending": "Jobs pending at timestamp",
    "sdiag_jobs_running": "Jobs running at timestamp",
    "sdiag_jobs_started": "Jobs started since reset",
    "sdiag_jobs_submitted": "Jobs submitted since reset",
    "sdiag_latency": "Microseconds that 1000 calls of gettimeofday take",
    "server_thread_cnt": "Active slurmctld threads count",
    "slurmdbd_queue_size": "Queued messages to SlurmDBD",
}


def scheduler_gauges(numbers: Mapping[str, float]) -> FamilyOfGauges:
    """`/metrics/scheduler`; a number that this release's sdiag does not print is left out."""
    gauges = [number(f"slurm_{name}", text, numbers[name]) for name, text in HELP.items() if name in numbers]
    return FamilyOfGauges(tuple(gauges), {})
