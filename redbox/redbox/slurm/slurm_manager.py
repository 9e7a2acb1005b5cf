"""Slurm as red-box's workload manager: each method of the interface is that of the part that does it."""

from __future__ import annotations

from redbox.agents.pool import AgentPool
from redbox.core.clock import Clock, SystemClock
from redbox.core.domain import UnixUser
from redbox.slurm.accounting_queries import AccountingQueries
from redbox.slurm.cluster_queries import ClusterQueries
from redbox.slurm.command_runner import CommandRunner, OnCall
from redbox.slurm.job_actions import SlurmActions
from redbox.slurm.job_queries import JobQueries
from redbox.slurm.metric_queries import MetricQueries
from redbox.slurm.session_steps import SessionSteps
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.submit.submitter import SlurmSubmitter
from redbox.slurm.text.states import JOB_STATES


class SlurmManager:
    """A `WorkloadManager`.

    `observer` is the account that reads the queue and the accounting: red-box's own on a login node, else an
    account that red-box has an agent for.
    """

    name = "slurm"
    states = JOB_STATES

    def __init__(
        self,
        agents: AgentPool,
        observer: UnixUser,
        settings: SlurmSettings | None = None,
        *,
        on_call: OnCall = lambda *_: None,
        clock: Clock | None = None,
    ) -> None:
        settings, clock = settings or SlurmSettings(), clock or SystemClock()
        commands = CommandRunner(agents, observer, settings, clock, on_call)
        cluster = ClusterQueries(commands)
        self.cluster, self.partitions = cluster.cluster, cluster.partitions
        self.associations, self.appends = cluster.associations, cluster.appends
        self.boot_time, self.expire_boot_time = cluster.boot_time, cluster.expire_boot_time

        self.metrics = MetricQueries(commands, cluster)
        queries = JobQueries(commands, cluster)
        self.poll, self.probe, self.find_live = queries.poll, queries.probe, queries.find_live
        self.usage, self.expected_start = queries.usage, queries.expected_start
        accounting = AccountingQueries(commands, cluster, queries)
        self.history, self.history_of = accounting.history, accounting.history_of
        self.past_usage = accounting.past_usage
        actions = SlurmActions(commands, queries)
        self.act, self.depend = actions.act, actions.depend
        steps = SessionSteps(queries)
        self.session_argv, self.check_session_job = steps.argv, steps.check_job

        submitter = SlurmSubmitter(commands, cluster)
        self.submit, self.submitting = submitter.submit, submitter.submitting
        self.check, self.tidy = submitter.check, submitter.tidy
        self.find_outputs, self.report = submitter.find_outputs, submitter.report
        self.update_pod = submitter.update_pod
