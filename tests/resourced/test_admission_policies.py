"""No right is used unless the API server was seen to limit it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redbox_clusters.redbox_token import ServiceAccountName
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ApiUnreachable, Object, ObjectClient, ResourcePath
from redbox_resourced import admission_policies
from redbox_resourced.admission_policies import (
    PODS_MISSING,
    SLICES_MISSING,
    TOKENS_MISSING,
    VOLUMES_MISSING,
    AdmissionPolicy,
    pod_policy,
    slice_policy,
    token_policy,
    volume_policy,
)
from tests.kube.fakes import FakeApiServer

ACCOUNT = ServiceAccountName("redbox-system", "redbox-resourced")


def denied(by: str) -> ApiRefused:
    """As the API server writes it."""
    return ApiRefused(
        422,
        f"pods \"p\" is forbidden: ValidatingAdmissionPolicy '{by}' with binding '{by}' denied request: no",
    )


DENIED = denied("redbox-tokens")
OWN_POD = ResourcePath(kinds.POD, "redbox-resourced-x", "redbox-system")


class TokenServer:
    """Answers TokenRequests with these, one after the other."""

    def __init__(self, *answers: Exception | str) -> None:
        self.answers = list(answers)
        self.problems: list[str] = []
        self.policy = token_policy(cast("ObjectClient", self), ACCOUNT)

    async def token_for(self, *asked: Any, seconds: int) -> str:
        assert asked == ("redbox-system", "redbox-resourced", "probe.invalid")
        assert seconds == 600
        self.problems.append(self.policy.problem)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_policies, "RETRY_S", 0.0)


@pytest.mark.parametrize("name", ["redbox-tokens", "redbox-tokens-redbox-system"])
async def test_where_the_policy_refuses_there_is_no_problem(name: str) -> None:
    """A release that is limited to some namespaces has its own in the name."""
    policy = TokenServer(denied(name)).policy
    await policy.wait()
    assert policy.problem == ""


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("a token", TOKENS_MISSING),
        (ApiUnreachable("away"), "cannot check"),
        (ApiRefused(403, "serviceaccounts/token is forbidden: no RBAC"), "cannot check"),
        (ApiRefused(403, 'admission webhook "x" denied the request: no'), "cannot check"),
        (denied("no-probes"), 'exempt resourced from that one: pods "p" is forbidden'),
        (denied("redbox-tokens-elsewhere"), "another policy refuses"),
    ],
)
async def test_else_it_waits_and_says_so(answer: Exception | str, problem: str) -> None:
    server = TokenServer(answer, DENIED)
    await server.policy.wait()
    assert problem in server.problems[1]


async def first_problem(policy: AdmissionPolicy) -> str:
    """What the policy reports after its first probe; the second one is refused."""
    seen: list[str] = []
    send = policy.probe

    async def probe() -> None:
        seen.append(policy.problem)
        if len(seen) > 1:
            raise denied(policy.name)
        await send()

    policy.probe = probe
    await policy.wait()
    return seen[1]


async def test_a_pod_that_may_be_labelled_is_a_problem_and_is_not_labelled() -> None:
    api = FakeApiServer()
    api.put(OWN_POD, {"metadata": {"labels": {"app": "x"}}})
    assert await first_problem(pod_policy(api.client, ACCOUNT)) == PODS_MISSING
    assert api.objects[OWN_POD]["metadata"]["labels"] == {"app": "x"}


async def test_a_volume_that_may_be_any_path_is_a_problem_and_is_not_created() -> None:
    api = FakeApiServer()
    assert await first_problem(volume_policy(api.client, ACCOUNT)) == VOLUMES_MISSING
    assert api.names("PersistentVolume") == []


async def test_a_slice_of_any_service_is_a_problem_and_is_not_created() -> None:
    api = FakeApiServer()
    assert await first_problem(slice_policy(api.client, ACCOUNT)) == SLICES_MISSING
    assert api.names("EndpointSlice") == []


async def test_without_a_pod_in_its_namespace_another_one_does() -> None:
    api = FakeApiServer()
    other: Object = {"metadata": {"labels": {}}}
    api.put(ResourcePath(kinds.POD, "p", "alice"), other)
    api.fail(denied("redbox-pods"), verb="patch", kind="Pod", name="p", namespace="alice")
    policy = pod_policy(api.client, ACCOUNT)
    await policy.wait()
    assert policy.problem == ""


async def test_without_any_pod_nothing_is_claimed() -> None:
    assert "no pod to try it on" in await first_problem(pod_policy(FakeApiServer().client, ACCOUNT))
