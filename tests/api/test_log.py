"""The log of a part, as those read it who look for a fault."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from redbox_api.log import configure_log


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    target = io.StringIO()
    configure_log(target)
    yield target
    structlog.reset_defaults()
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def test_a_defect_is_logged_with_its_traceback_by_either_library(written: io.StringIO) -> None:
    for own in (structlog.get_logger("own"), logging.getLogger("redbox.jobs.background_tasks")):
        try:
            json.loads("no JSON")
        except ValueError:
            own.exception("it failed")
    for line in written.getvalue().splitlines():
        record = json.loads(line)
        assert record["event"] == "it failed"
        assert "Traceback" in record["exception"]
        assert "JSONDecodeError" in record["exception"]
    assert len(written.getvalue().splitlines()) == 2


@pytest.mark.usefixtures("written")
def test_a_full_disk_ends_no_part_that_logs() -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 (closing it fails)
    configure_log(full)
    for own in (structlog.get_logger("own"), logging.getLogger("redbox.jobs.background_tasks")):
        own.warning("it is lost")
    with pytest.raises(OSError, match="No space left"):
        full.close()
