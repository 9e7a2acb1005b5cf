"""What the supervisor in slurmctld's pod serves: which files are projected there, and keys read."""

from __future__ import annotations

import asyncio
import ssl

from pydantic import BaseModel, ConfigDict, Field

from redbox_api.limits.answer_limits import AnswerLimits
from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_hosting.slurm.http_exchange import HttpRequest, exchange

ANSWER_WITHIN_S = 5.0
LIMITS = AnswerLimits()
OK = 200


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SupervisedSlurmctld(_Part):
    """The main process."""

    keys: dict[str, str] = Field({}, max_length=16)
    """The sha256 of each file with keys that it has read; none from an older image."""


class SupervisorStatus(_Part):
    """The answer, as far as it is read."""

    daemon: SupervisedSlurmctld = SupervisedSlurmctld()
    files: dict[str, str] = Field(max_length=1024)
    """The sha256 of each file by its name; none while they cannot be read."""


async def read_status(endpoint: str, tls: ssl.SSLContext | None, server_name: str) -> SupervisorStatus:
    """Raises SlurmUnknown without a whole answer in time."""
    request = HttpRequest("GET", "/status", {})
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            status, body = await exchange(endpoint, request, tls, LIMITS, server_name)
        if status != OK:
            raise SlurmUnknown(f"slurmctld's supervisor answers with HTTP {status}")
        return SupervisorStatus.model_validate_json(body)
    except (OSError, EOFError, ValueError) as error:  # TimeoutError too
        why = str(error).partition("\n")[0] or type(error).__name__
        raise SlurmUnknown(f"slurmctld's supervisor does not answer: {why}") from error
