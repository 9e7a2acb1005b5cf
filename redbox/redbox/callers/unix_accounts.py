"""Unix accounts and groups of the host by NSS: from files, LDAP or another service.

NSS may hang for minutes when a directory server is down. So each lookup runs in a daemon thread with a
deadline, at most a few at once; results are cached for a while, and longer while NSS does not answer.

Or a directory server is down and NSS reports at once that an account does not exist. The result does not show
the difference: Python raises KeyError for both, and the errno of the C library is ENOENT if nslcd is down,
but also if a service of nsswitch.conf is not installed. So canaries, accounts that were found before, are
looked up as well: a directory that has lost all of them is down.
"""

from __future__ import annotations

import asyncio
import errno
import grp
import os
import pwd
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from redbox.callers.errors import AuthenticationUnavailable
from redbox.core.clock import Clock
from redbox.core.turns import as_own_work

log = structlog.get_logger(__name__)

Result = TypeVar("Result")
MAX_CACHED = 100_000
MAX_CANARIES = 8
PASSWD = Path("/etc/passwd")


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """A Unix account; `groups` are the ids of all groups that it is in."""

    name: str
    uid: int
    groups: frozenset[int]


class AccountLookup(Protocol):
    """Lookups of accounts and groups."""

    def account(self, name: str) -> UnixAccount | None: ...

    def account_of(self, uid: int) -> UnixAccount | None: ...

    def group(self, name: str) -> int | None: ...


class NssLookup:
    """NSS without a deadline."""

    def account(self, name: str) -> UnixAccount | None:
        try:
            return _account(pwd.getpwnam(name))
        except KeyError:
            return None

    def account_of(self, uid: int) -> UnixAccount | None:
        try:
            return _account(pwd.getpwuid(uid))
        except KeyError:
            return None

    def group(self, name: str) -> int | None:
        try:
            return grp.getgrnam(name).gr_gid
        except KeyError:
            return None


class OutageDetectingLookup:
    """Raises OSError for an account that NSS does not find during an outage of the directory.

    The canaries are the accounts that were found last, except those of /etc/passwd (`is_in_file`). Until one
    is found they are `job_users`, the users of the latest jobs: a directory may be down when red-box starts.
    Without any a negative result counts.
    """

    def __init__(
        self,
        host: AccountLookup,
        is_in_file: Callable[[str], bool] | None = None,
        *,
        job_users: Sequence[str] = (),
    ) -> None:
        self._host = host
        self._is_in_file = is_in_file or _is_in_file
        self._job_users = tuple(job_users[-MAX_CANARIES:])
        self._canaries: dict[str, None] = {}  # the latest last
        self._lock = threading.Lock()

    def account(self, name: str) -> UnixAccount | None:
        return self._checked(self._host.account(name), except_name=name)

    def account_of(self, uid: int) -> UnixAccount | None:
        return self._checked(self._host.account_of(uid))

    def group(self, name: str) -> int | None:
        group = self._host.group(name)
        if group is None:
            self._check_canaries()
        return group

    def _checked(self, account: UnixAccount | None, *, except_name: str | None = None) -> UnixAccount | None:
        if account is None:
            self._check_canaries(except_name=except_name)
        else:
            self._add_canary(account.name)
        return account

    def _add_canary(self, name: str) -> None:
        if name not in self._canaries and self._is_in_file(name):
            return
        with self._lock:
            self._canaries.pop(name, None)
            self._canaries[name] = None
            while len(self._canaries) > MAX_CANARIES:
                del self._canaries[next(iter(self._canaries))]

    def _check_canaries(self, *, except_name: str | None = None) -> None:
        with self._lock:
            names = [name for name in reversed(self._canaries) if name != except_name]
            is_first = not self._canaries
        if is_first:
            names = [name for name in self._job_users if name != except_name and not self._is_in_file(name)]
        for name in names:
            if self._host.account(name) is not None:
                self._add_canary(name)  # so that it is the first one next time
                return
        if names:
            raise OSError(
                errno.EHOSTUNREACH, f"NSS finds no account, not even {names[0]}, which it found before"
            )


def _is_in_file(name: str) -> bool:
    try:
        with PASSWD.open("rb") as file:
            return any(line.startswith(os.fsencode(name) + b":") for line in file)
    except OSError:
        return False


def _account(entry: pwd.struct_passwd) -> UnixAccount:
    return UnixAccount(entry.pw_name, entry.pw_uid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)))


