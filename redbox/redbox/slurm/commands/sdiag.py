"""sdiag: the numbers of slurmctld's scheduler, as JSON, and as text where this sdiag writes no JSON.

The text lacks the sums. The names here are those of Slurm's own metrics, without `slurm_`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

STATISTICS: Mapping[str, tuple[str, str]] = {
    "agent_cnt": ("agent_count", "Number of agent threads"),
    "agent_queue_size": ("agent_queue_size", "Outgoing RPC retry queue length"),
    "agent_thread_cnt": ("agent_thread_count", "Total active agent-created threads"),
    "backfilled_het_jobs": ("bf_backfilled_het_jobs", "Heterogeneous components backfilled"),
    "backfilled_jobs": ("bf_backfilled_jobs", "Total backfilled jobs since reset"),
    "bf_active": ("bf_active", "Whether the backfill scheduler is running"),
    "bf_cycle_cnt": ("bf_cycle_counter", "Backfill cycle count"),
    "bf_cycle_last": ("bf_cycle_last", "Last backfill cycle time, in microseconds"),
    "bf_cycle_max": ("bf_cycle_max", "Max backfill cycle time, in microseconds"),
    "bf_cycle_tot": ("bf_cycle_sum", "Sum of backfill cycle times, in microseconds"),
    "bf_depth_mean": ("bf_depth_mean", "Mean backfill cycle depth"),
    "bf_depth_tot": ("bf_depth_sum", "Sum of backfill job depths"),
    "bf_depth_try_tot": ("bf_depth_try_sum", "Sum of backfill depth attempts"),
    "bf_exit_end": ("bf_exit.end_job_queue", "Backfill cycles that reached the end of the job queue"),
    "bf_exit_max_job_start": ("bf_exit.bf_max_job_start", "Backfill cycles that hit bf_max_job_start"),
    "bf_exit_max_job_test": ("bf_exit.bf_max_job_test", "Backfill cycles that hit bf_max_job_test"),
    "bf_exit_state_changed": (
        "bf_exit.state_changed",
        "Backfill cycles that ended as the system's state changed",
    ),
    "bf_exit_table_limit": ("bf_exit.bf_node_space_size", "Backfill cycles that hit bf_node_space_size"),
    "bf_exit_timeout": ("bf_exit.bf_max_time", "Backfill cycles that hit bf_max_time"),
    "bf_last_depth": ("bf_last_depth", "Last backfill depth"),
    "bf_last_depth_try": ("bf_last_depth_try", "Last backfill depth attempts"),
    "bf_mean_cycle": ("bf_cycle_mean", "Mean backfill cycle time, in microseconds"),
    "bf_mean_table_sz": ("bf_table_size_mean", "Mean backfill table size"),
    "bf_queue_len": ("bf_queue_len", "Backfill queue length"),
    "bf_queue_len_mean": ("bf_queue_len_mean", "Mean backfill queue length"),
    "bf_queue_len_tot": ("bf_queue_len_sum", "Sum of backfill queue lengths"),
    "bf_table_size": ("bf_table_size", "Backfill table size"),
    "bf_table_size_tot": ("bf_table_size_sum", "Sum of backfill table sizes"),
    "bf_try_depth_mean": ("bf_depth_mean_try", "Mean depth attempts in backfill"),
    "bf_when_last_cycle": ("bf_when_last_cycle", "Timestamp of last backfill cycle"),
    "last_backfilled_jobs": ("bf_last_backfilled_jobs", "Backfilled jobs since last reset of the statistics"),
    "last_proc_req_start": ("req_time_start", "Since when the statistics are counted"),
    "sched_exit_end": (
        "schedule_exit.end_job_queue",
        "Scheduling cycles that reached the end of the job queue",
    ),
    "sched_exit_lic": ("schedule_exit.licenses", "Scheduling cycles that were blocked on licenses"),
    "sched_exit_max_depth": (
        "schedule_exit.default_queue_depth",
        "Scheduling cycles that hit default_queue_depth",
    ),
    "sched_exit_max_job_start": (
        "schedule_exit.max_job_start",
        "Scheduling cycles that hit sched_max_job_start",
    ),
    "sched_exit_rpc_cnt": ("schedule_exit.max_rpc_cnt", "Scheduling cycles that hit max_rpc_cnt"),
    "sched_exit_timeout": ("schedule_exit.max_sched_time", "Scheduling cycles that hit max_sched_time"),
    "sched_mean_cycle": ("schedule_cycle_mean", "Mean scheduling cycle time, in microseconds"),
    "sched_mean_depth_cycle": ("schedule_cycle_mean_depth", "Mean depth of scheduling cycles"),
    "sched_stats_timestamp": ("req_time", "Statistics snapshot timestamp"),
    "schedule_cycle_cnt": ("schedule_cycle_total", "Scheduling cycle count"),
    "schedule_cycle_depth": ("schedule_cycle_depth", "Processed jobs depth total"),
    "schedule_cycle_last": ("schedule_cycle_last", "Last scheduling cycle time, in microseconds"),
    "schedule_cycle_max": ("schedule_cycle_max", "Max scheduling cycle time, in microseconds"),
    "schedule_cycle_tot": ("schedule_cycle_sum", "Sum of scheduling cycle times, in microseconds"),
    "schedule_queue_len": ("schedule_queue_length", "Jobs pending queue length"),
    "sdiag_job_states_ts": ("job_states_ts", "Job states timestamp"),
    "sdiag_jobs_canceled": ("jobs_canceled", "Jobs canceled since reset"),
    "sdiag_jobs_completed": ("jobs_completed", "Jobs completed since reset"),
    "sdiag_jobs_failed": ("jobs_failed", "Jobs failed since reset"),
    "sdiag_jobs_pending": ("jobs_pending", "Jobs pending at timestamp"),
    "sdiag_jobs_running": ("jobs_running", "Jobs running at timestamp"),
    "sdiag_jobs_started": ("jobs_started", "Jobs started since reset"),
    "sdiag_jobs_submitted": ("jobs_submitted", "Jobs submitted since reset"),
    "sdiag_latency": ("gettimeofday_latency", "Microseconds that 1000 calls of gettimeofday take"),
    "server_thread_cnt": ("server_thread_count", "Active slurmctld threads count"),
    "slurmdbd_queue_size": ("dbd_agent_queue_size", "Queued messages to SlurmDBD"),
}
"""Where sdiag's JSON has each, and what it is."""
MAIN, BACKFILL, MAIN_EXIT, BACKFILL_EXIT = "main", "backfill", "main exit", "backfill exit"
SECTIONS = (
    ("Main schedule statistics", MAIN),
    ("Main scheduler exit", MAIN_EXIT),
    ("Backfilling stats", BACKFILL),
    ("Backfill exit", BACKFILL_EXIT),
    ("Latency for", ""),
)
END = "Remote Procedure Call statistics"
TEXT_NAMES: Mapping[tuple[str, str], str] = {
    ("", "sdiag output at"): "sched_stats_timestamp",
    ("", "Data since"): "last_proc_req_start",
    ("", "Server thread count"): "server_thread_cnt",
    ("", "Agent queue size"): "agent_queue_size",
    ("", "Agent count"): "agent_cnt",
    ("", "Agent thread count"): "agent_thread_cnt",
    ("", "DBD Agent queue size"): "slurmdbd_queue_size",
    ("", "Jobs submitted"): "sdiag_jobs_submitted",
    ("", "Jobs started"): "sdiag_jobs_started",
    ("", "Jobs completed"): "sdiag_jobs_completed",
    ("", "Jobs canceled"): "sdiag_jobs_canceled",
    ("", "Jobs failed"): "sdiag_jobs_failed",
    ("", "Job states ts"): "sdiag_job_states_ts",
    ("", "Jobs pending"): "sdiag_jobs_pending",
    ("", "Jobs running"): "sdiag_jobs_running",
    ("", "Latency for 1000 calls to gettimeofday()"): "sdiag_latency",
    (MAIN, "Last cycle"): "schedule_cycle_last",
    (MAIN, "Max cycle"): "schedule_cycle_max",
    (MAIN, "Total cycles"): "schedule_cycle_cnt",
    (MAIN, "Mean cycle"): "sched_mean_cycle",
    (MAIN, "Mean depth cycle"): "sched_mean_depth_cycle",
    (MAIN, "Last queue length"): "schedule_queue_len",
    (MAIN_EXIT, "End of job queue"): "sched_exit_end",
    (MAIN_EXIT, "Hit default_queue_depth"): "sched_exit_max_depth",
    (MAIN_EXIT, "Hit sched_max_job_start"): "sched_exit_max_job_start",
    (MAIN_EXIT, "Blocked on licenses"): "sched_exit_lic",
    (MAIN_EXIT, "Hit max_rpc_cnt"): "sched_exit_rpc_cnt",
    (MAIN_EXIT, "Timeout (max_sched_time)"): "sched_exit_timeout",
    (BACKFILL, "Total backfilled jobs (since last slurm start)"): "backfilled_jobs",
    (BACKFILL, "Total backfilled jobs (since last stats cycle start)"): "last_backfilled_jobs",
    (BACKFILL, "Total backfilled heterogeneous job components"): "backfilled_het_jobs",
    (BACKFILL, "Total cycles"): "bf_cycle_cnt",
    (BACKFILL, "Last cycle when"): "bf_when_last_cycle",
    (BACKFILL, "Last cycle"): "bf_cycle_last",
    (BACKFILL, "Max cycle"): "bf_cycle_max",
    (BACKFILL, "Mean cycle"): "bf_mean_cycle",
    (BACKFILL, "Last depth cycle"): "bf_last_depth",
    (BACKFILL, "Last depth cycle (try sched)"): "bf_last_depth_try",
    (BACKFILL, "Depth Mean"): "bf_depth_mean",
    (BACKFILL, "Depth Mean (try depth)"): "bf_try_depth_mean",
    (BACKFILL, "Last queue length"): "bf_queue_len",
    (BACKFILL, "Queue length mean"): "bf_queue_len_mean",
    (BACKFILL, "Last table size"): "bf_table_size",
    (BACKFILL, "Mean table size"): "bf_mean_table_sz",
    (BACKFILL_EXIT, "End of job queue"): "bf_exit_end",
    (BACKFILL_EXIT, "Hit bf_max_job_start"): "bf_exit_max_job_start",
    (BACKFILL_EXIT, "Hit bf_max_job_test"): "bf_exit_max_job_test",
    (BACKFILL_EXIT, "System state changed"): "bf_exit_state_changed",
    (BACKFILL_EXIT, "Hit table size limit (bf_node_space_size)"): "bf_exit_table_limit",
    (BACKFILL_EXIT, "Timeout (bf_max_time)"): "bf_exit_timeout",
}
ACTIVE = "WARNING: data obtained in the middle of backfilling"
TIME = re.compile(r"(sdiag output at|Data since) .*\(([0-9]+)\)")
LINE = re.compile(r"\s*(.+?):\s*(.*)")
IN_BRACKETS = re.compile(r"\(([0-9]+)\)\s*$")
NUMBER = re.compile(r"([0-9]+)\b")


