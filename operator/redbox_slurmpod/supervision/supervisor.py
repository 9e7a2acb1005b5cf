"""Runs `slurmctld --systemd` or `slurmd --systemd` as systemd would.

With -D a reconfigure replaces the daemon by exec, and a slurm.conf that it refuses ends it. With --systemd a
reconfigure starts a second process, which takes over only once it is up:

    daemon --fork, fork, exec--> new daemon
    daemon --MAINPID=<new>--> supervisor      then the old daemon exits, and the new one is adopted

So the main process changes, and a death is that of the main process only after all earlier messages are read.
slurmctld ends its container with its own status. slurmd is started again in place, with growing pauses: the
steps live on in their slurmstepd processes, which the container's end would kill. So nothing that fails here
after the first start may end the supervisor, and slurmd's SIGTERM waits for its steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from redbox_slurmpod.supervision.daemon_keys import DaemonKeys
from redbox_slurmpod.supervision.notify_socket import NotifySocket
from redbox_slurmpod.supervision.processes import become_subreaper, exists, reap

log = logging.getLogger(__name__)
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
# Python ignores these two for itself, and a program that it starts would inherit that.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
_LOST = 1
"""The status of a main process that ended unseen, or could not be started."""
_HOLD_S = 0.5
"""Between two looks whether a SIGTERM is still held back."""
_KEYS_S = 1.0
"""Between two looks at the keys: the kubelet replaces them, and nothing reports it."""
KEYS_VARIABLE = "REDBOX_KEYS"
"""Of the program `when_ready`: the SHA-256 of the slurm.jwks that the daemon has read."""


def _never() -> bool:
    return False


@dataclass(frozen=True)
class RestartPauses:
    """Doubled from one start to the next, unless the daemon ran for `settled_s`."""

    first_s: float = 0.5
    longest_s: float = 30
    settled_s: float = 60


@dataclass(frozen=True)
class SupervisedDaemon:
    """What to run, and whether it is started again when it ends by itself."""

    command: tuple[str, ...]
    restarts: bool
    environment: Mapping[str, str] = field(default_factory=dict)
    when_ready: tuple[str, ...] = ()
    """A program that is run once the daemon is ready, and when it has read other keys."""
    keys: Path | None = None
    """The folder of the keys: the daemon gets SIGHUP when they have changed."""
    holds: Callable[[], bool] = _never
    """Whether SIGTERM has to wait. The kubelet's grace period bounds it."""
    pauses: RestartPauses = RestartPauses()


