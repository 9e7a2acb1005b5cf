"""kubectl as the client of the API server.

A plugin is called by kubectl, and users expect it to reach the cluster as kubectl does: the same contexts,
files in KUBECONFIG, exec plugins, client certificates, proxies, impersonation. client-go inside of kubectl
has all of that, and one call of it takes 60 to 100 ms; docs/developers/decisions/plugin.md has the
measurements of the Python clients, and what each lacks.

Lines on kubectl's stderr that are not its own, such as the instructions of a login, pass through at once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

from kubectl_slurm.errors import PluginError
from kubectl_slurm.kubectl.refusals import is_own_line, refusal_of
from redbox_shared.printable import printable

Object = dict[str, Any]
PassOn = Callable[[str], None]
"""What becomes of a line, with its newline."""

SLURMJOBS = "slurmjobs.v1alpha1.redbox.dev"
SLURMCLUSTERS = "slurmclusters.v1alpha1.redbox.dev"
SLURMENDPOINTS = "slurmendpoints.v1alpha1.redbox.dev"
DEADLINE = "30s"
REST_S = 5.0
"""In which the last lines of a kubectl that has ended are read."""
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
PROGRAM_VARIABLE = "KUBECTL"
NO_PROGRAM = "{0} is not there, or not in PATH: install kubectl, or name it in the variable KUBECTL"


def _write_stderr(line: str) -> None:
    sys.stderr.write(printable(line, lines=True))
    sys.stderr.flush()


@dataclass(frozen=True)
class Kubectl:
    """kubectl with the options that select cluster, user and namespace."""

    program: str
    options: tuple[str, ...] = ()
    _namespace: list[str] = field(default_factory=list, compare=False)

    def json(self, *arguments: str, stdin: str | None = None) -> Object:
        """What kubectl prints as JSON."""
        return _object(self.text(arguments[0], "--output=json", *arguments[1:], stdin=stdin), arguments[0])

    def raw(self, path: str) -> Object:
        """The answer to a GET of this path."""
        return _object(self.text("get", "--raw", path), "get")

    def text(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints; raises Refusal with the cure where it fails."""
        code, out, err = self.outcome(*arguments, stdin=stdin)
        if code:
            raise refusal_of(err, self.namespace_option)
        return out

    def outcome(self, *arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        """Exit code, stdout, and kubectl's own lines of stderr."""
        deadline = [] if is_in_pod() else [f"--request-timeout={DEADLINE}"]
        with self.process(*deadline, *arguments, stdin=stdin) as (process, errors):
            out = process.stdout.read() if process.stdout else b""
            code = process.wait()
        return code, out.decode("utf-8", "replace"), errors.text()

    @contextmanager
    def process(
        self, *arguments: str, stdin: str | None = None, pass_on: PassOn = _write_stderr
    ) -> Iterator[tuple[subprocess.Popen[bytes], ErrorLines]]:
        """A kubectl that runs, and what it writes to stderr; ended with the block."""
        given = subprocess.PIPE if stdin is not None else None
        with subprocess.Popen(
            self.argv(*arguments), stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            errors = ErrorLines(process.stderr, pass_on)
            try:
                if process.stdin is not None:
                    _send(process.stdin, (stdin or "").encode())
                yield process, errors
            finally:
                if process.poll() is None:
                    process.terminate()
                errors.end()

    def stream(self, *arguments: str) -> tuple[int, str]:
        """Run with stdout as it is; returns the exit code, and kubectl's own lines of stderr."""
        with subprocess.Popen(self.argv(*arguments), stderr=subprocess.PIPE) as process:
            errors = ErrorLines(process.stderr)
            try:
                code = process.wait()
            except KeyboardInterrupt:
                process.terminate()
                raise
            errors.end()
        return code, errors.text()

    def become(self, *arguments: str) -> NoReturn:
        """Go on as this kubectl: it has the terminal, the signals and the exit code."""
        sys.stdout.flush()
        os.execv(self.program, self.argv(*arguments))  # noqa: S606 (no shell is the point)

    def argv(self, *arguments: str) -> list[str]:
        return [self.program, *self.options, *arguments]

    @property
    def namespace_option(self) -> str | None:
        prefix = "--namespace="
        return next((word.removeprefix(prefix) for word in self.options if word.startswith(prefix)), None)

    @property
    def namespace(self) -> str:
        """The namespace that requests go to; asked of kubectl once."""
        if given := self.namespace_option:
            return given
        if not self._namespace:
            code, out, _ = self.outcome("config", "view", "--minify", "--output=jsonpath={..namespace}")
            found = out.split() if code == 0 else []
            self._namespace.append((found or [_namespace_of_pod() or "default"])[0])
        return self._namespace[0]


class ErrorLines:
    """stderr of a kubectl: its own lines are kept, all others are passed on."""

    def __init__(self, source: IO[bytes] | None, pass_on: PassOn = _write_stderr) -> None:
        self._kept: list[str] = []
        self._pass_on = pass_on
        own = None if source is None else os.dup(source.fileno())  # the other one is closed with the process
        self._reader = threading.Thread(target=self._read, args=(own,), daemon=True)
        self._reader.start()

    def _read(self, descriptor: int | None) -> None:
        if descriptor is None:
            return
        with open(descriptor, "rb") as source:  # noqa: PTH123 (it has no path)
            for raw in source:
                line = raw.decode("utf-8", "replace")
                if self._kept or is_own_line(line):
                    self._kept.append(line)
                else:
                    self._pass_on(line)

    def end(self) -> None:
        """Kubectl has ended; what its login program left running may hold its stderr open for hours."""
        self._reader.join(REST_S)

    def text(self) -> str:
        return "".join(self._kept)


def is_in_pod() -> bool:
    """Whether kubectl may use the pod's service account: with --request-timeout it does not."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def _namespace_of_pod() -> str:
    """Where a kubeconfig names none, kubectl in a pod uses the pod's."""
    if not is_in_pod():
        return ""
    with suppress(OSError):
        return os.environ.get("POD_NAMESPACE") or POD_NAMESPACE.read_text().strip()
    return ""


def _object(text: str, command: str) -> Object:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PluginError(f"kubectl {command} printed no JSON object: {text[:200]!r}")
    return found


def _send(pipe: IO[bytes], data: bytes) -> None:
    try:
        with pipe:
            pipe.write(data)
    except BrokenPipeError:
        pass  # it has ended, and says why


def find_kubectl(options: Sequence[str], environment: Mapping[str, str]) -> Kubectl:
    """The kubectl of this environment."""
    named = environment.get(PROGRAM_VARIABLE) or "kubectl"
    program = shutil.which(named, path=environment.get("PATH"))
    if not program:
        raise PluginError(NO_PROGRAM.format(named))
    return Kubectl(program, tuple(options))
