"""Decodes objects of the API server into SlurmJobs."""

from __future__ import annotations

import structlog
from pydantic import ValidationError

from redbox_clusters.names import SLURM_JOBS
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import Object
from redbox_kube.status.problems import first_flaw
from redbox_operator.api.slurmjob import SlurmJob, SlurmJobSpec
from redbox_operator.api.slurmjob_status import SlurmJobStatus
from redbox_operator.api.sylabs import OLD_KINDS, translated

log = structlog.get_logger(__name__)
RESOURCES = (SLURM_JOBS, *OLD_KINDS)


def read_job(resource: Kind, raw: Object) -> SlurmJob:
    """A job of any kind. One that passed the schema but not the model has `unreadable` set."""
    raw = {**raw, "status": _readable_status(raw)}
    try:
        return SlurmJob.model_validate(raw) if resource == SLURM_JOBS else translated(resource, raw)
    except ValidationError as error:
        log.warning("unreadable", kind=resource.name, slurmjob=_name(raw), error=str(error))
        return _unreadable(resource, raw, first_flaw(error))


def _unreadable(resource: Kind, raw: Object, flaw: str) -> SlurmJob:
    """Without its spec, except for its owner: an earlier operator may have submitted it."""
    return SlurmJob(
        metadata=raw["metadata"],
        spec=_owner_only(raw.get("spec")),
        status=raw["status"],
        resource=resource,
        unreadable=flaw,
    )


def _readable_status(raw: Object) -> SlurmJobStatus:
    """The status as written; an unreadable one is logged and replaced by an empty one."""
    try:
        return SlurmJobStatus.model_validate(raw.get("status", {}))
    except ValidationError as error:
        log.warning("unreadable status", slurmjob=_name(raw), error=str(error))
        return SlurmJobStatus()


def _name(raw: Object) -> str:
    metadata = raw["metadata"]
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def _owner_only(spec: object) -> SlurmJobSpec:
    """Sylabs' first CRD accepted any spec, and a missing one."""
    account = spec.get("serviceAccountName") if isinstance(spec, dict) else None
    try:
        return SlurmJobSpec.model_validate({"serviceAccountName": account} if account else {})
    except ValidationError:
        return SlurmJobSpec()
