"""The keys of a red-box for a hosted cluster: made once, and published where they are checked."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import asyncssh
import pytest

from redbox.server.certificates import facts_of, is_issued_by
from redbox_hosting.attach import AttachedRedbox, attach, new_files
from redbox_hosting.controllers.clusters.certificates import CERTIFICATE_LIFE
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.install.crd_commands import CommandFailed
from tests.kube.fakes import FakeApiServer

REDBOX = AttachedRedbox("slurm-redbox", "hpc")
SECRET = ResourcePath(kinds.SECRET, "slurm-redbox", "hpc")
CONFIG_MAP = ResourcePath(kinds.CONFIG_MAP, "slurm-redbox", "hpc")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def after(**time: int) -> Callable[[], datetime]:
    return lambda: BEGIN + timedelta(**time)


@pytest.fixture
def api() -> FakeApiServer:
    return FakeApiServer()


def files(api: FakeApiServer) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in api.objects[SECRET]["data"].items()}


async def test_what_is_there_is_never_made_again(api: FakeApiServer) -> None:
    assert await attach(api.client, REDBOX) == "Secret slurm-redbox created"
    first = api.objects[SECRET]["data"]
    assert await attach(api.client, REDBOX) == "Secret slurm-redbox is there and stays as it is"
    assert api.objects[SECRET]["data"] == first


async def test_the_public_halves_go_to_those_who_check_them(api: FakeApiServer) -> None:
    await attach(api.client, REDBOX)
    made, published = files(api), api.objects[CONFIG_MAP]["data"]
    bundle = published["ca.crt"]
    assert is_issued_by(made["tls.crt"], bundle.encode())
    assert "slurm-redbox.hpc.svc" in facts_of(made["tls.crt"]).names
    ssl.create_default_context(cadata=bundle)
    own = asyncssh.import_private_key(made["ssh-privatekey"])
    trusted = asyncssh.import_public_key(published["trusted_user_ca_keys"])
    assert trusted.public_data == own.public_data
    assert "PRIVATE" not in "".join(published.values())


async def test_it_writes_its_secret_and_its_config_map_alone(api: FakeApiServer) -> None:
    await attach(api.client, REDBOX)
    await attach(api.client, REDBOX, after(days=36500))
    reads = {"get", "list", "watch"}
    written = {where.name: str(where.kind) for verb, where in api.requests if verb not in reads}
    assert written.keys() <= {"slurm-redbox", ""}
    assert {where.kind for verb, where in api.requests} == {kinds.SECRET, kinds.CONFIG_MAP}


async def test_the_certificate_is_renewed_in_time_and_nothing_else_is(api: FakeApiServer) -> None:
    await attach(api.client, REDBOX, after())
    first, bundle = files(api), api.objects[CONFIG_MAP]["data"]
    assert facts_of(first["tls.crt"]).not_after == BEGIN + CERTIFICATE_LIFE
    assert (
        await attach(api.client, REDBOX, after(days=53)) == "Secret slurm-redbox is there and stays as it is"
    )
    assert files(api) == first
    assert await attach(api.client, REDBOX, after(days=55)) == "Secret slurm-redbox has a new certificate"
    second = files(api)
    assert {name for name in first if first[name] != second[name]} == {"tls.crt", "tls.key"}
    assert is_issued_by(second["tls.crt"], second["ca.crt"])
    assert facts_of(second["tls.crt"]).not_after == BEGIN + timedelta(days=55) + CERTIFICATE_LIFE
    assert api.objects[CONFIG_MAP]["data"] == bundle


async def test_a_public_half_that_was_lost_is_published_again(api: FakeApiServer) -> None:
    await attach(api.client, REDBOX)
    before = api.objects[CONFIG_MAP]["data"]
    api.remove(CONFIG_MAP)
    await attach(api.client, REDBOX)
    assert api.objects[CONFIG_MAP]["data"] == before


async def test_a_secret_of_somebody_else_is_refused_and_stays(api: FakeApiServer) -> None:
    made = {name: base64.b64encode(content).decode() for name, content in new_files(REDBOX, BEGIN).items()}
    for spoiled, message in (
        ({"ssh-privatekey": base64.b64encode(b"nonsense").decode()}, "has no SSH authority"),
        ({"ca.key": base64.b64encode(b"nonsense").decode()}, "authority cannot be read, delete it"),
    ):
        api.put(SECRET, data={**made, **spoiled})
        with pytest.raises(CommandFailed, match=f"Secret slurm-redbox.* {message}"):
            await attach(api.client, REDBOX, after())
        assert api.objects[SECRET]["data"] == {**made, **spoiled}


def test_two_red_boxes_have_nothing_in_common() -> None:
    first, second = (new_files(REDBOX, BEGIN) for _ in range(2))
    assert not set(first.values()) & set(second.values())
