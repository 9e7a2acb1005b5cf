"""What the API server's refusal of a job's pod means to the author of a SlurmJob, and what to do. Pure."""

from __future__ import annotations

from redbox_operator.api.problems import StatusProblem

CURES = (
    ("exceeded quota", "QuotaExceeded", "wait for other pods to end, or ask for a larger quota"),
    ("violates PodSecurity", "PodSecurity", "ask the cluster's administrator to admit the job's pod"),
    ("serviceaccount", "NoServiceAccount", "create the service account, or name another in a new SlurmJob"),
    ("maximum", "LimitRange", "ask the cluster's administrator for limits that admit the job's pod"),
    ("minimum", "LimitRange", "ask the cluster's administrator for limits that admit the job's pod"),
)
NAMESPACE_GOES = "because it is being terminated"


def problem_of_refusal(message: str) -> StatusProblem | None:
    """None where the namespace is going, and the SlurmJob with it: nothing is to be made or said."""
    if NAMESPACE_GOES in message:
        return None
    for word, reason, cure in CURES:
        if word in message:
            return StatusProblem(
                reason, f"Kubernetes does not admit the job's pod: {message}. To cure it: {cure}"
            )
    return StatusProblem(
        "PodRefused",
        f"Kubernetes does not admit the job's pod: {message}. Ask the cluster's administrator to admit it",
    )
