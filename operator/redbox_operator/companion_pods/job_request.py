"""The request to red-box for one attempt of a SlurmJob, as stored in its ConfigMap."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from redbox_api.job_parts import SbatchFields
from redbox_api.models import Dependency, JobRequest
from redbox_operator.api.slurmjob import SlurmJob

LARGEST_REQUEST = 1_000_000  # of a ConfigMap's 1 MiB, beside the CA


def job_request(job: SlurmJob, partition: str | None, dependencies: Sequence[Dependency] = ()) -> JobRequest:
    """The request without values that only the pod's kubelet can read; the companion adds these."""
    spec = job.spec
    shared = {name: getattr(spec, name) for name in SbatchFields.model_fields}
    return JobRequest(
        **shared | {"partition": partition},
        batch="" if spec.batch_from else spec.batch,
        container=spec.container.requested() if spec.container else None,
        name=job.name,
        env={variable.name: variable.value or "" for variable in spec.env if variable.value_from is None},
        dependencies=list(dependencies),
        hold=spec.hold or spec.suspend,
    )


def stored_request(request: JobRequest) -> str:
    """The request as JSON, with its own digest; operators compare the text with that of an earlier one.

    By the digest red-box recognizes the request even after a Secret that the pod adds to it has changed.
    """
    wire = request.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if not wire.get("batch", "there"):
        del wire["batch"]  # batchFrom: a file in the pod
    wire["specDigest"] = digest(json.dumps(wire, sort_keys=True))
    return json.dumps(wire, sort_keys=True, ensure_ascii=False)


def digest(text: str) -> str:
    """In the format of `status.companion.request`."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
