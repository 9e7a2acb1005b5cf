"""Why a job is not at red-box."""

from __future__ import annotations

from redbox_resourced.pods.exit_status import JobRefusal


class SubmissionPending(Exception):
    """The job cannot be submitted now; `reason` is one word, the message says what it waits for."""

    def __init__(self, reason: str, message: str, *, after_s: float | None = None, event: str = "") -> None:
        """`event`: the reason of an event that says it to the pod's author."""
        super().__init__(message)
        self.reason = reason
        self.after_s = after_s
        self.event = event


class SubmissionRejected(Exception):
    """The job can never be submitted."""

    def __init__(self, refusal: JobRefusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal
