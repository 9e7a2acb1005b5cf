"""The log of a part, and that of its libraries: JSON lines, or plain ones on a terminal."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TextIO, cast

import structlog

from redbox_shared.printable import printable_texts


class LossyFile:
    """A line that cannot be written, as to a full disk or a closed pipe, is lost, and its writer goes on."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def _printable(_: object, __: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """Slurm, red-box and tenants wrote parts of it; a traceback has its lines."""
    return {name: printable_texts(value, lines=True) for name, value in line.items()}


def configure_log(target: TextIO) -> None:
    """Write to `target`; log records of libraries, which use `logging`, get the same form.

    Context variables of structlog, such as the id of the current request, are in each line.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _printable,
    ]
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if target.isatty() else structlog.processors.JSONRenderer()
    )
    lossy = LossyFile(target)
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", lossy)),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    handler = logging.StreamHandler(lossy)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
