"""The API server's refusals of a job's pod as problems with a remedy for the user. Pure."""

from __future__ import annotations

from redbox_kube.status.problems import StatusProblem

REMEDIES = (
    ("exceeded quota", "QuotaExceeded", "wait for other pods to end, or ask for a larger quota"),
    ("violates PodSecurity", "PodSecurity", "ask the cluster's administrator to admit the job's pod"),
    ('serviceaccount "', "NoServiceAccount", "create the service account, or name another in a new SlurmJob"),
    ("maximum", "LimitRange", "ask the cluster's administrator for limits that admit the job's pod"),
    ("minimum", "LimitRange", "ask the cluster's administrator for limits that admit the job's pod"),
)
NAMESPACE_TERMINATES = "because it is being terminated"


def problem_of_refusal(message: str) -> StatusProblem | None:
    """None where the namespace is being terminated, and the SlurmJob with it."""
    if NAMESPACE_TERMINATES in message:
        return None
    for word, reason, remedy in REMEDIES:
        if word in message:
            return StatusProblem(
                reason, f"Kubernetes does not admit the job's pod: {message}. To fix it: {remedy}"
            )
    return StatusProblem(
        "PodRefused",
        f"Kubernetes does not admit the job's pod: {message}. Ask the cluster's administrator to admit it",
    )
