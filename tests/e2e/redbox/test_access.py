"""Nobody sees, reads or touches another's job, log or file: a table of attempts, by each transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import NotAccepted, NotAllowed, Refused
from redbox_api.models import OwnerRef, Phase
from redbox_bed.bed import Bed
from tests.e2e.harness.redbox_jobs import Reader, ended, log_of, new_key, script, started, submit
from tests.e2e.harness.redbox_server import CLUSTER, RedboxServer, running

SECRET = "the-secret-of-alice"
TRANSPORTS = {
    "sudo": {"transport": "sudo"},
    "ssh": {"transport": "ssh"},
    "self": {"transport": "self", "user": "alice"},
}
OK, NOT_AUTHENTICATED, FORBIDDEN, NOT_FOUND, NOT_ACCEPTED = 200, 401, 403, 404, 422


@dataclass(frozen=True)
class Scene:
    """A red-box with a running job of alice's, and one of bob's in whose directory he lays his traps."""

    server: RedboxServer
    key: str
    job_id: str
    directory: str
    bobs: str
    bobs_directory: str
    http: httpx.Client

    @property
    def secret(self) -> str:
        return f"{self.directory}/secret"


@pytest.fixture(scope="module", params=TRANSPORTS)
def scene(bed: Bed, request: pytest.FixtureRequest) -> Iterator[Scene]:
    often = {"jobs": {"bookmark_every_s": 0.5}}
    with running(bed, sections=often, **TRANSPORTS[request.param]) as server:
        scene = asyncio.run(set_up(server))
        with scene.http:
            yield scene


async def set_up(server: RedboxServer) -> Scene:
    async with server.client_of_account("alices") as alice, server.client_of("bob") as bob:
        key = await submit(
            alice,
            f"umask 077; echo {SECRET} >secret; chmod 700 .; echo {SECRET}; exec sleep 600",
            name="of-alice",
            output="private.out",
        )
        job = await started(alice, key)
        await Reader(alice, key).until_begins(SECRET.encode())
        directory = str(job.working_directory)
        bobs, bobs_directory = "", ""
        if server.transport != "self":
            bobs = await submit(bob, "exec sleep 600", output="slurm.out")
            bobs_directory = str((await started(bob, bobs)).working_directory)
            links = f"ln -s {directory}/secret link; ln -s {directory} directory; ln -sf ../x up"
            server.login.run("sh", "-c", f"cd {bobs_directory}; {links}", user="bob")
        http = httpx.Client(base_url=server.endpoint, verify=server.trust(), timeout=60)
        return Scene(server, key, str(job.job_id), directory, bobs, bobs_directory, http)


@pytest.fixture
async def alice(scene: Scene) -> AsyncIterator[RedboxClient]:
    async with scene.server.client_of_account("alices") as client:
        yield client


@pytest.fixture
async def bob(scene: Scene) -> AsyncIterator[RedboxClient]:
    async with scene.server.client_of("bob") as client:
        yield client


@pytest.fixture(autouse=True)
def alices_job_is_as_it_was(scene: Scene) -> Iterator[None]:
    """Whatever was attempted."""
    yield
    job = attempt(scene, scene.server.cluster.token("alices"), "GET", f"/v1/jobs/{scene.key}").json()
    assert (job["phase"], job["jobID"], job["cancelRequested"]) == (Phase.RUNNING, scene.job_id, False)
    assert on_the_machine(scene, scene.secret).read_text() == f"{SECRET}\n"
    assert not on_the_machine(scene, f"{scene.directory}/new").exists()


def on_the_machine(scene: Scene, path: str) -> Path:
    """A file under /home, as the machine itself sees it."""
    return scene.server.bed.places.home(scene.server.login.spec.cluster) / path.removeprefix("/home/")


def attempt(scene: Scene, token: str | None, method: str, path: str, **options: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return scene.http.request(method, path, headers=headers, **options)


def said(answer: httpx.Response) -> dict[str, Any]:
    """All but the request's own id."""
    document: dict[str, Any] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    return {name: value for name, value in document.items() if name != "requestId"}


def assert_tells_nothing(scene: Scene, answer: httpx.Response) -> None:
    for word in (SECRET, "private.out", f'"{scene.job_id}"'):
        assert word not in answer.text


