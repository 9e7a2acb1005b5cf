"""Objects as the API server has them, made into what the operator works with; what cannot be read is said."""

from __future__ import annotations

import structlog
from pydantic import ValidationError

from redbox_kube.objects import Object
from redbox_operator.kinds import SLURM_JOBS, Resource, SlurmJob
from redbox_operator.sylabs import OLD_KINDS, translated

log = structlog.get_logger(__name__)
RESOURCES = (SLURM_JOBS, *OLD_KINDS)


def read_job(resource: Resource, raw: Object) -> SlurmJob | None:
    """A job of any kind; None where the schema let through what the model does not. Nobody else is harmed."""
    try:
        return SlurmJob.model_validate(raw) if resource == SLURM_JOBS else translated(resource, raw)
    except ValidationError as error:
        metadata = raw["metadata"]
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        log.warning("unreadable", kind=resource.kind, slurmjob=name, error=str(error))
        return None
