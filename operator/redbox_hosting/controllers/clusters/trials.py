"""Trials: a changed configuration runs in a pod of its own before slurmctld is asked to read it.

slurmctld takes what only slurmd refuses, and then no worker starts any more. The result is an annotation on
the configuration's record, so each configuration is tried once. A pod that says nothing is no refusal: the
configuration is applied, since a cluster without room for one more pod has to be corrected as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

from redbox_hosting.api import names
from redbox_hosting.build.pods.trial import LONGEST_S, ROLE, trial_pod
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.slurmctld_pod import LONGEST_WORDS
from redbox_hosting.controllers.unstarted_pods import why_not_started
from redbox_kube.api.kinds import CONFIG_MAP, POD
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.owned import DesiredObject, OwnedObjects
from redbox_kube.controller.steps import StepOutcome
from redbox_kube.status.conditions import NewCondition
from redbox_kube.status.status_writer import StatusWriter
from redbox_shared.printable import printable

ACCEPTED = "accepted"
REFUSED_STATUS = 10
"""Of `redbox-slurmpod trial`, with the daemon's words as the container's message."""
GIVEN_UP_AFTER = timedelta(seconds=LONGEST_S)
AGAIN_S = 10.0
NEVER_CREATED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})
"""As by a quota, or by an admission policy."""
CONDITION = "ConfigurationTried"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Words without a refusal: nothing is known of the configuration."""

    words: str
    refused: bool = False


@dataclass(frozen=True)
class Trials:
    """One pod for a configuration, at one Controller at a time."""

    writer: StatusWriter
    owned: OwnedObjects
    clock: Callable[[], datetime]

    async def advance(self, world: ClusterWorld) -> StepOutcome:
        """Begin, judge or clear away; the record of the wanted configuration is there."""
        controller, digest = world.controller, world.on_trial
        name = names.trial_name(controller.name, digest)
        for other, pod in world.trials.items():
            if other != name:
                await self.writer.delete(self._place(world, other), pod["metadata"]["uid"])
        if not digest:
            return StepOutcome()
        waits = StepOutcome(waits_for=f"the trial of the configuration in the pod {name}", again_in_s=AGAIN_S)
        if world.files_of(digest) is None:
            return waits
        if name not in world.trials:
            try:
                await self.owned.create(controller, DesiredObject(POD, name, trial_pod(world.built, digest)))
            except ApiRefused as error:
                if error.status not in NEVER_CREATED:
                    raise
                return await self._record(world, TrialResult(f"the pod {name} is refused: {error}"))
            return waits
        result = result_of(world.trials[name], self.clock())
        return waits if result is None else await self._record(world, result)

    async def _record(self, world: ClusterWorld, result: TrialResult) -> StepOutcome:
        """The watch of the record begins the reconciliation that acts on it, and removes the pod."""
        words = printable(result.words[:LONGEST_WORDS])
        key = names.ANNOTATION_REFUSED if result.refused else names.ANNOTATION_TRIED
        record = names.config_name(world.controller.name, world.on_trial)
        body = {"metadata": {"annotations": {key: words}}}
        await self.writer.objects.merge(ResourcePath(CONFIG_MAP, record, world.controller.namespace), body)
        self.writer.count(CONFIG_MAP.name, "patch")
        return StepOutcome(
            did=f"the trial of the configuration ended: {words}", waits_for="the result of the trial"
        )

    @staticmethod
    def _place(world: ClusterWorld, name: str) -> ResourcePath:
        return ResourcePath(POD, name, world.controller.namespace)


def result_of(pod: Object, now: datetime) -> TrialResult | None:
    """None while it runs, or may yet. Pure."""
    status = pod.get("status") or {}
    states = [each.get("state") or {} for each in status.get("containerStatuses") or []]
    ended = next((state["terminated"] for state in states if "terminated" in state), None)
    if ended is not None:
        words = str(ended.get("message") or ended.get("reason") or "it said nothing")
        if ended.get("exitCode") == 0:
            return TrialResult(ACCEPTED)
        if ended.get("exitCode") == REFUSED_STATUS:
            return TrialResult(f"in a trial, {words}", refused=True)
        return TrialResult(f"the trial failed with exit status {ended.get('exitCode')}: {words}")
    if status.get("phase") == "Failed":
        return TrialResult(
            f"the trial failed: {status.get('message') or status.get('reason') or 'it is lost'}"
        )
    created = pod["metadata"].get("creationTimestamp")
    if not created or now - datetime.fromisoformat(created) < GIVEN_UP_AFTER:
        return None
    return TrialResult(
        f"the trial did not end within {LONGEST_S} s: {why_not_started(pod, ROLE) or 'its pod still runs'}"
    )


def trial_condition(world: ClusterWorld) -> list[NewCondition]:
    """Of the wanted configuration; none if it is not tried. Pure."""
    if world.wanted is None:
        return []
    tried, refused = world.tried(world.wanted.digest), world.refused(world.wanted.digest)
    if world.on_trial:
        return [NewCondition(CONDITION, "Trying", "a slurmctld and a slurmd of its own run it", holds=None)]
    if tried == ACCEPTED:
        return [NewCondition(CONDITION, "Accepted", "a slurmctld and a slurmd of its own ran it", holds=True)]
    if tried:
        return [NewCondition(CONDITION, "Unknown", f"it was applied without a trial: {tried}", holds=None)]
    return [NewCondition(CONDITION, "Refused", refused, holds=False)] if refused else []