# ---------------------------------------------------------------------------------- another's job, by its key
ON_A_JOB = [
    ("GET", ""),
    ("GET", "?namespace=alices&account=default"),
    ("GET", "/logs/stdout"),
    ("GET", "/logs/stdout?follow=true"),
    ("GET", "/logs/stderr"),
    ("GET", "/files?glob=*"),
    ("GET", "/files/secret"),
    ("GET", "/archive?glob=*"),
    ("PUT", "/files/secret"),
    ("PUT", "/files/new"),
    ("DELETE", ""),
    ("DELETE", "?allAttempts=true"),
    ("DELETE", "?namespace=alices&account=default"),
    ("POST", "/hold"),
    ("POST", "/release"),
    ("POST", "/requeue"),
    ("POST", "/signal?signal=KILL"),
]


@pytest.mark.parametrize("who", ["bob", "alice by another name", "bobs account"])
@pytest.mark.parametrize(("method", "path"), ON_A_JOB, ids=str)
def test_anothers_job_is_as_if_it_were_not_there(scene: Scene, who: str, method: str, path: str) -> None:
    tokens = {
        "bob": scene.server.token_of("bob"),
        "alice by another name": scene.server.token_of("alice"),
        "bobs account": scene.server.cluster.token("bobs"),
    }
    answer = attempt(scene, tokens[who], method, f"/v1/jobs/{scene.key}{path}")
    no_job = attempt(scene, tokens[who], method, f"/v1/jobs/{new_key()}{path}")
    assert answer.status_code == NOT_FOUND, answer.text
    assert said(answer) == said(no_job)
    assert_tells_nothing(scene, answer)


@pytest.mark.parametrize(("method", "path"), ON_A_JOB, ids=str)
def test_who_is_nobody_here_is_told_so_and_nothing_else(scene: Scene, method: str, path: str) -> None:
    for namespace, account in (("nobodys", "default"), ("alices", "another"), ("redbox-system", "default")):
        token = scene.server.cluster.token(namespace, account)
        answer = attempt(scene, token, method, f"/v1/jobs/{scene.key}{path}")
        assert answer.status_code == FORBIDDEN
        assert f"system:serviceaccount:{namespace}:{account}" in said(answer)["detail"]
        assert_tells_nothing(scene, answer)
    bad: list[str | None] = [None, "nonsense", scene.server.token_of("bob")[:-2] + "xx"]
    for wrong in bad:
        answer = attempt(scene, wrong, method, f"/v1/jobs/{scene.key}{path}")
        assert answer.status_code == NOT_AUTHENTICATED
        assert_tells_nothing(scene, answer)


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for method, path in ON_A_JOB if method != "DELETE" and path], ids=str
)
def test_an_operator_reads_no_log_and_no_file_and_acts_on_nothing(
    scene: Scene, method: str, path: str
) -> None:
    token = scene.server.cluster.token("redbox-system", "redbox-operator")
    if "?namespace" in path:
        assert (attempt(scene, token, method, f"/v1/jobs/{scene.key}{path}")).is_success
        return
    answer = attempt(scene, token, method, f"/v1/jobs/{scene.key}{path}")
    assert answer.status_code == FORBIDDEN
    assert_tells_nothing(scene, answer)


async def test_an_operator_sees_its_clusters_jobs_and_no_others(scene: Scene) -> None:
    async with scene.server.client_of_account("redbox-system", "redbox-operator") as operator:
        seen = [job async for page in operator.list_jobs() for job in page.items]
        assert [job.key for job in seen] == [scene.key]
        if scene.bobs:
            owner = OwnerRef(cluster=CLUSTER, namespace="users", account="bob")
            with pytest.raises(Refused):
                await operator.get_job(scene.bobs, owner=owner)
        with pytest.raises(NotAllowed):
            await submit(operator, "true")


async def test_lists_and_watches_show_ones_own_jobs_only(scene: Scene, bob: RedboxClient) -> None:
    listed = [job.key async for page in bob.list_jobs() for job in page.items]
    assert listed == [scene.bobs] * bool(scene.bobs)
    async with asyncio.timeout(30):
        async for event in bob.watch_jobs():
            assert event.job is None or event.job.key == scene.bobs
            if event.type == "bookmark":
                break


