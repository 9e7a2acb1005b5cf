"""Nothing is submitted unless the API server was seen to limit what resourced may ask tokens for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redbox_kube.api.objects import ApiRefused, ApiUnreachable, ObjectClient
from redbox_kube.redbox_token import ServiceAccountName
from redbox_resourced.pods import token_policy
from redbox_resourced.pods.token_policy import MISSING, TokenPolicy

DENIED = ApiRefused(403, "forbidden: ValidatingAdmissionPolicy 'redbox-tokens' denied request")


class ApiServer:
    """Answers TokenRequests with these, one after the other."""

    def __init__(self, *answers: Exception | str) -> None:
        self.answers = list(answers)
        self.problems: list[str] = []
        self.policy = TokenPolicy(
            cast("ObjectClient", self), ServiceAccountName("redbox-system", "redbox-resourced")
        )

    async def token_for(self, *asked: Any, seconds: int) -> str:
        assert asked == ("redbox-system", "redbox-resourced", "probe.invalid")
        assert seconds == 600
        self.problems.append(self.policy.problem)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_where_the_policy_refuses_there_is_no_trouble() -> None:
    policy = ApiServer(DENIED).policy
    await policy.wait()
    assert policy.problem == ""


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("a token", MISSING),
        (ApiUnreachable("away"), "cannot check"),
        (ApiRefused(403, "serviceaccounts/token is forbidden: no RBAC"), "cannot check"),
    ],
)
async def test_else_it_waits_and_says_so(
    answer: Exception | str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_policy, "RETRY_S", 0.0)
    server = ApiServer(answer, DENIED)
    await server.policy.wait()
    assert problem in server.problems[1]
