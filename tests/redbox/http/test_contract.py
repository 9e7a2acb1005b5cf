"""The OpenAPI document against the server, which never fails and never answers what the document lacks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from redbox.callers.peers import MAX_HEAD
from redbox.http.app import bare_app
from redbox.http.openapi import PUBLIC_PATHS
from redbox_api.models import KEY_PATTERN
from tests.redbox.http.harness import Stand, standing_in_thread

CHECKS = [
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
ENDLESS = ("watch", "follow")
DOCUMENT = bare_app().openapi()
# The phase that walks every boundary of every field takes minutes for the job request alone.
QUICKLY = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": False}}})
schema = schemathesis.openapi.from_dict(DOCUMENT, config=QUICKLY)


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with standing_in_thread(submits_per_second=10_000, body_limit=8 << 20) as stand:
        asyncio.run(_prepare(stand))
        yield stand


@pytest.fixture(scope="module")
def session(stand: Stand) -> Iterator[requests.Session]:
    """One connection for a thousand requests."""
    authority = stand.directory / "ca.crt"
    authority.write_text(stand.authority)
    with requests.Session() as session:
        session.verify = str(authority)
        session.trust_env = False
        yield session


async def _prepare(stand: Stand) -> None:
    """One job with a log; it is cancelled on the way, and then it is a cancelled one."""
    job_id = await stand.submitted("k1")
    (stand.home / f"slurm-{job_id}.out").write_text("hello\n")


@pytest.mark.parametrize("path", DOCUMENT["paths"])
async def test_strangers_are_refused_wherever_they_knock(path: str, stand: Stand) -> None:
    async with stand.by_token("") as stranger:
        for method in DOCUMENT["paths"][path]:
            answer = await stranger.request(method, path.replace("{key}", "k1"))
            assert (answer.status_code == 401) == (path not in PUBLIC_PATHS), method


@schema.parametrize()
@hypothesis.settings(
    max_examples=20,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_the_server_keeps_its_contract(
    case: schemathesis.Case[Any], stand: Stand, session: requests.Session
) -> None:
    _address(case)
    case.call_and_validate(
        base_url=stand.endpoint,
        headers={"Authorization": f"Bearer {stand.tokens['alice']}"},
        checks=CHECKS,
        session=session,
        verify=session.verify,
        timeout=60,
    )


def _address(case: schemathesis.Case[Any]) -> None:
    """Have half of the requests meet a job that is there, and none an answer without end."""
    key = (case.path_parameters or {}).get("key")
    if isinstance(key, str) and re.fullmatch(KEY_PATTERN, key) and len(key) % 2:
        case.path_parameters["key"] = "k1"
    query: dict[str, Any] = dict(case.query or {})
    # Beyond it red-box answers 400 and closes, and a client that is still sending may see only that.
    hypothesis.assume(len(urlencode(query, doseq=True)) < MAX_HEAD // 2)
    case.query = {name: value for name, value in query.items() if not (name in ENDLESS and _is_true(value))}


def _is_true(value: object) -> bool:
    return str(value).lower() in {"true", "1", "yes", "on", "t", "y"}
