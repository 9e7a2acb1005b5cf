"""A rotation of keys at the API server of the tests, with an operator that ends after each move."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.controllers.clusters.certificates import ClusterAuthority
from redbox_hosting.controllers.clusters.keys import FORMER_JWT, JWT, signed_token
from redbox_hosting.controllers.clusters.rotation.key_readers import KeyReaders
from redbox_hosting.controllers.clusters.rotation.key_rotation import (
    LONGEST_CREDENTIAL,
    Rotation,
    RotationMove,
    jwks_digest,
)
from redbox_hosting.controllers.clusters.rotation.key_rotations import KeyRotations, rotated_keys
from redbox_hosting.slurm.answers import RestNode
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.steps import StepFailed, StepOutcome, StepReport, StepState
from tests.hosting.controllers.cluster_bench import Bench, Pod, ScriptedSlurm, controller

KEYS = ResourcePath(kinds.SECRET, "slurm-keys", "hpc")
WORKER, LOGIN = (ResourcePath(kinds.POD, name, "hpc") for name in ("w-0", "login-0"))


def asked_of(value: str = "a", **spec: Any) -> SlurmController:
    found = controller(**spec)
    annotations = {names.ANNOTATION_ROTATE_KEYS: value} if value else {}
    return found.model_copy(update={"metadata": {**found.metadata, "annotations": annotations}})


@dataclass
class RotationBench:
    """A cluster of slurmctld, one worker and a login pod."""

    bench: Bench = field(default_factory=Bench)

    def __post_init__(self) -> None:
        for where, role in ((WORKER, "slurmd"), (LOGIN, "login")):
            labels = {names.LABEL_CLUSTER: "slurm", names.LABEL_ROLE: role}
            self.bench.api.put(where, metadata={"labels": labels})

    async def make_keys(self, value: str = "") -> None:
        await self.bench.controllers._token_keys(asked_of(value))

    @property
    def files(self) -> dict[str, bytes]:
        data = self.bench.api.objects[KEYS]["data"]
        return {name: base64.b64decode(text) for name, text in data.items()}

    @property
    def move(self) -> RotationMove:
        return Rotation.read(self.files).move

    def all_read(self) -> None:
        """slurmctld and slurmd have read the newest keys."""
        digest = jwks_digest(self.files)
        self.bench.pod.keys = {"slurm.jwks": digest}
        comment = f"redbox-keys:{digest[:16]}"
        node = {"name": "w-0", "state": ["ALLOCATED"], "comment": comment}
        self.bench.slurm.nodes_now = (RestNode.model_validate(node),)

    async def advance(self, asked: SlurmController | None = None) -> StepOutcome:
        """One reconciliation of an operator that has just been started."""
        before = self.bench
        self.bench = Bench(before.slurm, before.pod, before.clock, before.api)
        controllers = self.bench.controllers
        readers = KeyReaders(self.bench.context, controllers._reconfigurations)
        step = KeyRotations(controllers._secrets, readers)
        return await step.advance(self.bench.world(asked or asked_of()))


@pytest.fixture
def it() -> RotationBench:
    return RotationBench()


async def test_an_operator_that_ends_after_each_move_goes_on_and_no_move_comes_before_all_have_read(
    it: RotationBench,
) -> None:
    await it.make_keys()
    it.all_read()
    moves: list[RotationMove] = []
    tokens: list[bool] = []
    for _ in range(40):
        if not (await it.advance()).waits_for:
            break
        if not moves or moves[-1] is not it.move:
            moves.append(it.move)
            tokens.append(bool(it.files.get(FORMER_JWT)))
            behind = it.move
            await it.advance()
            assert it.move is behind or behind is RotationMove.SIGNS  # SIGNED has the same files
        it.all_read()
        it.bench.clock.now += LONGEST_CREDENTIAL / 2
    assert moves == [RotationMove.ADDED, RotationMove.SIGNS, RotationMove.SIGNED, RotationMove.REPLACED]
    assert tokens == [False, False, False, True]
    assert it.move is RotationMove.DONE
    assert it.files[FORMER_JWT] == b""
    digest = jwks_digest(it.files)
    for where in (WORKER, LOGIN):
        assert it.bench.api.objects[where]["metadata"]["annotations"][names.ANNOTATION_KEYS] == digest


async def test_tokens_have_the_new_key_once_slurmctld_has_it_whoever_else_is_behind(
    it: RotationBench,
) -> None:
    await it.make_keys()
    it.all_read()
    while True:
        await it.advance()
        if it.move is RotationMove.REPLACED:
            break
        it.all_read()
        it.bench.clock.now += LONGEST_CREDENTIAL / 2
    assert it.files[FORMER_JWT]
    it.bench.pod.keys = {"slurm.jwks": jwks_digest(it.files)}
    assert (await it.advance()).did == "tokens have the new key"
    assert it.files[FORMER_JWT] == b""
    assert "node w-0 has not read them yet" in (await it.advance()).waits_for
    assert it.move is RotationMove.REPLACED


async def test_without_the_annotation_nothing_is_read_or_written(it: RotationBench) -> None:
    await it.make_keys()
    it.bench.pod.answers = False
    before = it.files
    assert await it.advance(asked_of("")) == StepOutcome(fact="")
    assert it.files == before


async def test_what_is_done_is_not_read_again(it: RotationBench) -> None:
    for value, rotated in (("a", "a"), ("", "a"), ("", "")):
        asked = asked_of(value)
        status = asked.status.model_copy(update={"rotated_keys": rotated})
        assert await it.advance(asked.model_copy(update={"status": status})) == StepOutcome(fact=rotated)
    assert KEYS not in it.bench.api.objects


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (StepReport(StepState.DONE, outcome=StepOutcome(fact="a")), "a"),
        (StepReport(StepState.WAITING, "x", StepOutcome(waits_for="x")), None),
        (StepReport(StepState.BLOCKED, "x"), "before"),
        (StepReport(StepState.FAILED, "x"), "before"),
        (None, "before"),
    ],
)
def test_the_status_has_the_value_once_its_rotation_is_over(
    report: StepReport | None, expected: str | None
) -> None:
    assert rotated_keys("before", report) == expected


async def test_keys_that_are_made_with_the_annotation_there_are_not_rotated(it: RotationBench) -> None:
    await it.make_keys("a")
    assert await it.advance() == StepOutcome(fact="a")
    it.all_read()
    assert "1 of 4" in (await it.advance(asked_of("b"))).waits_for


@pytest.mark.parametrize(
    ("spec", "spoil", "why"),
    [
        ({}, lambda it: it.bench.pod.keys.clear(), "slurmctld does not report its keys: its image is older"),
        ({}, lambda it: setattr(it.bench.pod, "answers", False), "supervisor does not answer"),
        ({}, lambda it: setattr(it.bench.slurm, "nodes_now", (node(),)), "old-0 does not report its keys"),
        (
            {"slurmKeyRef": {"name": "own", "key": "slurm.key"}},
            lambda _: None,
            "one key alone, of Secret own",
        ),
        (
            {"external": True, "externalConfig": {"host": "ctl", "port": 6817}},
            lambda _: None,
            "slurmctld runs elsewhere",
        ),
    ],
)
async def test_a_daemon_that_knows_one_key_alone_refuses_the_rotation(
    it: RotationBench, spec: dict[str, Any], spoil: Callable[[RotationBench], Any], why: str
) -> None:
    await it.make_keys()
    it.all_read()
    spoil(it)
    before = it.files
    with pytest.raises(StepFailed, match=why):
        await it.advance(asked_of(**spec))
    assert it.files == before


def node() -> RestNode:
    return RestNode.model_validate({"name": "old-0", "state": ["IDLE"]})


async def test_a_login_pod_has_the_time_of_its_kubelet(it: RotationBench) -> None:
    await it.make_keys()
    it.all_read()
    await it.advance()
    it.all_read()
    assert "login-0 reads them within 120 s" in (await it.advance()).waits_for
    it.bench.clock.now += LONGEST_CREDENTIAL
    await it.advance()
    assert it.move is RotationMove.SIGNS


async def test_pods_are_listed_once_for_each_change_of_the_keys(it: RotationBench) -> None:
    """And not every two seconds, while one node is behind."""
    await it.make_keys()
    it.all_read()
    readers = KeyReaders(it.bench.context, it.bench.controllers._reconfigurations)
    world = it.bench.world(asked_of())

    def listings() -> int:
        return sum(str(request) == "list Pod" for request in it.bench.api.requests)

    for _ in range(5):
        await readers.unread(world, it.files)
    assert listings() == 1
    await it.advance()
    before = listings()
    for _ in range(5):
        await readers.unread(world, it.files)
    assert listings() == before + 1
    assert it.bench.api.objects[WORKER]["metadata"]["annotations"][names.ANNOTATION_KEYS] == jwks_digest(
        it.files
    )


async def test_a_login_pod_that_reads_keys_once_is_looked_at_until_it_is_gone(it: RotationBench) -> None:
    await it.make_keys()
    body = it.bench.api.objects[LOGIN]
    containers = [{"name": "sack", "command": ["/usr/sbin/sackd", "-D"]}]
    it.bench.api.put(LOGIN, {**body, "spec": {"containers": containers}})
    readers = KeyReaders(it.bench.context, it.bench.controllers._reconfigurations)
    world = it.bench.world(asked_of())
    assert any("login-0" in line for line in await readers.unread(world, it.files))
    it.bench.api.remove(LOGIN)
    assert not any("login-0" in line for line in await readers.unread(world, it.files))


async def test_a_sackd_that_reads_keys_once_refuses_the_rotation(it: RotationBench) -> None:
    await it.make_keys()
    it.all_read()
    body = it.bench.api.objects[LOGIN]
    containers = [{"name": "sack", "command": ["/usr/sbin/sackd", "-D"]}]
    it.bench.api.put(LOGIN, {**body, "spec": {"containers": containers}})
    with pytest.raises(StepFailed, match="the sackd of login-0 reads keys at its start only"):
        await it.advance()


async def test_a_write_of_somebody_else_at_the_same_moment_is_not_overwritten(it: RotationBench) -> None:
    await it.make_keys()
    it.all_read()
    found = it.bench.controllers._secrets
    stale = it.files
    await it.advance()
    files, did = await found.ensure(
        asked_of(), "slurm-keys", lambda: {"slurm.jwks": b"x"}, lambda now: now == stale
    )
    assert (did, files["slurm.jwks"]) == ("", it.files["slurm.jwks"])


async def test_the_operator_is_served_while_slurmctld_changes_its_key_of_tokens() -> None:
    bench = Bench(ScriptedSlurm(), Pod())
    connections, place = bench.controllers._connections, ("hpc", "slurm")
    authority = ClusterAuthority.make("slurm.hpc", bench.clock())

    async def key_in_use() -> bytes:
        client = connections.client_of(place)
        assert client is not None
        token = await client._token()
        return next(key for key in (b"new", b"key") if token == signed_token(key, "slurm", bench.clock()))

    connections.connect(place, "10.96.0.2", authority, (b"new", b"key"))
    assert await key_in_use() == b"key"  # slurmctld has not read the new one
    connections.token_refused(place)
    assert await key_in_use() == b"new"
    connections.connect(place, "10.96.0.2", authority, (b"new",))
    connections.token_refused(place)
    assert await key_in_use() == b"new"


async def test_the_operator_has_both_keys_of_tokens_until_the_rotation_is_over(it: RotationBench) -> None:
    await it.make_keys()
    assert await it.bench.controllers._token_keys(asked_of()) == ((it.files[JWT],), "")
    data = {**it.bench.api.objects[KEYS]["data"], FORMER_JWT: base64.b64encode(b"former").decode()}
    it.bench.api.put(KEYS, {**it.bench.api.objects[KEYS], "data": data})
    keys, _ = await it.bench.controllers._token_keys(asked_of())
    assert keys == (it.files[JWT], b"former")
