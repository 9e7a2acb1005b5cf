"""What the supervisor in slurmctld's pod serves: which files the kubelet has projected there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from redbox_api.limits.answer_limits import AnswerLimits
from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_hosting.slurm.http_exchange import HttpRequest, exchange

ANSWER_WITHIN_S = 5.0
LIMITS = AnswerLimits()
OK = 200


class SupervisorStatus(BaseModel):
    """The answer, as far as it is read."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    files: dict[str, str] = Field(max_length=1024)
    """The sha256 of each file by its name; none while they cannot be read."""


async def projected_files(endpoint: str, tls: ssl.SSLContext | None, server_name: str) -> Mapping[str, str]:
    """SHA-256 by file name. Raises SlurmUnknown without a whole answer in time."""
    request = HttpRequest("GET", "/status", {})
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            status, body = await exchange(endpoint, request, tls, LIMITS, server_name)
        if status != OK:
            raise SlurmUnknown(f"slurmctld's supervisor answers with HTTP {status}")
        return SupervisorStatus.model_validate_json(body).files
    except (OSError, EOFError, ValueError) as error:  # TimeoutError too
        why = str(error).partition("\n")[0] or type(error).__name__
        raise SlurmUnknown(f"slurmctld's supervisor does not answer: {why}") from error
