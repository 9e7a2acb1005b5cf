"""A cluster's keys, kept up to date: from a file that is read when it changes, or from a URL.

Rotation needs no restart: a token with an unknown key causes a fetch at once, at most once per refetch
interval. While fetches fail, the last keys remain valid for at most `max_stale`; that they are stale is
logged and shown by /readyz.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from redbox.callers.errors import ApiServerUnavailable, AuthenticationUnavailable, InvalidKeySet
from redbox.callers.file_version import FileVersion, file_version
from redbox.callers.tokens.jwks import VerifyingKey, parse_key_set
from redbox.core.clock import Clock
from redbox.core.turns import as_own_work

if TYPE_CHECKING:
    from redbox.callers.tokens.kubernetes_api import ApiServerClient

log = structlog.get_logger(__name__)

MAX_FILE_BYTES = 1024 * 1024


class JwksFile:
    """A JWKS in a file, read when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: FileVersion | None = None

    async def fetch(self) -> bytes | None:
        """Return the document, or None if it is unchanged; raises ApiServerUnavailable."""
        version = file_version(self._path)
        if version is not None and version == self._version:
            return None
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES)
        except OSError as error:
            self._version = None
            raise ApiServerUnavailable(f"{self._path} cannot be read: {error.strerror}") from error
        self._version = version
        return content

    async def close(self) -> None:
        """Do nothing."""


class JwksUrl:
    """A JWKS behind a URL."""

    def __init__(self, url: str, server: ApiServerClient) -> None:
        self._url = url
        self._server = server

    async def fetch(self) -> bytes | None:
        return await self._server.get(self._url)

    async def close(self) -> None:
        await self._server.close()


@dataclass(frozen=True, slots=True)
class RefreshPolicy:
    """The intervals of fetches."""

    refresh_s: float
    refetch_interval_s: float
    max_stale_s: float


class KeySet:
    """The keys of one cluster."""

    def __init__(self, cluster: str, source: JwksFile | JwksUrl, policy: RefreshPolicy, clock: Clock) -> None:
        self.cluster = cluster
        self._source = source
        self._policy = policy
        self._clock = clock
        self._keys: Mapping[str, VerifyingKey] = {}
        self._good_at: float | None = None
        self._tried_at: float | None = None
        self.problem: str | None = None  # the error of the last fetch
        self._fetching = asyncio.Lock()

    def may_have(self, kid: str) -> bool:
        """Return whether the last document has this key; True before the first fetch."""
        return kid in self._keys or self._tried_at is None

    async def key(self, kid: str) -> VerifyingKey | None:
        """Return the key with this id; raises AuthenticationUnavailable while there are no valid keys."""
        if kid not in self._keys or self._is_due():
            await self.refresh()
        key = self._keys.get(kid)
        if self._good_at is None or self._is_too_stale() or (key is None and self.problem is not None):
            raise AuthenticationUnavailable(
                f"the keys of cluster {self.cluster} are not available; see red-box's log",
                retry_after_s=max(1.0, self.wait_s()),
            )
        return key

    async def refresh(self) -> None:
        """Fetch the keys unless the last fetch is too recent. Concurrent callers share one fetch."""
        await as_own_work(self._refresh(self._clock.monotonic()))

    async def _refresh(self, called_at: float) -> None:
        async with self._fetching:
            if self._tried_at is not None and (called_at < self._tried_at or self.wait_s() > 0):
                return
            await self._fetch()

    async def keep_fresh(self) -> None:
        """Refresh periodically, shortly before it is due, so that no caller waits. Cancel to end it."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._policy.refresh_s * random.uniform(0.8, 0.9))  # noqa: S311 (jitter)

    async def close(self) -> None:
        await self._source.close()

    def wait_s(self) -> float:
        """Return the time until the next fetch is allowed."""
        if self._tried_at is None:
            return 0.0
        return max(0.0, self._tried_at + self._policy.refetch_interval_s - self._clock.monotonic())

    def age_s(self) -> float | None:
        """Since they were last valid; None: never."""
        return None if self._good_at is None else self._clock.monotonic() - self._good_at

    async def _fetch(self) -> None:
        try:
            document = await self._source.fetch()
            if document is not None:
                self._keys = parse_key_set(document)
        except (ApiServerUnavailable, InvalidKeySet) as error:
            self._note_failure(str(error))
        else:
            self._note_success(changed=document is not None)
        self._tried_at = self._clock.monotonic()  # not if this caller is cancelled: the next one fetches

    def _note_failure(self, problem: str) -> None:
        if problem != self.problem:  # a missing file is checked every second
            log.warning("keys not refreshed", cluster=self.cluster, problem=problem, age_s=self.age_s())
        self.problem = problem

    def _note_success(self, *, changed: bool) -> None:
        if changed and (self.problem is not None or self._good_at is None):
            log.info("keys read", cluster=self.cluster, kids=sorted(self._keys))
            self.problem = None
        if self.problem is None:
            self._good_at = self._clock.monotonic()

    def _is_due(self) -> bool:
        return self._tried_at is None or self._clock.monotonic() - self._tried_at >= self._policy.refresh_s

    def _is_too_stale(self) -> bool:
        return self._good_at is None or self._clock.monotonic() - self._good_at > self._policy.max_stale_s
