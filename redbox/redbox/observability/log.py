"""The server's log: JSON lines, or plain ones on a terminal, each with its request's id."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from redbox.observability.request_id import request_id

Event = MutableMapping[str, Any]


def configure_log(target: TextIO) -> None:
    """Write to `target`; log records of libraries, which use `logging`, get the same form."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_request,
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if target.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=structlog.WriteLoggerFactory(file=target),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[_without_meta, renderer])
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def _with_request(_: object, __: str, event: Event) -> Event:
    identifier = request_id.get()
    return event if identifier == "-" else {**event, "request_id": identifier}


def _without_meta(_: object, __: str, event: Event) -> Event:
    return {key: value for key, value in event.items() if key not in {"_record", "_from_structlog"}}
