"""`redbox serve`: runs the server, and ends with a status that systemd acts on."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path

from redbox.agents.errors import AgentError
from redbox.commands.config_option import ConfigOption
from redbox.commands.exit_codes import exit_with
from redbox.core.yaml_document import DocumentError
from redbox.jobs.errors import JobsError, JournalFull
from redbox.observability.audit import AuditFileError
from redbox.server.fair_loop import FairEventLoop
from redbox.server.listeners import ListenError
from redbox.server.run import BackgroundTaskFailed
from redbox.server.run import serve as serve_settings
from redbox.settings import SETTINGS_FILE, load_settings
from redbox_api.log import configure_log
from redbox_shared.tls_buffers import share_tls_buffer

RESTART = os.EX_SOFTWARE  # systemd starts it again, for instance when the disk has room
NO_RESTART = os.EX_CONFIG  # systemd does not start it again


def serve(*, config: ConfigOption = SETTINGS_FILE) -> None:
    """Run the server until SIGTERM or SIGINT. SIGHUP reloads rules, certificate and audit file."""
    gc.freeze()  # the modules: collections leave them out from the beginning
    configure_log(sys.stderr)
    share_tls_buffer()
    try:
        settings = load_settings(config)
    except DocumentError as error:
        exit_with(str(error), NO_RESTART)
    try:
        with asyncio.Runner(loop_factory=FairEventLoop) as runner:
            runner.run(serve_settings(settings, config))
    except BackgroundTaskFailed as error:
        exit_with(str(error), RESTART)
    except (JournalFull, OSError) as error:
        exit_with(_unwritable(settings.jobs.journal, error), RESTART)
    except (DocumentError, JobsError, AgentError, AuditFileError, ListenError) as error:
        exit_with(str(error), NO_RESTART)


def _unwritable(journal: Path, error: JournalFull | OSError) -> str:
    cause = error.__cause__ if isinstance(error, JournalFull) and error.__cause__ else error
    place = cause.filename if isinstance(cause, OSError) and cause.filename else journal
    why = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return f"red-box cannot start: {place} cannot be written: {why}. Free space there, or repair the disk."
