"""Unix accounts and groups as the host knows them, from files, LDAP or whatever NSS asks.

NSS may hang for minutes when a directory server is away. So each look-up runs in a daemon thread under a
deadline, at most a few at once; what was found is believed for a while, and for longer while NSS does not
answer.

Or a directory server is away and NSS says at once that there is nobody. Nothing in its answer tells that from
the truth: Python raises KeyError for both, and the number of the C library is ENOENT where nslcd is away, but
also where a service of nsswitch.conf is not installed. So who was found before is asked for, too: a directory
that has lost them all is none to believe.
"""

from __future__ import annotations

import asyncio
import errno
import grp
import os
import pwd
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from redbox.callers.errors import AuthenticationUnavailable
from redbox.core.clock import Clock

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
    """What the mapping asks of the host."""

    def account(self, name: str) -> UnixAccount | None:
        """The account of this name."""
        ...

    def account_of(self, uid: int) -> UnixAccount | None:
        """The account of this number."""
        ...

    def group(self, name: str) -> int | None:
        """The id of the group of this name."""
        ...


class NssLookup:
    """Asks NSS, and waits for it as long as it takes."""

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
    """The same for a server that lasts: raises OSError where it is not true that there is nobody.

    The witnesses are accounts that were found last, and are in no file of this host. At a start there are
    none, and then NSS is believed.
    """

    def __init__(self, host: AccountLookup) -> None:
        self._host = host
        self._witnesses: dict[str, None] = {}  # the latest last
        self._lock = threading.Lock()

    def account(self, name: str) -> UnixAccount | None:
        return self._proved(self._host.account(name), asked=name)

    def account_of(self, uid: int) -> UnixAccount | None:
        return self._proved(self._host.account_of(uid))

    def group(self, name: str) -> int | None:
        group = self._host.group(name)
        if group is None:
            self._ask_witnesses()
        return group

    def _proved(self, account: UnixAccount | None, *, asked: str | None = None) -> UnixAccount | None:
        if account is None:
            self._ask_witnesses(but=asked)
        else:
            self._remember(account.name)
        return account

    def _remember(self, name: str) -> None:
        if name not in self._witnesses and _is_in_file(name):
            return
        with self._lock:
            self._witnesses.pop(name, None)
            self._witnesses[name] = None
            while len(self._witnesses) > MAX_CANARIES:
                del self._witnesses[next(iter(self._witnesses))]

    def _ask_witnesses(self, *, but: str | None = None) -> None:
        with self._lock:
            names = [name for name in reversed(self._witnesses) if name != but]
        for name in names:
            if self._host.account(name) is not None:
                self._remember(name)  # so that it is the first to be asked the next time
                return
        if names:
            raise OSError(errno.EHOSTUNREACH, f"it finds nobody, not even {names[0]}, who was there")


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
    """How long to wait for NSS, and how long to believe it."""

    deadline_s: float = 5.0
    cache_s: float = 30.0
    max_stale_s: float = 3_600.0
    at_once: int = 4


_Answer = UnixAccount | int | None
_Question = tuple[str, str | int]  # which method of AccountLookup, and its argument


class _NotRemembered(Exception):
    def __init__(self, question: _Question) -> None:
        super().__init__()
        self.question = question


class AccountResolver:
    """Lets pure functions ask NSS: what is not remembered is fetched, then they run again."""

    def __init__(self, host: AccountLookup, patience: NssPolicy, clock: Clock) -> None:
        self._host = host
        self._patience = patience
        self._clock = clock
        self._remembered: dict[_Question, tuple[_Answer, float]] = {}
        self._slots = asyncio.Semaphore(patience.at_once)

    async def decide(self, decision: Callable[[AccountLookup], Result]) -> Result:
        """Run the decision with what NSS says; raises CannotTell where NSS does not answer."""
        fetched: dict[_Question, _Answer] = {}
        while True:
            try:
                return decision(_Memory(self, fetched))
            except _NotRemembered as missing:
                fetched[missing.question] = await self._fetch(missing.question)

    def remembered(self, question: _Question) -> _Answer:
        answer, at = self._remembered.get(question, (None, None))
        if at is None or self._clock.monotonic() - at >= self._patience.cache_s:
            raise _NotRemembered(question)
        return answer

    async def _fetch(self, question: _Question) -> _Answer:
        try:
            async with asyncio.timeout(self._patience.deadline_s):
                answer = await self._ask(question)
        except (TimeoutError, OSError) as error:
            return self._stale(question, error)
        if len(self._remembered) >= MAX_CACHED:
            self._remembered.clear()
        self._remembered[question] = (answer, self._clock.monotonic())
        return answer

    async def _ask(self, question: _Question) -> _Answer:
        method, argument = question
        await self._slots.acquire()
        try:
            answer = self.remembered(question)  # another caller may have asked while this one waited
        except _NotRemembered:
            return await _in_daemon_thread(lambda: getattr(self._host, method)(argument), self._slots.release)
        self._slots.release()
        return answer

    def _stale(self, question: _Question, error: Exception) -> _Answer:
        """The last answer, while it is not too old."""
        method, argument = question
        answer, at = self._remembered.get(question, (None, None))
        log.warning(
            "accounts not answering", asked=method, of=argument, error=repr(error), stale=at is not None
        )
        if at is None or self._clock.monotonic() - at > self._patience.max_stale_s:
            did_not = f"did not answer within {self._patience.deadline_s:g} s"
            words = did_not if isinstance(error, TimeoutError) else "does not answer"  # the log says why
            raise AuthenticationUnavailable(f"this host's user database {words}") from error
        return answer


class _Memory:
    """What is known so far, as an AccountLookup."""

    def __init__(self, directory: AccountResolver, fetched: dict[_Question, _Answer]) -> None:
        self._directory = directory
        self._fetched = fetched

    def account(self, name: str) -> UnixAccount | None:
        answer = self._answer(("account", name))
        return answer if isinstance(answer, UnixAccount) else None

    def account_of(self, uid: int) -> UnixAccount | None:
        answer = self._answer(("account_of", uid))
        return answer if isinstance(answer, UnixAccount) else None

    def group(self, name: str) -> int | None:
        answer = self._answer(("group", name))
        return answer if isinstance(answer, int) else None

    def _answer(self, question: _Question) -> _Answer:
        if question in self._fetched:
            return self._fetched[question]
        return self._directory.remembered(question)


async def _in_daemon_thread(work: Callable[[], Result], done: Callable[[], None]) -> Result:
    """Run it where a hang holds up neither the loop nor the process's end; calls `done` when it ends.

    Raises OSError where the host has no thread for it.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if not outcome.cancelled():
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)  # type: ignore[arg-type]  # None only where Result allows it
        done()  # after the outcome is set, so that who waited for it goes on first

    def run() -> None:
        try:
            result, error = work(), None
        except Exception as raised:  # noqa: BLE001 (carried over to whoever waits)
            result, error = None, raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop has ended meanwhile: nobody waits any more

    try:
        threading.Thread(target=run, name="nss", daemon=True).start()
    except RuntimeError as error:
        done()
        raise OSError(errno.EAGAIN, str(error)) from error
    return await outcome