def json_argv() -> list[str]:
    return ["sdiag", "--json"]


def text_argv() -> list[str]:
    return ["sdiag"]


def read_json(text: str) -> dict[str, float]:
    """The numbers that this release has; empty where it is not sdiag's JSON."""
    try:
        statistics = json.loads(text)["statistics"]
    except (ValueError, KeyError, TypeError):
        return {}
    numbers = ((name, _number_at(statistics, path)) for name, (path, _) in STATISTICS.items())
    found = {name: number for name, number in numbers if number is not None}
    if "bf_table_size_tot" in found and found.get("bf_cycle_cnt"):
        # sdiag's JSON has the sum in the place of this mean, up to 26.05 at least.
        found["bf_mean_table_sz"] = found["bf_table_size_tot"] // found["bf_cycle_cnt"]
    return found


def _number_at(statistics: object, path: str) -> float | None:
    value = statistics
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, dict):  # times are {"set": true, "number": 1795550368} since 23.02
        value = value.get("number")
    return float(value) if isinstance(value, int | float) else None


def read_text(text: str) -> dict[str, float]:
    """What the text has; a number that this release does not print is left out."""
    return dict(_numbers(text))


def _numbers(text: str) -> Iterator[tuple[str, float]]:
    section = ""
    for line in text.splitlines():
        if line.startswith(END):
            return
        for title, begun in SECTIONS:
            if line.startswith(title):
                section = begun
                if begun == BACKFILL:
                    yield "bf_active", float(ACTIVE in line)
        found = TIME.match(line) or LINE.match(line)
        name = TEXT_NAMES.get((section, found[1])) if found else None
        if found is None or name is None:
            continue
        number = IN_BRACKETS.search(found[2]) or NUMBER.match(found[2])
        if number is not None:
            yield name, float(number[1])
        elif name == "bf_when_last_cycle":
            yield name, 0.0  # N/A: there was none
