"""`kubectl-slurm` as a program: with a kubectl that answers from files, and in a terminal with a screen."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyte

from redbox_shared.requested_actions import CANCEL, REQUESTED

PROGRAM = str(Path(sys.executable).parent / "kubectl-slurm")
WITHIN_S = 60.0
SCRIPTED = """\
#!/bin/sh
echo "$@" >>"$ANSWERS/calls"
case "$*" in
    */version*) echo '{}' ;;
    *slurm.redbox.dev*)
        cat "$ANSWERS/hosted" 2>/dev/null && exit
        echo "error: the server doesn't have a resource type \"controllers\"" >&2
        exit 1 ;;
    *leases*" -- "*)
        cat "$ANSWERS/lease" 2>/dev/null && exit
        echo 'Error from server (NotFound): leases.coordination.k8s.io "redbox-hosting" not found' >&2
        exit 1 ;;
    *auth*whoami*) echo '{"status": {"userInfo": {"username": "eve"}}}' ;;
    *api-resources*) echo slurmjobs.redbox.dev slurmclusters.redbox.dev ;;
    *can-i*) echo yes ;;
    *"get --output=json pods"*) cat "$ANSWERS/pods" 2>/dev/null || echo '{"items": []}' ;;
    *" nodes "*)
        echo 'Error from server (Forbidden): nodes is forbidden: User "a" cannot list' >&2
        exit 1 ;;
    *" logs --tail"*) cat "$ANSWERS/said" 2>/dev/null ;;
    *resourcequotas* | *"get --output=json events"*) echo '{"items": []}' ;;
    *current-context*) echo bed ;;
    *"config view"*) printf '%s' "${NAMESPACE:-alice}" ;;
    *"--raw"*"watch=true"*)
        cat "$ANSWERS/watch" 2>/dev/null
        rest=${*##*timeoutSeconds=}
        exec sleep "${rest%%&*}" ;;
    *get*slurmjobs*" -- "*)
        cat "$ANSWERS/job" 2>/dev/null && exit
        echo 'Error from server (NotFound): slurmjobs.redbox.dev "x" not found' >&2
        exit 1 ;;
    *get*slurmjobs*)
        cat "$ANSWERS/jobs" 2>/dev/null && exit
        echo 'Unable to connect to the server: i/o timeout' >&2
        exit 1 ;;
    *get*slurmclusters*)
        cat "$ANSWERS/clusters" 2>/dev/null && exit
        echo 'Error from server (Forbidden): slurmclusters.redbox.dev is forbidden: User "a" cannot list' >&2
        exit 1 ;;
    *get*slurmendpoints*" -- "*) cat "$ANSWERS/endpoint" ;;
    *get*slurmendpoints*)
        cat "$ANSWERS/endpoints" 2>/dev/null && exit
        echo "error: the server doesn't have a resource type \"slurmendpoints\"" >&2
        exit 1 ;;
    *get*serviceaccounts*" -- default") echo '{}' ;;
    *get*serviceaccounts*" -- "*)
        echo 'Error from server (NotFound): serviceaccounts "x" not found' >&2
        exit 1 ;;
    *get*serviceaccounts*) echo '{"items": [{"metadata": {"name": "default"}}]}' ;;
    *get*persistentvolumeclaims*" -- results") echo '{}' ;;
    *get*persistentvolumeclaims*" -- "*)
        echo 'Error from server (NotFound): persistentvolumeclaims "x" not found' >&2
        exit 1 ;;
    *get*persistentvolumeclaims*) echo '{"items": [{"metadata": {"name": "results"}}]}' ;;
    *create*token*)
        cat "$ANSWERS/token" 2>/dev/null && exit
        echo 'error: failed to create token: serviceaccounts "x" is forbidden: User "a" cannot create' >&2
        exit 1 ;;
    *create*) cat >"$ANSWERS/created"; cat "$ANSWERS/job" ;;
    *patch*) cat "$ANSWERS/job" 2>/dev/null || echo '{}' ;;
    *delete*) ;;
    exec*) cat >"$ANSWERS/uploaded" ;;
    *"--raw"*"/pods/"*"/log"*)
        pod=${*#*/pods/}
        cat "$ANSWERS/log-${pod%%/*}" 2>/dev/null && exit
        echo 'Error from server (NotFound): pods "x" not found' >&2
        exit 1 ;;
    *get*" pod "*--output=name*)
        [ -e "$ANSWERS/log-${*##* }" ] && exit
        echo 'Error from server (NotFound): pods "x" not found' >&2
        exit 1 ;;
    *get*" pod "*) echo '{}' ;;
    *) echo "error: no answer to $*" >&2; exit 1 ;;
