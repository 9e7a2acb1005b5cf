"""The client against a real server: what it sends, what it makes of answers, and what it raises."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redbox.server.certificates import make_authority
from redbox_api.client import RedboxClient
from redbox_api.errors import (
    Busy,
    Conflict,
    NoSuchJob,
    NotAccepted,
    NotAllowed,
    NotAuthenticated,
    TooOld,
    Unreachable,
    refusal,
)
from redbox_api.job_parts import Container, RegistryCredentials
from redbox_api.models import JobRequest, OwnerRef, Phase, Problem
from redbox_api.pod_parts import PodProgram
from redbox_shared.wire import PROBLEMS
from tests.redbox.http.fakes import SCRIPT
from tests.redbox.http.harness import Stand, standing
from tests.redbox.jobs.submit_manners import REFUSED, UNAVAILABLE

JOB = JobRequest(batch=SCRIPT)
ALICE = OwnerRef(cluster="local", namespace="users", account="alice")


async def test_a_job_from_its_submit_to_its_cancel(stand: Stand, alice: RedboxClient) -> None:
    job = await alice.put_job("k1", JOB)
    assert (job.key, job.user, job.phase) == ("k1", "alice", Phase.PENDING)
    assert (await alice.put_job("k1", JOB)).job_id == job.job_id
    assert (await alice.get_job("k1")).job_id == job.job_id
    stand.slurm.expected_start_at = datetime(2026, 11, 25, 14, 5, tzinfo=UTC)
    assert (await alice.expected_start("k1")).starts_at == stand.slurm.expected_start_at
    await alice.act_on_job("k1", "hold")
    cancelled = await alice.cancel_job("k1")
    assert [one.cancel_requested for one in cancelled] == [True]
    await stand.until("k1", lambda seen: seen["phase"] == "Cancelled")


async def test_exact_values_and_secrets_arrive_as_they_are(stand: Stand, alice: RedboxClient) -> None:
    login = RegistryCredentials.model_validate({"username": "u", "password": "p,ä\n$'\""})
    env = {"A": "comma,", "B": "new\nline", "C": "quote's \"", "D": "ünï"}
    await alice.put_job("k1", JobRequest(container=Container(image="a.sif", registry=login), env=env))
    arrived = stand.slurm.processes[-1].submission.request
    assert arrived.env == env
    assert arrived.container is not None
    assert arrived.container.registry == login
    assert login.password.get_secret_value() not in repr(arrived)


async def test_a_pod_arrives_as_it_is(stand: Stand, alice: RedboxClient) -> None:
    content = bytes(range(256)) * 3
    pod = PodProgram.model_validate(
        {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "containers": [
                {
                    "name": "c",
                    "image": "docker://x",
                    "args": [],
                    "env": [{"name": "EMPTY", "value": ""}, {"name": "IP", "fromNode": "podIP"}],
                    "mounts": [{"volume": "v", "mountPath": "/v"}],
                    "livenessProbe": {"tcpPort": 80},
                }
            ],
            "volumes": [{"name": "v", "files": {"files": [{"path": "a/b", "content": b64encode(content)}]}}],
            "registries": {"ghcr.io": {"username": "u", "password": "hidden"}},
        }
    )
    await alice.put_job("k1", JobRequest(pod=pod))
    arrived = stand.slurm.processes[-1].submission.request
    assert arrived.pod == pod
    assert arrived.pod is not None
    assert arrived.pod.volumes[0].files is not None
    assert arrived.pod.volumes[0].files.files[0].content == content
    assert "hidden" not in repr(arrived)


async def test_a_running_pod_is_cancelled_at_once_by_force(stand: Stand, alice: RedboxClient) -> None:
    containers = [{"name": "c", "image": "docker://x"}]
    pod = PodProgram.model_validate({"name": "p", "namespace": "n", "uid": "u", "containers": containers})
    job = await alice.put_job("k1", JobRequest(pod=pod))
    assert job.job_id is not None
    stand.slurm.put(replace(stand.slurm.jobs[job.job_id], state="RUNNING"))
    await stand.until("k1", lambda seen: seen["phase"] == "Running")
    await alice.cancel_job("k1")
    await alice.cancel_job("k1", force=True)
    await stand.until("k1", lambda seen: seen["phase"] == "Cancelled")


async def test_a_list_is_all_its_pages(stand: Stand, alice: RedboxClient) -> None:
    for number in range(5):
        await stand.submitted(f"k{number}")
    pages = [page async for page in alice.list_jobs(limit=2)]
    assert [job.key for page in pages for job in page.items] == ["k0", "k1", "k2", "k3", "k4"]
    assert len({page.revision for page in pages}) == 1


async def test_a_watch_goes_on_where_the_list_ended(stand: Stand, alice: RedboxClient) -> None:
    job_id = await stand.submitted("k1")
    await stand.until("k1", lambda job: job.get("state"))
    revision = [page async for page in alice.list_jobs()][-1].revision
    stand.slurm.start(job_id)
    job = None
    async for event in alice.watch_jobs(revision):
        if job := event.job:
            break
    assert job is not None
    assert (job.key, job.phase) == ("k1", Phase.RUNNING)


async def test_a_watch_of_partitions_goes_on_where_the_list_ended(stand: Stand) -> None:
    async with stand.client("reader") as reader:
        revision = (await reader.partitions()).revision
        with pytest.raises(TooOld):
            await anext(reader.watch_partitions("000000000000.1"))
        async for event in reader.watch_partitions(revision):
            assert event.type == "bookmark"
            break


async def test_an_operator_names_the_owner(stand: Stand) -> None:
    await stand.submitted("k1")
    async with stand.client("operator") as operator:
        whoami = await operator.whoami()
        assert (whoami.user, "operator" in whoami.roles) == (None, True)
        assert (await operator.get_job("k1", owner=ALICE)).owner == ALICE
        assert len(await operator.cancel_job("k1", all_attempts=True, owner=ALICE)) == 1


async def test_what_the_cluster_is(stand: Stand, alice: RedboxClient) -> None:
    assert (await alice.cluster()).name == "hpc1"
    assert (await alice.partitions()).items == []
    assert (await alice.whoami()).user == "alice"
    assert (await alice.check(JOB)).valid
    async with stand.client("bob") as bob:
        assert (await bob.whoami()).owner.account == "bob"


async def test_files_are_found(stand: Stand, alice: RedboxClient) -> None:
    await stand.submitted("k1")
    (stand.home / "out.dat").write_bytes(b"12")
    found = await alice.list_files("k1", "*.dat")
    assert [(entry.path, entry.size) for entry in found.items] == [("out.dat", 2)]


async def test_each_refusal_is_its_own_exception(stand: Stand, alice: RedboxClient) -> None:
    await stand.submitted("k1", batch=SCRIPT + "other\n")
    with pytest.raises(Conflict, match="another request"):
        await alice.put_job("k1", JOB)
    with pytest.raises(NoSuchJob):
        await alice.get_job("k2")
    with pytest.raises(TooOld):
        await anext(alice.watch_jobs("nonsense"))
    stand.slurm.manners.append(REFUSED)
    with pytest.raises(NotAccepted, match="invalid partition specified: nowhere") as refused:
        await alice.put_job("k3", JOB)
    assert not refused.value.retry
    stand.slurm.manners.append(UNAVAILABLE)
    with pytest.raises(Busy) as busy:
        await alice.put_job("k3", JOB)
    assert busy.value.retry
    assert busy.value.retry_after
    async with stand.client("reader") as reader:
        with pytest.raises(NotAllowed):
            await reader.get_job("k1")
    stand.tokens["stranger"] = "nonsense"
    async with stand.client("stranger") as stranger:
        with pytest.raises(NotAuthenticated):
            await stranger.whoami()


async def test_too_many_submits_say_when_to_come_again() -> None:
    async with standing(submits_per_second=0.01, submit_burst=1) as stand, stand.client() as alice:
        await alice.put_job("k1", JOB)
        with pytest.raises(Busy) as busy:
            await alice.put_job("k2", JOB)
    assert busy.value.problem.status == 429
    assert busy.value.retry_after


async def test_a_token_is_asked_for_before_each_request(stand: Stand) -> None:
    given = iter(["nonsense", stand.tokens["bob"]])

    async def rotating() -> str:
        return next(given)

    async with RedboxClient(stand.endpoint, token=rotating, ca_bundle=stand.authority) as client:
        with pytest.raises(NotAuthenticated):
            await client.whoami()
        assert (await client.whoami()).user == "bob"


async def test_a_server_of_another_ca_is_not_spoken_to(stand: Stand) -> None:
    another = make_authority("another", stand.slurm.clock.now()).certificate.decode()

    async def token() -> str:
        return stand.tokens["bob"]

    async with RedboxClient(stand.endpoint, token=token, ca_bundle=another) as client:
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.whoami()


async def test_where_nobody_listens_nobody_is_reached(tmp_path: Path) -> None:
    async with RedboxClient("http://redbox", socket=str(tmp_path / "none")) as client:
        with pytest.raises(Unreachable):
            await client.whoami()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", b"HTTP/1.1 200 OK\r\n", b"?"]
)
async def test_an_answer_that_is_none_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    path = str(tmp_path / "s")
    async with (
        await asyncio.start_unix_server(respond, path),
        RedboxClient("http://redbox", socket=path) as client,
    ):
        with pytest.raises(Unreachable):
            await client.whoami()


NEWER = b'{"type": "job", "revision": "e.1", "job": {"phase": "Dreaming"}}\n'


@pytest.mark.parametrize("line", [b"<html>a proxy in between</html>", b'{"type": "jo', NEWER, b"[" * 500])
async def test_a_watch_that_tells_nonsense_is_no_answer(tmp_path: Path, line: bytes) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + line)
        writer.close()

    path = str(tmp_path / "s")
    async with (
        await asyncio.start_unix_server(respond, path),
        RedboxClient("http://redbox", socket=path) as client,
    ):
        for watch in (client.watch_jobs("e.0"), client.watch_partitions("e.0")):
            with pytest.raises(Unreachable, match="did not come from red-box: it is not a"):
                await anext(watch)


STRANGE = [b"<html>default backend - 404</html>", b"", b"[]", b'{"code": 404, "message": "no route"}']
PLAIN = b'{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no route"}'


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 409, 410, 413, 418, 422, 429, 502, 503])
@pytest.mark.parametrize("body", [*STRANGE, PLAIN])
def test_what_a_stranger_answers_is_not_taken_for_red_boxs_word(status: int, body: bytes) -> None:
    made = refusal(status, body, "1")
    assert type(made) is Unreachable
    assert re.match(f"HTTP {status}: the response did not come from red-box", str(made))


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("5", 5.0), ("86400", 600.0), ("9" * 500, None), ("\u00b2", None), ("soon", None), (None, None)],
)
def test_how_long_to_wait_is_a_sensible_number_or_not_said(given: str | None, seconds: float | None) -> None:
    problem = Problem(type=f"{PROBLEMS}unavailable", title="Not now", status=503, detail="later", retry=True)
    made = refusal(503, problem.model_dump_json(by_alias=True).encode(), given)
    assert isinstance(made, Busy)
    assert made.retry_after == seconds


COMMENT = "# Universität Zürich\n"


@pytest.mark.parametrize("encoding", ["", "utf-8", "utf-8-sig", "latin-1"])
async def test_a_bundle_may_have_comments_in_any_script(stand: Stand, encoding: str) -> None:
    async def token() -> str:
        return stand.tokens["bob"]

    text = COMMENT + stand.authority
    bundle = text.encode(encoding) if encoding else text
    async with RedboxClient(stand.endpoint, token=token, ca_bundle=bundle) as client:
        assert (await client.whoami()).user == "bob"


@pytest.mark.parametrize("bundle", ["ä", "ä".encode(), b"\xff\xfe\n"])
def test_a_bundle_of_nothing_else_is_not_taken_for_none(bundle: str | bytes) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        RedboxClient("https://redbox.example", ca_bundle=bundle)
