"""TokenReview: whether a token is still valid for the cluster's API server.

Verified offline, a token is valid until its `exp`; the API server also checks that its pod, account and
namespace exist. Only tokens with a verified signature are reviewed, so that unauthenticated clients cannot
load the API server.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from redbox.callers.errors import ApiServerUnavailable, AuthenticationUnavailable, TokenFault, Unauthenticated
from redbox.callers.identities import ServiceAccount
from redbox.core.clock import Clock

if TYPE_CHECKING:
    from redbox.callers.tokens.kubernetes_api import ApiServerClient

log = structlog.get_logger(__name__)

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """The result of a review: `refusal` is None if the token is valid."""

    refusal: str | None
    at: float


class TokenReviewer:
    """TokenReviews of one cluster, cached for some seconds."""

    def __init__(
        self, url: str, server: ApiServerClient, *, audience: str, cache_s: float, clock: Clock
    ) -> None:
        self._url = url.rstrip("/") + PATH
        self._server = server
        self._audience = audience
        self._cache_s = cache_s
        self._clock = clock
        self._results: OrderedDict[bytes, ReviewResult] = OrderedDict()

    async def confirm(self, token: str, account: ServiceAccount) -> None:
        """Raise Unauthenticated if the token is not valid, AuthenticationUnavailable without an answer."""
        digest = hashlib.sha256(token.encode()).digest()
        result = self._results.get(digest)
        if result is None or self._clock.monotonic() - result.at >= self._cache_s:
            result = ReviewResult(await self._review(token, account), self._clock.monotonic())
            self._cache(digest, result)
        if result.refusal is not None:
            raise Unauthenticated(
                TokenFault.REVOKED,
                f"the API server of cluster {account.cluster} does not accept the token: {result.refusal}",
            )

    async def close(self) -> None:
        await self._server.close()

    async def _review(self, token: str, account: ServiceAccount) -> str | None:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        try:
            response = json.loads(await self._server.post(self._url, review))
            return refusal_in(response["status"], account, self._audience)
        except (ApiServerUnavailable, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("token not reviewed", cluster=account.cluster, problem=repr(error))
            raise AuthenticationUnavailable(
                f"the TokenReview of cluster {account.cluster} failed; see red-box's log"
            ) from error

    def _cache(self, digest: bytes, result: ReviewResult) -> None:
        self._results[digest] = result
        self._results.move_to_end(digest)
        while len(self._results) > MAX_CACHED:
            self._results.popitem(last=False)


def refusal_in(status: dict[str, Any], account: ServiceAccount, audience: str) -> str | None:
    """Return the reason in a TokenReview's status why the token is not valid, or None if it is."""
    if status.get("authenticated") is not True:
        return str(status.get("error") or "it is no longer valid")[:300]
    if audience not in (status.get("audiences") or ()):
        return f"it is not for {audience}"
    user = status["user"]
    name = f"system:serviceaccount:{account.namespace}:{account.name}"
    if (user.get("username"), user.get("uid")) != (name, account.uid):
        reviewed = f"{user.get('username')}, uid {user.get('uid')}"
        return f"it attributes the token to {reviewed[:300]!r}"
    return None