@dataclass
class DaemonStatus:
    """The main process, none during a pause; `since` is the wall clock's time when it became that."""

    pid: int | None = None
    since: float = 0
    ready: bool = False
    starts: int = 0
    keys: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each file with keys that it has read."""


class Supervisor:
    """One daemon and all processes that it leaves behind; `run` may be called once."""

    def __init__(self, daemon: SupervisedDaemon, notify_path: Path) -> None:
        self.status = DaemonStatus()
        self._daemon = daemon
        self._keys = DaemonKeys(daemon.keys) if daemon.keys else None
        self._notifications = NotifySocket(notify_path)
        self._wake = asyncio.Event()
        self._held: signal.Signals | None = None
        """The signal to stop, while it is held back."""
        self._stopping = False
        self._helper: int | None = None
        self._helper_due = False
        self._exit_status = 0
        self._started_at = 0.0
        self._pause_s = 0.0
        self._start_at = 0.0

    async def run(self) -> int:
        """Until the daemon has ended for good; its exit status."""
        become_subreaper()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._notifications, self._wake.set)
        loop.add_signal_handler(signal.SIGCHLD, self._wake.set)
        for number in _FORWARDED:
            loop.add_signal_handler(number, self._forward, number)
        try:
            self._start()
            while not self._over():
                await self._woken()
        finally:
            loop.remove_reader(self._notifications)
            self._notifications.close()
        return self._exit_status

    def _start(self) -> None:
        program, *_ = self._daemon.command
        environment = {
            **os.environ,
            **self._daemon.environment,
            "NOTIFY_SOCKET": str(self._notifications.path),
        }
        self._started_at = time.monotonic()
        pid = os.posix_spawnp(program, self._daemon.command, environment, setsigdef=_RESTORED)
        self.status = DaemonStatus(pid, time.time(), starts=self.status.starts + 1)
        log.info("%s started as process %d", program, pid)

    def _start_again(self) -> None:
        """Out of processes or memory, the daemon is one that has died."""
        try:
            self._start()
        except OSError as error:
            log.error("the daemon could not be started: %s", error)  # noqa: TRY400 - a sentence
            self._main_ended(_LOST)

    async def _woken(self) -> None:
        pause = None if self.status.pid else max(self._start_at - time.monotonic(), 0)
        if self._held is not None:
            pause = _HOLD_S if pause is None else min(pause, _HOLD_S)
        if self._keys is not None:
            pause = _KEYS_S if pause is None else min(pause, _KEYS_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wake.wait()
        self._wake.clear()

    def _over(self) -> bool:
        """Act on everything that has happened; whether the daemon has ended for good."""
        ended = reap()
        # Only now: whatever a process that has ended sent is in the socket.
        self._read_notifications()
        pid = self.status.pid
        if pid is not None and (pid in ended or not exists(pid)):
            self._main_ended(ended.get(pid, _LOST))
        if self._helper in ended:
            self._helper = None
        self._follow_keys()
        self._run_helper()
        self._stop_unless_held()
        if self.status.pid is not None:
            return False
        if self._stopping or not self._daemon.restarts:
            return True
        if time.monotonic() >= self._start_at:
            self._start_again()
        return False

    def _read_notifications(self) -> None:
        for message in self._notifications.messages():
            if pid := _pid_of(message.get("MAINPID", "")):
                self._main_is(pid)
            if message.get("READY") == "1" and self.status.pid is not None and not self.status.ready:
                self.status.ready = True
                self._helper_due = bool(self._daemon.when_ready)

    def _main_is(self, pid: int) -> None:
        if pid == self.status.pid:
            return
        log.info("the main process is %d now, after %s", pid, self.status.pid)
        # A successor is ready when it is named.
        self.status = DaemonStatus(pid, time.time(), ready=True, starts=self.status.starts)
        if self._stopping:
            self._send(signal.SIGTERM)

    def _follow_keys(self) -> None:
        """Only a daemon that is ready: SIGHUP would end one that starts."""
        if self._keys is None or self.status.pid is None or not self.status.ready or self._stopping:
            return
        before = self._keys.read
        if self._keys.should_be_read_again(self.status.pid):
            log.info("the keys have changed: the daemon reads them")
            self._send(signal.SIGHUP)
        self.status.keys = self._keys.read
        if before and before != self._keys.read:
            self._helper_due = bool(self._daemon.when_ready)

    def _run_helper(self) -> None:
        """`when_ready`, one at a time; one that cannot be started is tried again at the next event."""
        if not self._helper_due or self._helper is not None:
            return
        program, *_ = self._daemon.when_ready
        environment = {**os.environ, KEYS_VARIABLE: self.status.keys.get("slurm.jwks", "")}
        try:
            self._helper = os.posix_spawnp(program, self._daemon.when_ready, environment, setsigdef=_RESTORED)
            self._helper_due = False
        except OSError as error:
            log.error("%s could not be started: %s", program, error)  # noqa: TRY400 - a sentence

    def _main_ended(self, status: int) -> None:
        pauses = self._daemon.pauses
        now = time.monotonic()
        settled = now - self._started_at >= pauses.settled_s
        self._pause_s = (
            pauses.first_s if settled else min(max(self._pause_s * 2, pauses.first_s), pauses.longest_s)
        )
        self._start_at = now + self._pause_s
        self._exit_status = status
        log.warning("the main process %s ended with status %d", self.status.pid, status)
        self.status = DaemonStatus(starts=self.status.starts)

    def _forward(self, number: signal.Signals) -> None:
        if number not in _STOPPING:
            self._send(number)
        elif not self._stopping:
            self._held = number
            log.info("%s: the daemon ends when nothing holds it", number.name)
        self._wake.set()

    def _stop_unless_held(self) -> None:
        if self._held is not None and not self._daemon.holds():
            self._stopping = True
            self._send(self._held)
            self._held = None

    def _send(self, number: signal.Signals) -> None:
        if self.status.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.status.pid, number)


def _pid_of(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) > 1 else None
