"""Brings each SlurmJob to where it should be: companion kept, status told, job held, cancelled, followed.

Watches are hints: whatever happens anywhere, the place of the SlurmJob that it concerns is queued, and
`reconcile` looks at the whole truth again. It alone decides; what it decides with is pure (`attempts`,
`companions`, `dependencies`, `status`), and what a status announces is done after it was written.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from redbox_api.errors import Busy, Conflict, NoSuchJob, RedboxError
from redbox_api.models import FINAL_PHASES, Dependency
from redbox_kube.api.objects import ApiError, Object
from redbox_kube.runtime.clock import now
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_operator import dependencies
from redbox_operator.api.conditions import tellings
from redbox_operator.api.constants import FINALIZER, Role, pod_name
from redbox_operator.api.decode import read_job
from redbox_operator.api.problems import Problem
from redbox_operator.api.slurmjob import Place, SlurmJob
from redbox_operator.api.slurmjob_status import ConditionType, SlurmJobStatus
from redbox_operator.companion.lifecycle import CompanionKeeper, Kept, Wanted, given_up
from redbox_operator.companion.placement import cluster_of
from redbox_operator.companion.plan import Companion, LastWord
from redbox_operator.metrics import Metrics
from redbox_operator.object_cache import Known, KnownJob
from redbox_operator.slurmcluster.job_feed import RedboxLink, RedboxUnavailable
from redbox_operator.slurmcluster.registry import Links
from redbox_operator.slurmjob import attempts
from redbox_operator.slurmjob.deletion import Ending
from redbox_operator.slurmjob.reconcile_state import Case, act_on, holding_of, is_told, other_role
from redbox_operator.slurmjob.status import Facts, status_of
from redbox_operator.slurmjob.validation import problem_of, problem_of_cluster
from redbox_operator.status_writer import Writer, where_is

log = structlog.get_logger(__name__)
WORKERS = 32
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
AWAY_PAUSE_S = 5.0
MOST_REFUSALS = 66  # with these pauses: an hour


class Reconciler:
    """Owns the queue and those who work it off."""

    def __init__(
        self,
        writer: Writer,
        known: Known,
        links: Links,
        image: str,
        metrics: Metrics,
        *,
        host_paths: Sequence[str] = (),
    ) -> None:
        self.known = known
        self.queue: WorkQueue[Place] = WorkQueue()
        self._writer = writer
        self._links = links
        self._metrics = metrics
        self._host_paths = host_paths
        self._keeper = CompanionKeeper(writer, image, known.companion_seen)
        self._ending = Ending(writer, self._written)
        self._failures: dict[Place, int] = {}
        self._troubles = GroupedWarnings("SlurmJobs not reconciled")
        self._knows_clusters = False

    async def run(self) -> None:
        """Work off the queue until cancelled."""
        await self.queue.run(self._handle, workers=WORKERS)

    # -- who calls

    def wake_uid(self, uid: str) -> None:
        """Something about the SlurmJob of this uid has changed."""
        if (place := self.known.place_of(uid)) is not None:
            self.queue.add(place)

    def wake_cluster(self, cluster: str) -> None:
        """A SlurmCluster came, changed, or its red-box is back: all its SlurmJobs that are not done go on."""
        for one in list(self.known.jobs.values()):
            if (one.cluster == cluster or not one.submits) and (one.being_deleted or not one.done):
                self.queue.add(one.place)

    def clusters_listed(self) -> None:
        """All SlurmClusters have been seen: before that, none may be taken for one that is gone."""
        if not self._knows_clusters:
            self._knows_clusters = True
            for place in list(self.known.jobs):
                self.queue.add(place)

    def job_seen(self, job: SlurmJob) -> None:
        """A watch or a list has shown a SlurmJob."""
        if self.known.job_seen(job):
            self.queue.add(job.place)
            for waiting in self.known.waiting_for(job.place):
                self.queue.add(waiting)

    def job_gone(self, place: Place, uid: str | None = None) -> None:
        """It is gone."""
        self.known.job_gone(place, uid)
        self._failures.pop(place, None)
        self._troubles.mended(_name(place))
        self.queue.forget(place)
        for waiting in self.known.waiting_for(place):
            self.queue.add(waiting)

    def companion_seen(self, pod: Companion) -> None:
        """A watch or a list has shown a pod that may be a companion; whether it is one its uid tells."""
        if self.known.companion_seen(pod):
            self.wake_uid(pod.job_uid)

    def companion_gone(self, pod: Companion) -> None:
        """It is gone."""
        self.known.companion_gone(pod.namespace, pod.name, pod.uid)
        self.wake_uid(pod.job_uid)

    # -- the work

    async def _handle(self, place: Place) -> None:
        try:
            again_in_s = await self.reconcile(place)
        except RedboxUnavailable as away:
            # Whoever waits for its return is woken by that: ten thousand pauses would be a busy loop.
            self._metrics.errors.labels("redbox").inc()
            again_in_s = None if away.until_return else random.uniform(1.0, AWAY_PAUSE_S)  # noqa: S311 (no secret)
        except (ApiError, RedboxError, OSError, TimeoutError) as error:
            again_in_s = self._pause(place)
            cause = "redbox" if isinstance(error, RedboxError) else "kubernetes"
            self._metrics.errors.labels(cause).inc()
            self._troubles.failed(_name(place), error)
        except Exception:
            # A defect met by one SlurmJob must not stop those of everybody else.
            again_in_s = self._pause(place)
            self._metrics.errors.labels("defect").inc()
            log.exception("defect", slurmjob=_name(place), again_in_s=again_in_s)
        else:
            self._troubles.mended(_name(place))
        if again_in_s is not None:
            self.queue.add_later(place, again_in_s)

    def _pause(self, place: Place) -> float:
        failures = self._failures[place] = self._failures.get(place, 0) + 1
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 6)))

    async def reconcile(self, place: Place) -> float | None:
        """One look at one SlurmJob, and what it takes; when to look again if nothing changes before."""
        known = self.known.look(place)
        if known is None or not self._knows_clusters:
            return None
        name = cluster_of(known.job, self._links.names())
        link = self._links.get(name)
        if known.job.being_deleted:
            return await self._ending.end(known, link or self._links.problem_of(name))
        if FINALIZER not in known.job.finalizers:
            known = await self._with_finalizer(known)
            if known is None:
                return None  # it has changed: the watch brings what it is now
        if link is not None and not link.synced and known.status.companion and not known.status.finished:
            return None  # woken once red-box has told what it knows
        return await self._advance(known, link)

    async def _with_finalizer(self, known: KnownJob) -> KnownJob | None:
        job = known.job
        version = str(job.metadata["resourceVersion"])
        where = where_is(job.place)
        changed = await self._writer.finalizers(where, [*job.finalizers, FINALIZER], version=version)
        return self._written(known, changed) if changed else None

    def _written(self, known: KnownJob, written: Object) -> KnownJob:
        """The SlurmJob as the API server has it after a write of ours, with what others changed meanwhile.

        The watch tells of that in an older version than ours, which is no news any more: so it is due now.
        """
        job = read_job(known.place.resource, written)
        self.known.job_seen(job)
        now_known = self.known.look(job.place) or known
        if now_known.asks_for != known.asks_for:
            self.queue.add(job.place)
        return now_known

    async def _advance(self, known: KnownJob, link: RedboxLink | None) -> float | None:
        case = await self._case(known, link)
        begins_in = None if case.row else attempts.next_begins_in(case.job.spec, case.before, now())
        if begins_in == 0.0 and link is not None:
            case = replace(case, attempt=attempts.following(case.before), row=None)
        kept = await self._companion(case)
        if kept is None:
            return None
        after = await self._tell(case, kept)
        await self._do_as_told(case, after)
        self._let_go(case, after)
        pauses = (kept.again_in_s, self._refusal_pause(known.place, kept), _next_attempt(case, after))
        ttl = await self._expire(case, after)
        return min((pause for pause in (*pauses, ttl) if pause is not None), default=None)

    async def _case(self, known: KnownJob, link: RedboxLink | None) -> Case:
        """The newest attempt and its row, which is asked for where it may have been missed."""
        case = Case(known, link, attempts.current(known.status), None)
        if link is None:
            return case
        row = link.row(case.row_key)
        status = known.status
        moved_on = status.finished or status.reason in {attempts.RETRYING, attempts.SUSPENDED}
        if row is None and status.companion and not moved_on:
            row = await link.find(case.row_key)
        if moved_on and row is not None and row.phase in FINAL_PHASES and is_told(status, row):
            row = None  # the status has all of it
        return replace(case, row=row)

    # -- the companion

    async def _companion(self, case: Case) -> Kept | None:
        """Its next step, where it may have one. None: nothing may be made or said, all is going."""
        job, before = case.job, case.before
        recorded = before.companion if case.same_attempt else None
        pod = self.known.companions.get((job.namespace, pod_name(job.name, case.attempt.number)))
        if recorded is None and before.finished:
            return Kept(None, None)  # it never came to a companion, and never will
        told: Sequence[Dependency] = ()
        if recorded is None:
            problem, told = self._obstacle(case)
            if problem:
                return Kept(None, None, problem)
        if case.link is None:
            why = self._links.problem_of(cluster_of(job, self._links.names()))
            return Kept(recorded, pod, None if before.finished else why)
        wanted = Wanted(job, case.link.cluster, case.attempt.number, told)
        kept = await self._keeper.keep(wanted, recorded, pod, now())
        if kept.is_first:
            case.link.presume_absent(case.row_key)
        kept = self._unless_given_up(job.place, kept)
        nothing_said = kept.recorded is None and kept.pod is None and kept.problem is None
        if nothing_said and kept.again_in_s is None:
            return None
        if case.row is not None and case.row.phase in FINAL_PHASES and not before.results:
            await self._keeper.collect(wanted)
        return await self._with_other(case, wanted, kept)

    async def _with_other(self, case: Case, wanted: Wanted, kept: Kept) -> Kept:
        """The same, and the pod beside the companion, if there has to be one."""
        role = other_role(case)
        if role is None or kept.recorded is None or kept.problem:
            return kept
        pod = self.known.companions.get((case.job.namespace, pod_name(case.job.name, wanted.attempt, role)))
        other = await self._keeper.keep_other(wanted, role, kept.recorded, pod, now())
        pauses = [pause for pause in (kept.again_in_s, other.again_in_s) if pause is not None]
        other = self._unless_given_up(case.job.place, other)
        return replace(other, pod=kept.pod, again_in_s=min(pauses, default=None))

    def _unless_given_up(self, place: Place, kept: Kept) -> Kept:
        if kept.refused and self._failures.get(place, 0) >= MOST_REFUSALS and kept.problem:
            return replace(kept, problem=given_up(kept.problem), refused=False)
        return kept

    def _obstacle(self, case: Case) -> tuple[Problem | None, Sequence[Dependency]]:
        """Why nothing can be made for it yet, or what Slurm has to wait for."""
        job, link = case.job, case.link
        problem = problem_of(job, self._host_paths) or problem_of_cluster(job, self._links.names())
        if problem or link is None:
            return problem, ()
        if "deletionTimestamp" in link.cluster.metadata:
            words = f"SlurmCluster {link.cluster.name} is being deleted: name another in a new SlurmJob"
            return Problem("ClusterBeingDeleted", words), ()
        if dependencies.are_met(case.before):
            return None, ()
        told, problem = dependencies.resolve(
            job, link.cluster.name, lambda name: self.known.other(job.place, name)
        )
        return problem, told

    def _refusal_pause(self, place: Place, kept: Kept) -> float | None:
        if kept.refused:
            return self._pause(place)
        self._failures.pop(place, None)
        return None

    # -- what is told, and done as told

    async def _tell(self, case: Case, kept: Kept) -> SlurmJobStatus:
        facts = self._facts(case, kept)
        before, after = case.before, status_of(facts)
        if after == before:
            if case.link is not None:
                case.link.take_lag(case.row_key)  # the status shows it: the next change is not late by it
            return after
        where = where_is(case.job.place)
        written = await self._writer.status(where, case.job.uid, after.written())
        if written is None:
            return after
        self._written(case.known, written)
        for waiting in self.known.waiting_for(case.known.place):
            self.queue.add(waiting)
        if case.link is not None:
            self._observe(case.link.take_lag(case.row_key), before, after, case.job)
        await self._writer.tell(where, case.job.uid, tellings(before.conditions, after.conditions))
        return after

    def _facts(self, case: Case, kept: Kept) -> Facts:
        job, link = case.job, case.link
        believed = kept.recorded is not None and kept.pod is not None and kept.pod.uid == kept.recorded.uid
        pods = [kept.pod if believed else None, *self._other_pods(case)]
        words = [pod.last_word for pod in pods if pod and pod.last_word]
        refused = next((word.refused for word in words if word.refused), None)
        results = next((word.results for word in words if word.results), None)
        return Facts(
            job=job,
            before=case.before,
            cluster=link.cluster.name if link else case.before.cluster,
            attempt=case.attempt,
            row=case.row,
            word=LastWord(refused, results) if words else None,
            trouble=next((pod.trouble for pod in pods if pod and pod.trouble), None),
            recorded=kept.recorded,
            problem=kept.problem,
            now=now(),
            held=holding_of(case),
        )

    def _other_pods(self, case: Case) -> list[Companion | None]:
        roles = (Role.SUBMIT, Role.COLLECT)
        names = [pod_name(case.job.name, case.attempt.number, role) for role in roles]
        found = (self.known.companions.get((case.job.namespace, name)) for name in names)
        return [pod for pod in found if pod and pod.owner_uid == case.job.uid]

    async def _do_as_told(self, case: Case, after: SlurmJobStatus) -> None:
        """Hold, release or cancel: the status has announced it, so that a restart finds it again."""
        row, link = case.row, case.link
        if row is None or link is None or row.phase in FINAL_PHASES:
            return
        try:
            if attempts.is_being_suspended(after):
                await link.cancel(case.row_key, all_attempts=False)
            elif act := act_on(row, after):
                await link.act(case.row_key, act)
        except (NoSuchJob, Conflict, Busy) as refusal:
            log.info("not done", slurmjob=_name(case.job.place), why=str(refusal))
            self.queue.add_later(case.job.place, AWAY_PAUSE_S)

    def _let_go(self, case: Case, after: SlurmJobStatus) -> None:
        """Rows of attempts that ended and are told are not kept: there may be thousands of them."""
        done = after.companion is None or after.companion.done
        if case.link is not None and after.finished and done:
            case.link.forget(case.row_key)
        if case.link is not None and case.attempt.number > attempts.FIRST:
            case.link.forget(case.row_key._replace(attempt=case.attempt.number - 1))

    async def _expire(self, case: Case, after: SlurmJobStatus) -> float | None:
        """Delete a SlurmJob whose time is over, once its log has been read."""
        ttl, finished = case.job.spec.ttl_seconds_after_finished, after.condition(ConditionType.FINISHED)
        if ttl is None or finished is None or not after.finished:
            return None
        left = ttl - (now() - finished.last_transition_time).total_seconds()
        read = after.companion is None or after.companion.done or left < -3600  # noqa: PLR2004 (an hour)
        if left > 0 or not read:
            return max(left, AWAY_PAUSE_S)
        await self._writer.delete(where_is(case.job.place), case.job.uid)
        return None

    def _observe(
        self, lag_s: float | None, before: SlurmJobStatus, after: SlurmJobStatus, job: SlurmJob
    ) -> None:
        if lag_s is not None:
            self._metrics.status_lag.observe(lag_s)
        if after.job_id and not before.job_id and after.attempts == attempts.FIRST:
            created = job.metadata["creationTimestamp"]
            self._metrics.submitted_after.observe((now() - datetime.fromisoformat(created)).total_seconds())
        if after.started_at and not before.started_at and after.submitted_at:
            self._metrics.queued_for.observe((after.started_at - after.submitted_at).total_seconds())


def _next_attempt(case: Case, after: SlurmJobStatus) -> float | None:
    """When to look again for that: what was told just now is no news, and nobody else may come by."""
    due = attempts.next_begins_in(case.job.spec, after, now()) if case.link else None
    return None if due is None else max(due, FIRST_PAUSE_S)


def _name(place: Place) -> str:
    return f"{place.namespace}/{place.name}"
