"""Ready, Progressing and Degraded, which every kind has: from how the steps ended. Pure."""

from __future__ import annotations

from redbox_kube.controller.status_reporter import READY
from redbox_kube.controller.steps import Reports, StepState
from redbox_kube.status.conditions import NewCondition


def verdict(reports: Reports, ready: str) -> list[NewCondition]:
    """`ready` is the message of an object that is."""
    failed = [
        f"{name}: {report.message}" for name, report in reports.items() if report.state is StepState.FAILED
    ]
    waits = [report.message for report in reports.values() if report.state is StepState.WAITING]
    is_ready = not failed and not waits
    why = "; ".join(failed) or "; ".join(waits) or ready
    return [
        NewCondition(READY, "Ready" if is_ready else "NotReady", why, holds=is_ready),
        NewCondition("Progressing", "Waiting" if waits else "Done", "; ".join(waits), holds=bool(waits)),
        NewCondition(
            "Degraded", "StepsFailed" if failed else "NoneFailed", "; ".join(failed), holds=bool(failed)
        ),
    ]