async def test_two_owners_may_have_one_key_and_see_their_own_job(scene: Scene, alice: RedboxClient) -> None:
    key = new_key()
    async with scene.server.client_of("alice") as same_user:
        one = await alice.put_job(key, script("echo one"))
        other = await same_user.put_job(key, script("echo other"))
        assert one.job_id != other.job_id
        for client, words in ((alice, "one\n"), (same_user, "other\n")):
            await ended(client, key)
            assert await log_of(client, key) == words


# ---------------------------------------------------------------------------------- another's files, by path
for_all_users = pytest.mark.parametrize("scene", ["sudo", "ssh"], indirect=True)


@for_all_users
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/files/{absolute}", FORBIDDEN),
        ("GET", "/files/{up}", FORBIDDEN),
        ("GET", "/files/link", FORBIDDEN),
        ("GET", "/files/directory%2Fsecret", FORBIDDEN),
        ("GET", "/files/directory%2Fno-such-file", FORBIDDEN),
        ("GET", "/files?glob=directory/*", None),
        ("GET", "/files?glob=%2E%2E/*", NOT_ACCEPTED),
        ("GET", "/files?glob=/home/alice/**", NOT_ACCEPTED),
        ("GET", "/archive?glob=directory/*", NOT_FOUND),
        ("GET", "/archive?glob=link", None),
        ("GET", "/archive?glob=**", None),
        ("PUT", "/files/{absolute}", FORBIDDEN),
        ("PUT", "/files/{up}", FORBIDDEN),
        ("PUT", "/files/directory%2Fsecret", FORBIDDEN),
        ("PUT", "/files/directory%2Fnew", FORBIDDEN),
    ],
)
def test_a_path_leads_no_further_than_the_users_own_rights(
    scene: Scene, method: str, path: str, status: int | None
) -> None:
    slashes = scene.secret.count("/") + 2
    path = path.format(
        absolute=scene.secret.replace("/", "%2F"),
        up="%2E%2E%2F" * slashes + scene.secret[1:].replace("/", "%2F"),
    )
    token = scene.server.token_of("bob")
    answer = attempt(scene, token, method, f"/v1/jobs/{scene.bobs}{path}")
    assert answer.status_code == (status or OK), answer.text
    assert_tells_nothing(scene, answer)


@for_all_users
def test_what_bob_puts_under_his_link_replaces_the_link(scene: Scene) -> None:
    scene.server.login.run("ln", "-s", scene.secret, f"{scene.bobs_directory}/replaced", user="bob")
    path = f"/v1/jobs/{scene.bobs}/files/replaced"
    answer = attempt(scene, scene.server.token_of("bob"), "PUT", path, content=b"bob's own")
    assert answer.is_success
    assert on_the_machine(scene, f"{scene.bobs_directory}/replaced").read_bytes() == b"bob's own"


@for_all_users
@pytest.mark.parametrize("follow", ["false", "true"])
async def test_a_log_that_is_a_link_is_read_with_its_owners_rights(
    scene: Scene, bob: RedboxClient, follow: str
) -> None:
    key = await submit(bob, "exec sleep 600", output="stays.out")
    directory = (await started(bob, key)).working_directory
    scene.server.login.run("ln", "-sf", scene.secret, f"{directory}/stays.out", user="bob")
    path = f"/v1/jobs/{key}/logs/stdout?follow={follow}"
    answer = attempt(scene, scene.server.token_of("bob"), "GET", path)
    await bob.cancel_job(key)
    assert answer.status_code == FORBIDDEN
    assert "Permission denied" in said(answer)["detail"]
    assert SECRET not in answer.text


@for_all_users
async def test_bob_can_neither_work_in_alices_directory_nor_wait_for_her_job_by_its_key(
    scene: Scene, bob: RedboxClient
) -> None:
    for fields in ({"workingDirectory": scene.directory}, {"workingDirectory": f"{scene.directory}/below"}):
        with pytest.raises(NotAccepted, match="Permission denied"):
            await submit(bob, "cat secret", **fields)
    with pytest.raises(NotAccepted, match=scene.key):
        await submit(bob, "true", dependencies=[{"key": scene.key, "type": "afterany"}])


@pytest.mark.parametrize("scene", ["self"], indirect=True)
@pytest.mark.usefixtures("scene")
async def test_a_red_box_of_alices_own_acts_for_nobody_else(bob: RedboxClient) -> None:
    with pytest.raises(Refused, match="cannot act for another user") as refused:
        await submit(bob, "id")
    assert not refused.value.retry
