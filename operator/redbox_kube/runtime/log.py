"""The controllers' log, and that of libraries: JSON lines, or plain ones on a terminal."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

Event = MutableMapping[str, Any]


def configure_log(target: TextIO) -> None:
    """Send all log output to this stream."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
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


def _without_meta(_: object, __: str, event: Event) -> Event:
    return {key: value for key, value in event.items() if key not in {"_record", "_from_structlog"}}
