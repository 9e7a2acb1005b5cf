"""The text of a pod's report that a record keeps: bounded, for it is in memory and in the journal. Pure.

A report is a user's own text, and a record outlives its job by weeks. Exit codes, reasons and times always
stay; of what is too long, old events go and messages are cut.
"""

from __future__ import annotations

from typing import Any

from redbox_api.pod_report import LONGEST_MESSAGE, MAX_EVENTS, ContainerState, PodReport

LONGEST_LIVE, LONGEST_FINAL = 32 * 1024, 8 * 1024
STEPS = ((MAX_EVENTS, LONGEST_MESSAGE), (MAX_EVENTS, 1024), (16, 512), (8, 256), (4, 64), (0, 0))
"""How many events are kept, and how many characters of each message: the first that fits."""


def report_text(report: PodReport) -> str:
    """The report as JSON; of the last one less is kept."""
    longest = LONGEST_FINAL if report.done else LONGEST_LIVE
    text = _dumped(report)
    for events, message in STEPS:
        if len(text.encode()) <= longest:
            break
        text = _dumped(_shortened(report, events, message))
    return text


def _dumped(report: PodReport) -> str:
    return report.model_dump_json(by_alias=True, exclude_defaults=True)


def _shortened(report: PodReport, events: int, message: int) -> PodReport:
    containers = []
    for container in report.containers:
        update: dict[str, Any] = {
            "state": _with_message(container.state, message),
            "last_state": _with_message(container.last_state, message),
        }
        containers.append(container.model_copy(update=update | ({} if message else {"image_id": ""})))
    newest = report.events[len(report.events) - events :] if events < len(report.events) else report.events
    return report.model_copy(
        update={
            "message": report.message[: max(message, 256)],
            "containers": containers,
            "events": [event.model_copy(update={"message": event.message[:message]}) for event in newest],
        }
    )


def _with_message(state: ContainerState, length: int) -> ContainerState:
    cut = {
        name: part.model_copy(update={"message": part.message[:length]})
        for name in ("waiting", "terminated")
        if (part := getattr(state, name)) is not None
    }
    return state.model_copy(update=cut)
