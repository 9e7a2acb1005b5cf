"""Long polls of the supervisor in slurmctld's pod, which sees that Slurm has changed without asking it."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from dataclasses import dataclass
from http import HTTPStatus

from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_hosting.slurm.http_exchange import HttpRequest, exchange
from redbox_hosting.slurm.supervisor import ANSWER_WITHIN_S, LIMITS

WAIT_S = 30


@dataclass(frozen=True, slots=True)
class SupervisorAddress:
    """Where one cluster's supervisor is, and the name in its certificate."""

    endpoint: str
    tls: ssl.SSLContext | None
    server_name: str


async def next_tag(supervisor: SupervisorAddress, tag: str) -> str:
    """The tag of its status: another one as soon as that has changed, the same after a while.

    Without a tag it answers immediately. Raises SlurmUnknown without a whole answer in time.
    """
    headers = {"if-none-match": tag, "prefer": f"wait={WAIT_S}"} if tag else {}
    request = HttpRequest("GET", "/status", headers)
    try:
        async with asyncio.timeout(WAIT_S + ANSWER_WITHIN_S):
            status, body = await exchange(
                supervisor.endpoint, request, supervisor.tls, LIMITS, supervisor.server_name
            )
    except (OSError, EOFError, ValueError) as error:  # TimeoutError too
        raise SlurmUnknown(f"slurmctld's supervisor does not answer: {error}") from error
    if status == HTTPStatus.NOT_MODIFIED:
        return tag
    if status != HTTPStatus.OK:
        raise SlurmUnknown(f"slurmctld's supervisor answers with HTTP {status}")
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'
