"""How the containers of `kubectl debug` are begun: sessions at a red-box over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web

from redbox_api.client import RedboxClient
from redbox_api.models import Job, Phase
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection
from redbox_resourced.pods.ephemeral import starts
from redbox_resourced.pods.ephemeral.starts import EphemeralStarts
from redbox_resourced.pods.pod_view import BoundPod, EphemeralProblem, read_pod
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.translation.pod import translate
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster
from tests.resourced.kubelet.sessions.harness import ADDRESS, SUCCESS, FakeRedbox, RedboxSide, _listen
from tests.resourced.pods.factories import RUNS, WAITS, died, manifest, pod_job, report

POD = ResourcePath(kinds.POD, "train", "alice")
RUNNING = pod_job(pod=report(main=RUNS))


class Stage:
    """One pod, its red-box, and what begins its containers."""

    def __init__(self, redbox: FakeRedbox, connection: ClusterConnection) -> None:
        self.redbox = redbox
        self.connection = connection
        self.api = FakeApiServer()
        self.now = 0.0
        self.starts = self.new_starts()
        redbox.script = self._answer
        self.answer: dict[str, Any] = SUCCESS

    def new_starts(self) -> EphemeralStarts:
        submitter = PodSubmitter(self.api.client, translate)
        return EphemeralStarts(self.api.client, submitter, lambda: self.now)

    async def _answer(self, side: RedboxSide) -> None:
        await side.end(self.answer)

    def add(self, *added: dict[str, Any], status: dict[str, Any] | None = None) -> BoundPod:
        body = manifest(status or {"phase": "Running"}, ephemeralContainers=list(added))
        self.api.put(POD, body)
        return read_pod(body)

    async def begin(
        self, pod: BoundPod, job: Job = RUNNING
    ) -> tuple[dict[str, EphemeralProblem], float | None]:
        shown, after_s = await self.starts.begin(pod, job, self.connection)
        assert shown.details is not None
        return dict(shown.details.ephemeral_problems), after_s

    @property
    def begun(self) -> list[dict[str, Any]]:
        return [side.command["ephemeral"] for side in self.redbox.sides]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with _stage() as stage:
        yield stage


@asynccontextmanager
async def _stage() -> AsyncIterator[Stage]:
    redbox = FakeRedbox(pod_job())
    runner = web.AppRunner(redbox.application())
    port = await _listen(runner)

    async def token() -> str:
        return "resourced"

    async with RedboxClient(f"http://{ADDRESS}:{port}", token=token) as client:
        yield Stage(redbox, ClusterConnection(slurm_cluster(), client, cast("Any", None)))
    await runner.cleanup()


def debugger(name: str = "debugger", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1", "command": ["sh"], **fields}


async def test_each_is_begun_in_the_pods_job_by_the_pods_own_account(stage: Stage) -> None:
    pod = stage.add(debugger(targetContainerName="main", stdin=True, tty=True), debugger("second"))
    problems, after_s = await stage.begin(pod)
    assert (problems, after_s is None) == ({}, False)  # until the report has them
    first, second = stage.begun
    assert (first["name"], first["target"], first["tty"]) == ("debugger", "main", True)
    assert (second["name"], second["target"], second["image"]) == (
        "second",
        None,
        "docker://docker.io/library/busybox:1",
    )
    (side, _) = stage.redbox.sides
    assert (side.path, side.query["attempt"]) == ("/v1/jobs/pod-uid/exec", "1")
    assert "resourced" not in side.token


async def test_what_has_begun_is_not_begun_again_by_anybody(stage: Stage) -> None:
    pod = stage.add(debugger())
    for state in (WAITS, RUNS, died(1)):
        job = pod_job(pod=report(main=RUNS, debugger=state))
        assert await stage.begin(pod, job) == ({}, None)
    assert stage.begun == []


@pytest.mark.parametrize(
    "job",
    [
        pod_job(Phase.PENDING),
        pod_job(),
        pod_job(pod=report(main=died(0), done=True)),
        pod_job(Phase.FAILED, report(main=RUNS)),
    ],
)
async def test_it_waits_as_long_as_no_runner_takes_orders(stage: Stage, job: Job) -> None:
    assert await stage.begin(stage.add(debugger()), job) == ({}, None)
    assert stage.begun == []


async def test_a_refusal_is_final_for_this_resourced_and_by_the_status_for_the_next(stage: Stage) -> None:
    stage.answer = {"status": "Failure", "reason": "Refused", "message": "the pod is ending"}
    pod = stage.add(debugger())
    for _ in range(2):
        problems, after_s = await stage.begin(pod)
        assert problems == {"debugger": EphemeralProblem("Refused", "the pod is ending", is_final=True)}
        assert after_s is None
    assert len(stage.begun) == 1
    stage.starts = stage.new_starts()
    row = {"name": "debugger", "state": {"terminated": {"exitCode": 128, "reason": "Refused"}}}
    shown = stage.add(debugger(), status={"phase": "Running", "ephemeralContainerStatuses": [row]})
    assert await stage.begin(shown) == ({}, None)
    assert len(stage.begun) == 1


async def test_what_no_job_can_have_is_refused_before_red_box_is_asked(stage: Stage) -> None:
    problems, after_s = await stage.begin(stage.add(debugger(securityContext={"privileged": True})))
    assert (problems["debugger"].reason, problems["debugger"].is_final, after_s) == (
        "Unsupported",
        True,
        None,
    )
    assert "privileged" in problems["debugger"].message
    assert stage.begun == []


async def test_where_sessions_are_off_it_says_so_and_has_ended(stage: Stage) -> None:
    body = {
        "type": "https://redbox.dev/problems/forbidden",
        "title": "No",
        "status": 403,
        "detail": "Sessions are off",
    }
    stage.redbox.refusal = web.json_response(body, status=403, content_type="application/problem+json")
    problems, after_s = await stage.begin(stage.add(debugger()))
    assert problems["debugger"].is_final
    assert "Sessions are off" in problems["debugger"].message
    assert after_s is None


async def test_what_may_work_later_is_tried_again_after_a_pause_and_says_why_it_waits(stage: Stage) -> None:
    stage.answer = {"status": "Failure", "reason": "CannotStart", "message": "it has just begun"}
    pod = stage.add(debugger())
    waiting = {"debugger": EphemeralProblem("ContainerCreating", "it has just begun")}
    for _ in range(3):  # other changes of the pod
        problems, after_s = await stage.begin(pod)
        assert problems == waiting
        assert after_s is not None
    assert len(stage.begun) == 1
    details = stage.starts.shown(pod).details
    assert details is not None
    assert details.ephemeral_problems == waiting  # its status does not lose them before the next start
    stage.answer = SUCCESS
    stage.now += 100
    assert (await stage.begin(pod))[0] == {}
    assert len(stage.begun) == 2
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    waits = stage.add(debugger("second", env=[{"name": "A", "valueFrom": secret}]))
    problems, after_s = await stage.begin(waits)
    assert problems["second"].reason == "CreateContainerConfigError"
    assert after_s is not None


async def test_a_start_waits_for_others_of_its_namespace_no_longer_than_for_red_box(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "BEGIN_S", 0.05)
    pod = stage.add(debugger())
    async with AsyncExitStack() as held, asyncio.timeout(60):
        for _ in range(starts.OF_A_NAMESPACE):
            await held.enter_async_context(stage.starts._slots.of(pod.namespace))
        problems, after_s = await stage.begin(pod)
    assert problems["debugger"].message == "red-box did not answer in time"
    assert (stage.begun, after_s is None) == ([], False)


async def test_an_answer_that_was_lost_is_asked_for_again(stage: Stage) -> None:
    pod = stage.add(debugger())
    for _ in range(2):  # as after a restart of red-box, which then reads no report of it
        await stage.begin(pod)
        stage.now += 100
    assert len(stage.begun) == 2  # the runner begins it once


async def test_a_pod_of_the_same_name_gets_none_of_it(stage: Stage) -> None:
    pod = stage.add(debugger())
    stage.api.put(POD, manifest({"phase": "Running"}, metadata={"uid": "another"}, ephemeralContainers=[]))
    problems, _ = await stage.begin(pod)
    assert "does not exist any more" in problems["debugger"].message
    assert stage.begun == []


async def test_nothing_is_kept_of_a_pod_that_is_gone(stage: Stage) -> None:
    stage.answer = {"status": "Failure", "reason": "Refused", "message": "no"}
    pod = stage.add(debugger())
    await stage.begin(pod)
    stage.starts.forget(pod)
    assert stage.starts._tries == {}
