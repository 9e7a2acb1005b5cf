"""Asks the cluster's API server whether a token still counts.

Offline, a token lives until its `exp`; the API server also knows whether its pod, account and namespace still
exist. Asked only about tokens whose signature was verified, so that strangers cannot load the API server.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import structlog

from redbox.callers.errors import AuthenticationFault, AuthenticationUnavailable, Unauthenticated
from redbox.callers.identities import ServiceAccount
from redbox.callers.tokens.kubernetes_api import ApiServerClient, ApiServerUnavailable
from redbox.core.clock import Clock

log = structlog.get_logger(__name__)

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """What the API server said of a token: None is yes."""

    refusal: str | None
    at: float


class TokenReviewer:
    """One cluster's TokenReview, its answers believed for some seconds."""

    def __init__(
        self, url: str, server: ApiServerClient, *, audience: str, cache_s: float, clock: Clock
    ) -> None:
        self._url = url.rstrip("/") + PATH
        self._server = server
        self._audience = audience
        self._cache_s = cache_s
        self._clock = clock
        self._verdicts: OrderedDict[bytes, ReviewResult] = OrderedDict()

    async def confirm(self, token: str, account: ServiceAccount) -> None:
        """Return if it still counts; raises Unauthenticated if not, CannotTell if nobody answers."""
        digest = hashlib.sha256(token.encode()).digest()
        verdict = self._verdicts.get(digest)
        if verdict is None or self._clock.monotonic() - verdict.at >= self._cache_s:
            verdict = ReviewResult(await self._ask(token, account), self._clock.monotonic())
            self._remember(digest, verdict)
        if verdict.refusal is not None:
            said = f"the API server of cluster {account.cluster} does not accept the token: {verdict.refusal}"
            raise Unauthenticated(AuthenticationFault.REVOKED, said)

    async def close(self) -> None:
        await self._server.close()

    async def _ask(self, token: str, account: ServiceAccount) -> str | None:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        try:
            answer = json.loads(await self._server.post(self._url, review))
            return refusal_in(answer["status"], account, self._audience)
        except (ApiServerUnavailable, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("token not reviewed", cluster=account.cluster, problem=repr(error))
            said = f"cluster {account.cluster} could not be asked about the token: red-box's log says why"
            raise AuthenticationUnavailable(said) from error

    def _remember(self, digest: bytes, verdict: ReviewResult) -> None:
        self._verdicts[digest] = verdict
        self._verdicts.move_to_end(digest)
        while len(self._verdicts) > MAX_CACHED:
            self._verdicts.popitem(last=False)


def refusal_in(status: dict[str, Any], account: ServiceAccount, audience: str) -> str | None:
    """Read a TokenReview's status: why the token does not count, or None if it does."""
    if status.get("authenticated") is not True:
        return str(status.get("error") or "it is not valid any more")[:300]
    if audience not in (status.get("audiences") or ()):
        return f"it is not for {audience}"
    user = status["user"]
    name = f"system:serviceaccount:{account.namespace}:{account.name}"
    if (user.get("username"), user.get("uid")) != (name, account.uid):
        seen = f"{user.get('username')}, uid {user.get('uid')}"
        return f"it says that the token is of {seen[:300]!r}"
    return None