@dataclass(frozen=True, slots=True)
class NssPolicy:
    """Deadline of NSS, lifetime of its results, and concurrency."""

    deadline_s: float = 5.0
    cache_s: float = 30.0
    max_stale_s: float = 3_600.0
    max_concurrent: int = 4


_Result = UnixAccount | int | None
_Lookup = tuple[str, str | int]  # a method of AccountLookup and its argument


class _NotCached(Exception):
    def __init__(self, lookup: _Lookup) -> None:
        super().__init__()
        self.lookup = lookup


class AccountResolver:
    """Evaluates pure functions of accounts: missing lookups are fetched, then the function runs again."""

    def __init__(
        self, host: AccountLookup, policy: NssPolicy, clock: Clock, *, where: str = "this host"
    ) -> None:
        """`where` names the host in the message of an outage."""
        self._host = host
        self._where = where
        self._policy = policy
        self._clock = clock
        self._cache: dict[_Lookup, tuple[_Result, float]] = {}
        self._slots = asyncio.Semaphore(policy.max_concurrent)

    async def evaluate(self, decision: Callable[[AccountLookup], Result]) -> Result:
        """Return the decision's result; raises AuthenticationUnavailable if NSS does not answer."""
        fetched: dict[_Lookup, _Result] = {}
        while True:
            try:
                return decision(_CachedLookup(self, fetched))
            except _NotCached as missing:
                fetched[missing.lookup] = await self._fetch(missing.lookup)

    def cached(self, lookup: _Lookup) -> _Result:
        result, at = self._cache.get(lookup, (None, None))
        if at is None or self._clock.monotonic() - at >= self._policy.cache_s:
            raise _NotCached(lookup)
        return result

    async def _fetch(self, lookup: _Lookup) -> _Result:
        try:
            async with asyncio.timeout(self._policy.deadline_s):
                result = await as_own_work(self._query_nss(lookup))  # all callers share the slots
        except (TimeoutError, OSError) as error:
            return self._stale(lookup, error)
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[lookup] = (result, self._clock.monotonic())
        return result

    async def _query_nss(self, lookup: _Lookup) -> _Result:
        method, argument = lookup
        await self._slots.acquire()
        try:
            result = self.cached(lookup)  # another caller may have fetched it in the meantime
        except _NotCached:
            return await _in_daemon_thread(lambda: getattr(self._host, method)(argument), self._slots.release)
        self._slots.release()
        return result

    def _stale(self, lookup: _Lookup, error: Exception) -> _Result:
        """Return the last result, while it is not too old."""
        method, argument = lookup
        result, at = self._cache.get(lookup, (None, None))
        log.warning("NSS does not answer", asked=method, of=argument, error=repr(error), stale=at is not None)
        if at is None or self._clock.monotonic() - at > self._policy.max_stale_s:
            late = f"did not answer within {self._policy.deadline_s:g} s"
            fault = late if isinstance(error, TimeoutError) else "does not answer"  # the log has the error
            raise AuthenticationUnavailable(f"the user database of {self._where} {fault}") from error
        return result


class _CachedLookup:
    """AccountLookup over cached and fetched results."""

    def __init__(self, resolver: AccountResolver, fetched: dict[_Lookup, _Result]) -> None:
        self._resolver = resolver
        self._fetched = fetched

    def account(self, name: str) -> UnixAccount | None:
        result = self._result(("account", name))
        return result if isinstance(result, UnixAccount) else None

    def account_of(self, uid: int) -> UnixAccount | None:
        result = self._result(("account_of", uid))
        return result if isinstance(result, UnixAccount) else None

    def group(self, name: str) -> int | None:
        result = self._result(("group", name))
        return result if isinstance(result, int) else None

    def _result(self, lookup: _Lookup) -> _Result:
        return self._fetched[lookup] if lookup in self._fetched else self._resolver.cached(lookup)


async def _in_daemon_thread(work: Callable[[], Result], done: Callable[[], None]) -> Result:
    """Run it where a hang blocks neither the loop nor the process's exit; calls `done` when it ends.

    Raises OSError if no thread can be started.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if not outcome.cancelled():
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)  # type: ignore[arg-type]  # None only where Result allows it
        done()  # after the outcome is set, so that its waiter continues first

    def run() -> None:
        try:
            result, error = work(), None
        except Exception as raised:  # noqa: BLE001 (raised by the waiter)
            result, error = None, raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop has ended, and with it the waiter

    try:
        threading.Thread(target=run, name="nss", daemon=True).start()
    except RuntimeError as error:
        done()
        raise OSError(errno.EAGAIN, str(error)) from error
    return await outcome