esac
"""


class Kubectl:
    """A kubectl that prints what a test has put there: the real one is on the bed."""

    def __init__(self, folder: Path) -> None:
        self.folder = self._answers = folder / "answers"
        self._answers.mkdir()
        self.program = folder / "kubectl"
        self.program.write_text(SCRIPTED)
        self.program.chmod(0o755)

    def answers(self, name: str, document: Any) -> None:
        whole = {"items": document} if isinstance(document, list) else document
        new = self._answers / f"{name}.new"
        new.write_text(json.dumps(whole))
        new.replace(self._answers / name)  # a program may be reading it

    def when(self, pattern: str, shell: str) -> None:
        """Where its words match the pattern of a shell, it does this instead."""
        self.becomes(self.program.read_text().replace(" in\n", f" in\n    {pattern}) {shell} ;;\n", 1))

    def becomes(self, program: str) -> None:
        """Another program, from its next call on."""
        new = self.program.with_suffix(".new")
        new.write_text(program)
        new.chmod(0o755)
        new.replace(self.program)

    def watched(self, kind: str, document: Any) -> None:
        """The only event of each watch."""
        (self._answers / "watch").write_text(json.dumps({"type": kind, "object": document}) + "\n")

    def says(self, text: str) -> None:
        """Lines of our own in the log of each pod."""
        (self._answers / "said").write_text(text)

    def logs(self, pod: str, text: str) -> None:
        """The log of a pod that there is."""
        (self._answers / f"log-{pod}").write_text(text)

    def forgets(self, name: str) -> None:
        (self._answers / name).unlink()

    @property
    def calls(self) -> list[str]:
        calls = self._answers / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    @property
    def created(self) -> Any:
        return json.loads((self._answers / "created").read_text())

    def environment(self, **more: str) -> dict[str, str]:
        plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        own = {"KUBECTL": str(self.program), "ANSWERS": str(self._answers), "TZ": "UTC", "TERM": "xterm"}
        return {**plain, **own, "LANG": "C.UTF-8", **more}


def run(
    kubectl: Kubectl, *words: str, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Without a terminal."""
    return subprocess.run(
        [PROGRAM, *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        env=dict(env or kubectl.environment()),
    )


def cancelled(kubectl: Kubectl) -> list[str]:
    """By the annotation that the operator acts on."""
    asked = f'"{CANCEL}": "{REQUESTED}"'
    return [call.rpartition(" -- ")[2] for call in kubectl.calls if "patch " in call and asked in call]


class Terminal:
    """A terminal with a program in it, and its screen."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int, columns: int, rows: int) -> None:
        self.process = process
        self.raw = b""
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without empty lines at its end."""
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def colour_of(self, word: str) -> str:
        """The colour in which this word stands."""
        for row, line in enumerate(self._screen.display):
            if (column := line.find(word)) >= 0:
                return str(self._screen.buffer[row][column].fg)
        raise AssertionError(f"{word} is not on the screen: {self.lines}")

    def until(self, holds: Callable[[list[str]], object]) -> list[str]:
        """The screen once this holds of it."""
        deadline = time.monotonic() + WITHIN_S
        while not holds(self.lines):
            assert time.monotonic() < deadline, self.lines
            self._read()
        return self.lines

    def press(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def resize(self, columns: int) -> None:
        fcntl.ioctl(
            self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", self._screen.lines, columns, 0, 0)
        )
        self._screen.resize(columns=columns)

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + WITHIN_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.lines
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        if not self._poll.poll(50):
            return False
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)


@contextlib.contextmanager
def terminal(
    *words: str, env: Mapping[str, str], columns: int = 100, rows: int = 24, program: str = PROGRAM
) -> Iterator[Terminal]:
    """The program in a terminal of its own, which ends with the block."""
    screen, inside = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    # A run of tests in the background ignores it, and programs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        ["setsid", "--ctty", program, *words], stdin=inside, stdout=inside, stderr=inside, env=dict(env)
    )
    os.close(inside)
    try:
        yield Terminal(process, screen, columns, rows)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(WITHIN_S)
        os.close(screen)
