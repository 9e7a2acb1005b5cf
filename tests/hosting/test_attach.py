"""The keys of a red-box for a hosted cluster: made once, and published where they are checked."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime

import asyncssh
import pytest

from redbox.server.certificates import facts_of, is_issued_by
from redbox_hosting import attach as attaching
from redbox_hosting.attach import SLURM_CLUSTERS, AttachedRedbox, attach, new_files
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.install.crd_commands import CommandFailed
from tests.kube.fakes import FakeApiServer

REDBOX = AttachedRedbox("slurm-redbox", "hpc", "slurm")
SECRET = ResourcePath(kinds.SECRET, "slurm-redbox", "hpc")
CONFIG_MAP = ResourcePath(kinds.CONFIG_MAP, "slurm-redbox", "hpc")
SLURM_CLUSTER = ResourcePath(SLURM_CLUSTERS, "slurm")


@pytest.fixture
def api() -> FakeApiServer:
    api = FakeApiServer()
    api.put(SLURM_CLUSTER, spec={"endpoint": "https://slurm-redbox.hpc.svc:8443"})
    return api


async def test_what_is_there_is_never_made_again(api: FakeApiServer) -> None:
    assert await attach(api.client, REDBOX) == "Secret slurm-redbox created"
    first = api.objects[SECRET]["data"]
    assert await attach(api.client, REDBOX) == "Secret slurm-redbox is there and stays as it is"
    assert api.objects[SECRET]["data"] == first


async def test_the_public_halves_go_to_those_who_check_them(api: FakeApiServer) -> None:
    await attach(api.client, REDBOX)
    files = {name: base64.b64decode(text) for name, text in api.objects[SECRET]["data"].items()}
    bundle = base64.b64decode(api.objects[SLURM_CLUSTER]["spec"]["caBundle"])
    assert is_issued_by(files["tls.crt"], bundle)
    assert "slurm-redbox.hpc.svc" in facts_of(files["tls.crt"]).names
    ssl.create_default_context(cadata=bundle.decode())
    published = api.objects[CONFIG_MAP]["data"]["trusted_user_ca_keys"]
    own = asyncssh.import_private_key(files["ssh-privatekey"])
    assert asyncssh.import_public_key(published).public_data == own.public_data
    assert "PRIVATE" not in published


async def test_a_public_half_that_was_lost_is_published_again(api: FakeApiServer) -> None:
    await attach(api.client, REDBOX)
    before = api.objects[CONFIG_MAP]["data"]
    api.remove(CONFIG_MAP)
    await attach(api.client, REDBOX)
    assert api.objects[CONFIG_MAP]["data"] == before


async def test_a_secret_of_somebody_else_is_refused_and_stays(api: FakeApiServer) -> None:
    api.put(SECRET, data={"ssh-privatekey": base64.b64encode(b"nonsense").decode()})
    with pytest.raises(CommandFailed, match="Secret slurm-redbox has no SSH authority"):
        await attach(api.client, REDBOX)
    assert api.objects[SECRET]["data"] == {"ssh-privatekey": base64.b64encode(b"nonsense").decode()}


async def test_a_slurm_cluster_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "PATIENCE_S", 0)
    with pytest.raises(CommandFailed, match="there is no SlurmCluster slurm"):
        await attach(FakeApiServer().client, REDBOX)


def test_two_red_boxes_have_nothing_in_common() -> None:
    now = datetime.now(UTC)
    first, second = (new_files(REDBOX, now) for _ in range(2))
    assert not set(first.values()) & set(second.values())
