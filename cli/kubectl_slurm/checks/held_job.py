"""The proof that a submit works: a held job goes the whole way to Slurm, and is deleted. It never starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from kubectl_slurm.checks.clusters import OPERATOR_CURE
from kubectl_slurm.checks.report import Examined, not_well, unknown, well
from kubectl_slurm.errors import PluginError
from kubectl_slurm.kubectl.program import SLURMJOBS, Kubectl
from kubectl_slurm.slurmjobs.access import watch_job
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.job import SlurmJobView
from redbox_shared.explanations.clusters import UNREACHABLE
from redbox_shared.explanations.explanation import Explanation, explanation_of
from redbox_shared.explanations.redbox_problems import REDBOX_PROBLEMS, title_of, without_title
from redbox_shared.explanations.slurmjobs import SLURMJOB_REASONS
from redbox_shared.own_lines import PREFIX

WAITS = f"{PREFIX}waiting for red-box: "
"""What the pod of a job says in its log while red-box does not take the job."""
LOG_LINES = 20


def submit_lines(
    kubectl: Kubectl, cluster: ClusterView | None, account: str, within: timedelta
) -> Iterator[Examined]:
    """`cluster`: None where the user may not see them, and the operator chooses."""
    what = f"submit to {cluster.name}" if cluster else "submit"
    try:
        job = SlurmJobView(kubectl.json("create", "--filename=-", stdin=json.dumps(_held(cluster, account))))
    except PluginError as error:
        yield not_well(what, str(error), "an administrator of Kubernetes admits SlurmJobs in this namespace")
        return
    try:
        job = _in_slurm(kubectl, job, within)
        yield _found(kubectl, what, job, within)
    except PluginError as error:
        yield not_well(what, str(error), "run doctor again once the cluster answers")
    finally:
        code, _, why = kubectl.outcome(
            "delete", SLURMJOBS, "--wait=false", "--ignore-not-found", "--", job.name
        )
        if code:
            cure = f"kubectl slurm cancel --delete {job.name}"
            yield unknown(what, f"SlurmJob {job.name} is left: {why.strip()}", cure)


def _held(cluster: ClusterView | None, account: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"batch": "#!/bin/sh\ntrue\n", "hold": True, "serviceAccountName": account}
    if cluster is not None:
        spec["endpoint" if cluster.is_endpoint else "cluster"] = cluster.name
        partitions = cluster.partitions or []
        if partitions and not any(partition.is_default for partition in partitions):
            spec["partition"] = partitions[0].name
    metadata = {"generateName": "doctor-"}
    return {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmJob", "metadata": metadata, "spec": spec}


def _in_slurm(kubectl: Kubectl, job: SlurmJobView, within: timedelta) -> SlurmJobView:
    """Once Slurm has it or has refused it, or as it is when the time is over."""
    current = job
    for current in watch_job(kubectl, job, say=lambda _: None, until=datetime.now(UTC) + within):
        if current.in_slurm or current.finished:
            break
    return current


def _found(kubectl: Kubectl, what: str, job: SlurmJobView, within: timedelta) -> Examined:
    if job.in_slurm:
        return well(what, f"a held job was Slurm job {job.job_id} of Unix user {job.user}, and is deleted")
    condition = job.condition("Submitted")
    if not condition:
        found = f"the operator has not seen SlurmJob {job.name} in {within.seconds} s"
        return not_well(what, found, OPERATOR_CURE)
    reason, found = str(condition.get("reason")), job.message or str(condition.get("message"))
    if waits := _why_it_waits(kubectl, job):
        found = waits
    explanation = _explanation_of(found) or SLURMJOB_REASONS.get(reason)
    if explanation is None:
        cure = f"see its pod: kubectl describe pod {job.pod}"
        return not_well(what, f"after {within.seconds} s: {found}", cure)
    return not_well(what, without_title(found), explanation.cure)


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
