"""The pods of a SlurmJob's newest attempt, or why it can have none yet: the third step of reconciling it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redbox_api.models import FINAL_PHASES, Dependency
from redbox_kube.runtime.clock import now
from redbox_kube.status.problems import StatusProblem
from redbox_operator.api.constants import PodRole
from redbox_operator.companion_pods.lifecycle import CompanionLifecycle, CompanionState, CompanionTarget
from redbox_operator.companion_pods.placement import cluster_of
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster.registry import RedboxLinks
from redbox_operator.slurmjob import dependencies
from redbox_operator.slurmjob.attempt_state import (
    AttemptState,
    auxiliary_role,
    never_submitted,
    own_pods,
    pod_of,
)
from redbox_operator.slurmjob.validation import (
    NO_SUCH_PARTITION,
    problem_of,
    problem_of_cluster,
    problem_of_partition,
)

COLLECT_AGAIN_S = 1.0


class AttemptPods:
    """Creates, replaces and keeps the companion, and with Virtual delivery the pods beside it."""

    def __init__(
        self,
        companions: CompanionLifecycle,
        cache: ObjectCache,
        links: RedboxLinks,
        host_paths: Sequence[str],
    ) -> None:
        self._companions = companions
        self._cache = cache
        self._links = links
        self._host_paths = host_paths

    async def reconcile(self, state: AttemptState) -> CompanionState | None:
        """One step of the attempt's pods. None: the namespace is being deleted, so nothing is written."""
        job, before, link = state.job, state.before, state.link
        recorded = before.companion if state.same_attempt else None
        pod = pod_of(state, PodRole.JOB, self._cache.companions)
        for_slurm: Sequence[Dependency] = ()
        if recorded is None:
            if before.finished or state.cancel:
                return CompanionState(None, None)  # refused or cancelled before it had one
            problem, for_slurm = self._obstacle(state)
            if problem:  # new partitions wake nobody
                return CompanionState(None, None, problem, waits=problem.reason == NO_SUCH_PARTITION)
        if link is None:
            problem = self._links.problem_of(cluster_of(job, self._links.names()))
            return CompanionState(recorded, pod, None if before.finished else problem)
        has_ended = state.row is not None and state.row.phase in FINAL_PHASES
        is_over = has_ended or (state.row is None and before.finished)  # the status outlives the row
        target = CompanionTarget(job, link.cluster, state.attempt.number, for_slurm, job_has_ended=is_over)
        if recorded is not None and never_submitted(state):
            pods = own_pods(state, self._cache.companions)
            return CompanionState(await self._companions.dismiss(target, recorded, pods), None)
        companion = await self._companions.reconcile(target, recorded, pod, now())
        if companion.is_first:
            link.presume_absent(state.row_key)
        if companion == CompanionState(None, None):
            return None
        recorded = companion.recorded if has_ended and not before.results else None
        if recorded is not None and not await self._companions.create_collector(target, recorded):
            companion = replace(companion, requeue_after_s=COLLECT_AGAIN_S)  # once the end is in the status
        return await self._reconcile_auxiliary(state, target, companion)

    async def _reconcile_auxiliary(
        self, state: AttemptState, target: CompanionTarget, companion: CompanionState
    ) -> CompanionState:
        """With Virtual delivery: one step of the pod that submits or collects beside the companion."""
        role = auxiliary_role(state)
        if role is None or companion.recorded is None or companion.problem:
            return companion
        pod = pod_of(state, role, self._cache.companions)
        auxiliary = await self._companions.reconcile(target, companion.recorded, pod, now(), role)
        pauses = [companion.requeue_after_s, auxiliary.requeue_after_s]
        requeue_after_s = min((pause for pause in pauses if pause is not None), default=None)
        return replace(auxiliary, pod=companion.pod, requeue_after_s=requeue_after_s)

    def _obstacle(self, state: AttemptState) -> tuple[StatusProblem | None, Sequence[Dependency]]:
        """Why no companion can be made yet, or else the dependencies that Slurm has to wait for."""
        job, link = state.job, state.link
        problem = problem_of(job, self._host_paths) or problem_of_cluster(job, self._links.names())
        if problem or link is None:
            return problem, ()
        if link.cluster.being_deleted:
            message = f"{link.cluster.title} is being deleted: name another one in a new SlurmJob"
            return StatusProblem("ClusterBeingDeleted", message), ()
        missing = problem_of_partition(job, link.cluster, link.partition_watch.partitions)
        if missing or dependencies.are_met(state.before):
            return missing, ()
        for_slurm, problem = dependencies.resolve(
            job,
            link.cluster.key,
            lambda name: self._cache.dependency(job.ref, name),
            lambda name: self._cache.depends_on(job.ref, name),
        )
        return problem, for_slurm
