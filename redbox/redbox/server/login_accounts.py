"""Accounts and groups of the login node, for a red-box whose own host has none of them: one in a pod.

The observer's agent answers with `getent` and `id`, as NSS of the login node does. The observer is trusted no
further than that: an account of another name or uid than was looked up is refused, or one user's jobs would
run as another; an agent that runs as another uid than the one it answered is refused, root and uids below
`min_uid` are refused here and on the login node, and sshd itself checks the group whose certificates it
accepts.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError

from redbox.agents.errors import AgentError
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import CommandResult
from redbox.callers.mapping.rules import USER_NAME
from redbox.callers.unix_accounts import (
    AccountResolver,
    NssPolicy,
    OutageDetectingLookup,
    UnixAccount,
)
from redbox.core.clock import Clock
from redbox.core.domain import UnixUser

COMMAND_S = 5.0
NOT_FOUND = 2  # getent's exit status
ENTRY_FIELDS = 4  # at least: name, password, id, members
OUTPUT_LIMIT = 1024 * 1024  # a group may have very many members
NUMBER = re.compile(r"[0-9]{1,10}")
GIDS = re.compile(r"[0-9]{1,10}( [0-9]{1,10})*")
WHERE = "the login node"

RunCommand = Callable[[Sequence[str]], CommandResult]


class LoginNodeLookup:
    """AccountLookup by commands on the login node; raises OSError where these give no answer."""

    def __init__(self, run: RunCommand) -> None:
        self._run = run

    def account(self, name: str) -> UnixAccount | None:
        found = self._account(name) if USER_NAME.fullmatch(name) else None
        if found is not None and found.name != name:
            raise _another(name, f"{found.name[:64]!r}: use that name in the mapping rules")
        return found

    def account_of(self, uid: int) -> UnixAccount | None:
        found = self._account(str(uid))
        if found is not None and found.uid != uid:
            raise _another(str(uid), f"of uid {found.uid}")
        return found

    def group(self, name: str) -> int | None:
        fields = self._entry("group", name)
        return None if fields is None else _number(fields[2], "group", name)

    def members(self, name: str) -> tuple[str, ...]:
        """Those whom its entry lists, and those whose primary group it is, as far as NSS lists users."""
        fields = self._entry("group", name)
        if fields is None:
            return ()
        shown = self._run(["getent", "passwd"])
        accounts = [line.split(":") for line in shown.stdout.decode(errors="replace").splitlines()]
        primary = [account[0] for account in accounts if account[3:4] == [fields[2]]]
        return tuple(dict.fromkeys([*filter(None, fields[-1].split(",")), *primary]))

    def is_in_file(self, name: str) -> bool:
        """Whether it is an account of the login node itself, and of no directory service."""
        return self._run(["getent", "-s", "files", "passwd", "--", name]).code == 0

    def _account(self, key: str) -> UnixAccount | None:
        fields = self._entry("passwd", key)
        if fields is None:
            return None
        name, uid = fields[0], _number(fields[2], "passwd", key)
        shown = self._run(["id", "-G", "--", name])
        text = shown.stdout.decode(errors="replace").strip()
        if shown.code != 0 or not GIDS.fullmatch(text):
            raise _no_answer(["id", "-G", name], shown)
        return UnixAccount(name, uid, frozenset(map(int, text.split())))

    def _entry(self, database: str, key: str) -> list[str] | None:
        argv = ["getent", database, "--", key]
        shown = self._run(argv)
        if shown.code == NOT_FOUND:
            return None
        line = shown.stdout.decode(errors="replace").removesuffix("\n")
        fields = line.split(":")
        if shown.code != 0 or len(fields) < ENTRY_FIELDS or "\n" in line:
            raise _no_answer(argv, shown)
        return fields


def _number(text: str, database: str, key: str) -> int:
    if not NUMBER.fullmatch(text):
        raise OSError(errno.EPROTO, f"getent {database} {key} on {WHERE} shows the id {text[:40]!r}")
    return int(text)


def _another(key: str, shown: str) -> OSError:
    return OSError(errno.EPROTO, f"getent passwd {key} on {WHERE} shows the account {shown}")


def _no_answer(argv: Sequence[str], result: CommandResult) -> OSError:
    reason = (result.stderr or result.stdout).decode(errors="replace").strip()[:200]
    status = result.code
    return OSError(errno.EIO, f"{' '.join(argv)} on {WHERE} ended with {status}: {reason}")


def login_node_accounts(
    pool: AgentPool, observer: UnixUser, clock: Clock, job_users: Sequence[str] = ()
) -> AccountResolver:
    """Accounts of the login node, cached, with the deadlines and the detection of outages of a host's own."""
    loop = asyncio.get_running_loop()

    def run(argv: Sequence[str]) -> CommandResult:
        """Called in the resolver's threads."""
        asked = asyncio.run_coroutine_threadsafe(run_as_observer(pool, observer, argv), loop)
        try:
            return asked.result(COMMAND_S)
        except (AgentError, TimeoutError, CancelledError) as error:
            asked.cancel()
            raise OSError(errno.EHOSTUNREACH, f"no answer of {WHERE}: {error}") from error

    lookup = LoginNodeLookup(run)
    detecting = OutageDetectingLookup(lookup, is_in_file=lookup.is_in_file, job_users=job_users)
    return AccountResolver(detecting, NssPolicy(deadline_s=2 * COMMAND_S), clock, where=WHERE)


async def run_as_observer(pool: AgentPool, observer: UnixUser, argv: Sequence[str]) -> CommandResult:
    agent = await pool.agent(observer)
    return await agent.run(argv, deadline=COMMAND_S, output_limit=OUTPUT_LIMIT)
