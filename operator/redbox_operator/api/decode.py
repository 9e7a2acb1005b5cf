"""Objects as the API server has them, made into what the operator works with."""

from __future__ import annotations

import structlog
from pydantic import ValidationError

from redbox_kube.api.objects import Object
from redbox_operator.api.problems import first_flaw
from redbox_operator.api.slurmjob import SLURM_JOBS, Resource, SlurmJob, SlurmJobSpec
from redbox_operator.api.sylabs import OLD_KINDS, translated

log = structlog.get_logger(__name__)
RESOURCES = (SLURM_JOBS, *OLD_KINDS)


def read_job(resource: Resource, raw: Object) -> SlurmJob:
    """A job of any kind. Where the schema let through what the model does not, it says so of itself."""
    try:
        return SlurmJob.model_validate(raw) if resource == SLURM_JOBS else translated(resource, raw)
    except ValidationError as error:
        metadata = raw["metadata"]
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        log.warning("unreadable", kind=resource.kind, slurmjob=name, error=str(error))
        return _unreadable(resource, raw, first_flaw(error))


def _unreadable(resource: Resource, raw: Object, flaw: str) -> SlurmJob:
    """Without its spec but for whose it is: an operator before this one may have submitted it."""
    status = raw.get("status")
    return SlurmJob(
        metadata=raw["metadata"],
        spec=_whose(raw.get("spec")),
        status=status if isinstance(status, dict) else {},
        resource=resource,
        unreadable=flaw,
    )


def _whose(spec: object) -> SlurmJobSpec:
    """Sylabs' first CRD let through any spec, and none."""
    account = spec.get("serviceAccountName") if isinstance(spec, dict) else None
    try:
        return SlurmJobSpec.model_validate({"serviceAccountName": account} if account else {})
    except ValidationError:
        return SlurmJobSpec()
