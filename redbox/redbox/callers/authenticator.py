"""Authentication of a request: from its proof of identity to a Caller.

    async with Authenticator.from_settings(settings.callers, rules, SystemClock()) as authenticator:
        caller = await authenticator.authenticate(request)

A bearer token decides, whatever the connection; without a token, a process at the Unix socket is its own
user, and every other request is rejected.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from starlette.requests import HTTPConnection

from redbox.callers.errors import TokenFault, Unauthenticated
from redbox.callers.identities import Identity, Peer
from redbox.callers.mapping.mapping import map_caller_to_user
from redbox.callers.mapping.rules_file import ActiveRules
from redbox.callers.peers import peer_in
from redbox.callers.settings import CallersSettings, ClusterSettings
from redbox.callers.tokens.api_access import ApiAccess
from redbox.callers.tokens.claims import ClaimRequirements
from redbox.callers.tokens.key_sets import JwksFile, JwksUrl, KeySet, RefreshPolicy
from redbox.callers.tokens.opaque_tokens import PREFIX, TokenStore
from redbox.callers.tokens.service_account_tokens import TokenVerifier, TrustedCluster
from redbox.callers.tokens.token_review import TokenReviewer
from redbox.callers.unix_accounts import AccountResolver, NssLookup, NssPolicy, OutageDetectingLookup
from redbox.core.clock import Clock
from redbox.core.domain import Caller
from redbox.core.owned_tasks import OwnedTasks

if TYPE_CHECKING:
    from redbox.callers.tokens.kubernetes_api import ApiServerClient

RULES_CHECK_INTERVAL_S = 2.0
FILE_FRESHNESS = RefreshPolicy(refresh_s=1.0, refetch_interval_s=0.0, max_stale_s=86_400.0)


class Authenticator(OwnedTasks):
    """Authenticates callers. As a context manager it keeps keys and rules up to date."""

    def __init__(
        self,
        *,
        clusters: Iterable[TrustedCluster],
        reviewers: dict[str, TokenReviewer],
        tokens: TokenStore,
        rules: ActiveRules,
        accounts: AccountResolver,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._clusters = tuple(clusters)
        self._verifier = TokenVerifier(self._clusters, clock)
        self._reviewers = reviewers
        self._tokens = tokens
        self._rules = rules
        self._accounts = accounts

    @classmethod
    def from_settings(
        cls,
        settings: CallersSettings,
        rules: ActiveRules,
        clock: Clock,
        accounts: AccountResolver | None = None,
        *,
        job_users: Sequence[str] = (),
    ) -> Self:
        """`job_users` are those of the latest jobs, the newest last."""
        host = OutageDetectingLookup(NssLookup(), job_users=job_users)
        return cls(
            clusters=trusted_clusters(settings, clock),
            reviewers={
                cluster.name: reviewer
                for cluster in settings.clusters
                if (reviewer := _reviewer(cluster, clock)) is not None
            },
            tokens=TokenStore(settings.tokens_file, clock),
            rules=rules,
            accounts=accounts or AccountResolver(host, NssPolicy(), clock),
            clock=clock,
        )

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        for cluster in self._clusters:
            self._spawn(cluster.keys.keep_fresh())
        self._spawn(self._watch_rules())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await super().__aexit__()
        finally:
            for cluster in self._clusters:
                await cluster.keys.close()
            for reviewer in self._reviewers.values():
                await reviewer.close()

    async def authenticate(self, connection: HTTPConnection) -> Caller:
        """Return the caller; raises Unauthenticated, NotMapped or AuthenticationUnavailable."""
        return await self.authenticate_headers(connection.scope["headers"], peer_in(connection.scope))

    async def authenticate_headers(self, headers: Iterable[tuple[bytes, bytes]], peer: Peer | None) -> Caller:
        token = bearer_token(headers)
        identity: Identity
        until = math.inf
        if token is not None:
            identity, until = await self._identity_of(token)
        elif peer is not None:
            identity = peer
        else:
            raise Unauthenticated(TokenFault.MISSING, "no token was sent: Authorization: Bearer <token>")
        caller = await self._accounts.evaluate(partial(map_caller_to_user, identity, self._rules.rules))
        return replace(caller, until=until)

    def rules_in_force(self) -> object:
        """Return the current rules: a new object after each reload, which may obsolete earlier decisions."""
        return self._rules.rules

    def warnings(self) -> list[str]:
        """Faults of keys and rules, each in a sentence."""
        keys = (cluster.keys for cluster in self._clusters)
        return [
            *(f"keys of cluster {each.cluster}: {each.problem}" for each in keys if each.problem),
            *(f"the new mapping rules are invalid, the old ones stay: {flaw}" for flaw in self._rules.flaws),
        ]

    def reload_rules(self) -> bool:
        """Read the rules again (SIGHUP); return False if the old ones stay in force."""
        return self._rules.reload()

    async def _identity_of(self, token: str) -> tuple[Identity, float]:
        if token.startswith(PREFIX):
            return self._tokens.holder(token), math.inf  # the file, which may change, has the expiry
        verified = await self._verifier.verify(token)
        reviewer = self._reviewers.get(verified.account.cluster)
        if reviewer is not None:
            await reviewer.confirm(token, verified.account)
        return verified.account, verified.until

    async def _watch_rules(self) -> None:
        while True:
            await asyncio.sleep(RULES_CHECK_INTERVAL_S)
            self._rules.reload_if_changed()


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token of the Authorization header, None without such a header."""
    values = [value for name, value in headers if name.lower() == b"authorization"]
    if not values:
        return None
    if len(values) > 1:
        raise Unauthenticated(TokenFault.MALFORMED, "the Authorization header was sent more than once")
    scheme, _, token = values[0].strip().partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip():
        raise Unauthenticated(TokenFault.MALFORMED, "the Authorization header must be: Bearer <token>")
    try:
        return token.strip().decode("ascii")
    except UnicodeDecodeError as error:
        raise Unauthenticated(TokenFault.MALFORMED, "the token has invalid characters") from error


