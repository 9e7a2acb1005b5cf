"""The proof that a submit works: a held job goes the whole way to Slurm, and is deleted. It never starts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kubectl_slurm.checks.clusters import OPERATOR_CURE
from kubectl_slurm.checks.report import CheckLine, failed, passed, unknown
from kubectl_slurm.errors import NotAnswered, PluginError, Refusal
from kubectl_slurm.kubectl.program import SLURMJOBS, Kubectl
from kubectl_slurm.slurmjobs.access import watch_job
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.redbox.answers import IdentityAtRedbox
from redbox_shared.explanations.clusters import UNREACHABLE
from redbox_shared.explanations.explanation import Explanation, explanation_of
from redbox_shared.explanations.redbox_problems import REDBOX_PROBLEMS, title_of, without_title
from redbox_shared.explanations.slurmjobs import SLURMJOB_REASONS
from redbox_shared.own_lines import PREFIX

WAITS = f"{PREFIX}waiting for red-box: "
"""What the pod of a job says in its log while red-box does not take the job."""
LOG_LINES = 20
UNTIL_LABEL = "redbox.dev/doctor"
"""Of the held job: until when its doctor waits for it, in seconds since 1970."""
CLOCK_SKEW_S = 300
"""Between the machines of two users of a namespace."""
NOT_ADMITTED_CURE = "an administrator of Kubernetes admits SlurmJobs in this namespace"
NOT_ANSWERED_CURE = "run doctor again once the cluster answers"


@dataclass(frozen=True)
class HeldJob:
    """What the options say of the job; an empty field is Slurm's default."""

    service_account: str
    within: timedelta
    partition: str = ""
    account: str = ""
    time: str = "1"

    def for_cluster(self, cluster: ClusterView, whoami: IdentityAtRedbox | None) -> HeldJob:
        """With a partition and an account where a submit has to name one; the options take precedence."""
        return replace(
            self,
            partition=self.partition or _partition(cluster, whoami.partitions if whoami else ()),
            account=self.account or (_account(whoami) if whoami else ""),
        )


def _partition(cluster: ClusterView, allowed: tuple[str, ...]) -> str:
    """One of those that the mapping allows, the default first; none where Slurm's default may be used."""
    there = [each for each in cluster.partitions if not allowed or each.name in allowed]
    first = min(there, key=lambda each: (not each.is_default, each.state != "up"), default=None)
    if first is None:
        return allowed[0] if allowed else ""
    return "" if first.is_default and not allowed else first.name


def _account(whoami: IdentityAtRedbox) -> str:
    """One of those that the mapping allows, and of the user's in Slurm."""
    of_user = [account for account in whoami.accounts if account in whoami.slurm_accounts]
    return (of_user or [*whoami.accounts, ""])[0]


def submit_lines(kubectl: Kubectl, cluster: ClusterView | None, asked: HeldJob) -> list[CheckLine]:
    """`cluster`: None where the user may not see them, and the operator chooses.

    A list, because a generator that is left by a signal runs its `finally` late or never. The name is chosen
    here: after a signal the answer to the create may be unread, and the SlurmJob exists.
    """
    what = f"submit to {cluster.name}" if cluster else "submit"
    manifest = _manifest(cluster, asked, datetime.now(UTC))
    job, is_refused = None, False
    try:
        job = SlurmJobView(kubectl.json("create", "--filename=-", stdin=json.dumps(manifest)))
        line = _found(kubectl, what, _in_slurm(kubectl, job, asked.within), asked.within)
    except PluginError as error:
        is_refused = job is None and isinstance(error, Refusal) and not isinstance(error, NotAnswered)
        line = failed(what, str(error), NOT_ADMITTED_CURE if is_refused else NOT_ANSWERED_CURE)
    finally:
        left = [] if is_refused else _delete(kubectl, what, manifest["metadata"]["name"])
    return [line, *left]


def delete_abandoned(kubectl: Kubectl, now: datetime) -> Iterator[CheckLine]:
    """Held jobs of a doctor that was killed, once nobody waits for them any more."""
    for job in map(SlurmJobView, kubectl.json("get", SLURMJOBS, f"--selector={UNTIL_LABEL}")["items"]):
        until = str((job.metadata.get("labels") or {}).get(UNTIL_LABEL, ""))
        if until.isdecimal() and int(until) + CLOCK_SKEW_S < now.timestamp() and not job.being_deleted:
            deleted = passed("submit", f"SlurmJob {job.name}, which an earlier doctor left, is deleted")
            yield from _delete(kubectl, "submit", job.name) or [deleted]


def _delete(kubectl: Kubectl, what: str, name: str) -> list[CheckLine]:
    """A line where the SlurmJob may be left."""
    code, _, why = kubectl.outcome("delete", SLURMJOBS, "--wait=false", "--ignore-not-found", "--", name)
    if not code:
        return []
    return [unknown(what, f"SlurmJob {name} is left: {why.strip()}", f"kubectl slurm cancel --delete {name}")]


def _manifest(cluster: ClusterView | None, asked: HeldJob, now: datetime) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "batch": "#!/bin/sh\ntrue\n",
        "hold": True,
        "serviceAccountName": asked.service_account,
        "resources": {"time": asked.time},
    }
    if cluster is not None:
        spec["endpoint" if cluster.is_endpoint else "cluster"] = cluster.name
    spec |= {field: value for field in ("partition", "account") if (value := getattr(asked, field))}
    metadata = {
        "name": f"doctor-{secrets.token_hex(4)}",
        "labels": {UNTIL_LABEL: str(int((now + asked.within).timestamp()))},
    }
    return {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmJob", "metadata": metadata, "spec": spec}


def _in_slurm(kubectl: Kubectl, job: SlurmJobView, within: timedelta) -> SlurmJobView:
    """Once Slurm has it or has refused it, or as it is when the time is over."""
    current = job
    for current in watch_job(kubectl, job, say=lambda _: None, until=datetime.now(UTC) + within):
        if current.in_slurm or current.finished:
            break
    return current


def _found(kubectl: Kubectl, what: str, job: SlurmJobView, within: timedelta) -> CheckLine:
    if job.in_slurm:
        return passed(what, f"a held job was Slurm job {job.job_id} of Unix user {job.user}, and is deleted")
    condition = job.condition("Submitted")
    if not condition:
        found = f"the operator has not seen SlurmJob {job.name} in {within.seconds} s"
        return failed(what, found, OPERATOR_CURE)
    reason, found = str(condition.get("reason")), job.message or str(condition.get("message"))
    if waits := _why_it_waits(kubectl, job):
        found = waits
    explanation = _explanation_of(found) or SLURMJOB_REASONS.get(reason)
    if explanation is None:
        cure = f"see its pod: kubectl describe pod {job.pod}"
        return failed(what, f"after {within.seconds} s: {found}", cure)
    return failed(what, without_title(found), explanation.cure)


def _why_it_waits(kubectl: Kubectl, job: SlurmJobView) -> str:
    """As its pod says in its log; nothing where it has said nothing, or is not to be read."""
    if job.finished:
        return ""
    code, out, _ = kubectl.outcome("logs", f"--tail={LOG_LINES}", "--", job.pod)
    waits = [line.removeprefix(WAITS) for line in out.splitlines() if line.startswith(WAITS)]
    return waits[-1] if waits and not code else ""


def _explanation_of(text: str) -> Explanation | None:
    """By the words of a connection's error, or by the title of red-box's answer."""
    title = title_of(text)
    return REDBOX_PROBLEMS[title] if title else explanation_of(text, UNREACHABLE)