def trusted_clusters(settings: CallersSettings, clock: Clock) -> list[TrustedCluster]:
    """The clusters of the settings; their keys are fetched later."""
    return [
        TrustedCluster(
            ClaimRequirements(
                cluster.name, cluster.issuer, cluster.audience, cluster.max_token_life, settings.leeway
            ),
            _key_set(cluster, clock),
        )
        for cluster in settings.clusters
    ]


def jwks_access(cluster: ClusterSettings) -> ApiAccess:
    return ApiAccess(cluster.jwks_ca_file, cluster.jwks_token_file, cluster.jwks_deadline)


def _key_set(cluster: ClusterSettings, clock: Clock) -> KeySet:
    if cluster.jwks_file is not None:
        return KeySet(cluster.name, JwksFile(cluster.jwks_file), FILE_FRESHNESS, clock)
    source = JwksUrl(str(cluster.jwks_url), _api_server(jwks_access(cluster)))
    policy = RefreshPolicy(cluster.jwks_refresh, cluster.jwks_refetch_interval, cluster.jwks_max_stale)
    return KeySet(cluster.name, source, policy, clock)


def _reviewer(cluster: ClusterSettings, clock: Clock) -> TokenReviewer | None:
    review = cluster.token_review
    if review is None:
        return None
    server = _api_server(ApiAccess(review.ca_file, review.token_file, review.deadline))
    return TokenReviewer(review.server, server, audience=cluster.audience, cache_s=review.cache, clock=clock)


def _api_server(access: ApiAccess) -> ApiServerClient:
    from redbox.callers.tokens import (  # noqa: PLC0415 - aiohttp takes 0.1 s and 8 MiB, for keys at a URL only
        kubernetes_api,
    )

    return kubernetes_api.ApiServerClient(access)
