"""The pod: its containers in Kubernetes' order, its deadline, its deletion, and its report.

One thread starts the containers in order; the main thread waits for signals, deadlines and changes, and
writes the report. Another one takes orders: a container to begin beside the others, as `kubectl debug` adds.
What red-box has changed of the pod since is applied in a thread, on a signal.
"""

import json
import os
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional

from redbox.node.program.attachments import (
    ATTACH_END,
    ATTACH_FOLDER,
    ORDERS,
    is_own_peer,
    listen_for_clients,
    receive_input,
)
from redbox.runner.program.containers import ContainerLife
from redbox.runner.program.images import PullFailed
from redbox.runner.program.reports import ReportFile
from redbox.runner.program.rules import KILL_WAIT_S, BackOff, Document, grace_at, in_letters_of_node
from redbox.runner.program.starts import PodContext
from redbox.runner.program.volumes import MountFailed, NodeVolume

CHECK_S = 10.0
MERGE_S = 0.02
EVICTION_GRACE_S = 1.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PASSED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""For the programs, as by Slurm's --signal=B:USR1@300: a batch script without a handler would end."""
UPDATE_SIGNAL = signal.SIGURG
"""There is an update; a program that does not handle it is not ended by it."""
UPDATES_S, UPDATES_AGAIN_S = 600.0, 5.0
"""Between looks without a signal, which may be lost; after one that came before its file was shown here."""
DELETED = 143
FAILED = 1
ORDER_BYTES, ORDER_S = 4 * 1024 * 1024, 10.0
MOST_EPHEMERAL = 32
ACCEPTED = {"code": 0}
SAME_S = 5.0
"""Slurm signals each process of a job: programs may be seen to end on it before this process has it."""


class EphemeralLife(ContainerLife):
    """A container that was added to a pod that runs: nothing of it ends the pod."""

    def _give_up_pull(self, failure: PullFailed, within_s: float) -> None:
        """The pod runs on, and so do the attempts."""


class PodRunner:
    """Runs a pod until all of its containers have ended for good."""

    def __init__(
        self, context: PodContext, report_file: ReportFile, apply_updates: Callable[[], Optional[bool]]
    ) -> None:
        """`apply_updates`: whether all could be applied; None: there were none."""
        self._context = context
        self._report_file = report_file
        self._apply_updates = apply_updates
        self._began = time.monotonic()
        self._parent = context.parent
        self._sidecars_and_inits = [
            ContainerLife(context, spec, "sidecar" if spec.get("alwaysRestarts") else "init")
            for spec in context.pod.get("initContainers") or []
        ]
        self._mains = [ContainerLife(context, spec, "main") for spec in context.pod["containers"]]
        self._added: List[EphemeralLife] = []
        self._writing = threading.Lock()
        self._over_at = float("inf")
        """When the main containers had ended for good, or would never start."""
        self._finished = False
        self._deleted = False
        """A signal has come: of the pod's deletion, or since Slurm ends the job."""
        self.stopped = False
        """It came before the pod was over."""
        self._continued_at = self._signalled_again_at = float("-inf")
        self._is_updated = self._is_updating = False
        """A signal has come: there are updates; they are being applied."""
        self._updates_at = self._began + UPDATES_S
        self._is_hurried = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        context.report.on_change = context.wake = self.wake
        context.fail = self._fail

    @property
    def _all(self) -> List[ContainerLife]:
        return [*self._added, *self._sidecars_and_inits, *self._mains]

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is awake already
            os.write(self._wake_write, b".")

    def run(self) -> int:
        """Return the exit code of the job: 0, or that of the first container that failed."""
        for number in STOP_SIGNALS:
            signal.signal(number, lambda _number, _frame: self._delete())
        for number in PASSED_SIGNALS:
            signal.signal(number, lambda received, _frame: self._pass_on(received))
        signal.signal(signal.SIGCONT, lambda _number, _frame: self._note_continued())
        signal.signal(UPDATE_SIGNAL, lambda _number, _frame: self._note_updated())
        threading.Thread(target=self._run_in_order, daemon=True).start()
        threading.Thread(target=self._take_orders, daemon=True).start()
        if self._context.volumes.has_limits:
            threading.Thread(target=self._keep_sizes, daemon=True).start()
        while not self._finished:
            self._write()
            self._wait()
            self._keep_deadline()
            self._keep_to_slurm()
            self._begin_updates()
        return self._exit_code()

    # ------------------------------------------------------------------ order

    def _run_in_order(self) -> None:
        """Init containers one after the other, then all others at once; sidecars end last."""
        try:
            if self._mount_host_paths() and self._initialize():
                for container in self._mains:
                    container.begin()
                for container in self._mains:
                    container.ended.wait()
            self._over_at = time.monotonic()
            self._stop(self._context.grace_s, "Stopping container {}")
            self._await_stopped()
        except Exception as error:
            self._context.report.explain("StartError", "the runner failed: {!r}".format(error))
            self._context.stopping.set()
            raise  # to the runner's own log
        finally:
            self._finished = True
            self.wake()

    def _initialize(self) -> bool:
        """Whether every init container has completed, and every sidecar has started."""
        for container in self._sidecars_and_inits:
            container.begin()
            if container.kind == "sidecar":
                while not (container.started.wait(0.1) or container.ended.is_set()):
                    pass
            else:
                container.ended.wait()
            if self._context.stopping.is_set() or (container.kind == "init" and container.exit_code != 0):
                return False
        return True

    def _mount_host_paths(self) -> bool:
        """Check them again and again: what is missing may come."""
        backoff = BackOff(at_once_first=False)
        while not self._context.stopping.is_set():
            failure = find_mount_failure(self._context)
            if not failure:
                return True
            self._context.report.event("FailedMount", failure, warning=True)
            self._context.stopping.wait(backoff.pause(time.time()))
        return False

    # ------------------------------------------------------------------ updates

    def _note_updated(self) -> None:
        self._is_updated = True
        self.wake()

    def _begin_updates(self) -> None:
        if self._is_updating or not (self._is_updated or time.monotonic() >= self._updates_at):
            return
        self._is_updating = True
        threading.Thread(target=self._update, args=(self._is_updated,), daemon=True).start()
        self._is_updated = False

    def _update(self, is_signalled: bool) -> None:  # noqa: FBT001 # a thread's one argument
        """In a thread of its own: the file system may be slow."""
        backoff = BackOff(at_once_first=False)
        applied: Optional[bool] = None
        try:
            applied = self._apply_updates()
            while applied is False and not self._context.stopping.wait(backoff.pause(time.time())):
                applied = self._apply_updates()
        finally:
            is_late = is_signalled and applied is None
            self._updates_at = time.monotonic() + (UPDATES_AGAIN_S if is_late else UPDATES_S)
            self._is_updating = False
            self.wake()  # for a deadline that may be over, and for a signal that came meanwhile

    # ------------------------------------------------------------------ ends

    def _delete(self) -> None:
        """A signal has come: the pod is being deleted. Only notes it, since it interrupts anything."""
        self._deleted = True
        if self._context.stopping.is_set():
            self._signalled_again_at = time.monotonic()
        self.stopped = self.stopped or time.monotonic() < self._over_at + SAME_S
        self.wake()

    def _note_continued(self) -> None:
        self._continued_at = time.monotonic()
        self.wake()

    def _pass_on(self, number: int) -> None:
        for container in self._mains:
            container.pass_on(number)

    def _stop(self, grace_s: float, why: str) -> None:
        """Stop all that runs, once: sidecars after the others, in reverse order."""
        if self._context.stopping.is_set():
            return
        self._context.stopping.set()
        earlier: List[ContainerLife] = [c for c in self._all if c.kind != "sidecar"]
        for container in earlier:
            self._stop_in_thread(container, grace_s, why, None)
        for sidecar in reversed([c for c in self._all if c.kind == "sidecar"]):
            self._stop_in_thread(sidecar, grace_s, why, turn_after(list(earlier)))
            earlier.append(sidecar)

    def _stop_in_thread(
        self, container: ContainerLife, grace_s: float, why: str, turn: Optional[Callable[[float], None]]
    ) -> None:
        arguments = (grace_s, why.format(container.name), turn)
        threading.Thread(target=container.stop, args=arguments, daemon=True).start()

    def _hurry(self) -> None:
        """Slurm cancels the job, by SIGCONT and SIGTERM, while its containers have their grace period.

        What they leave on the node must be gone, and reported, before its SIGKILL. A SIGTERM without SIGCONT
        is the next server's, which repeats the request to stop.
        """
        self._is_hurried = True
        for container in self._all:
            self._stop_in_thread(container, KILL_WAIT_S, "Stopping container {}", None)

    def _await_stopped(self) -> None:
        """Wait for all that has begun; `ended` of what has not begun is never set."""
        for container in self._all:
            container.wait_ended()

    def _keep_deadline(self) -> None:
        if self._deleted:
            job_end = self._context.host_environment.get("SLURM_JOB_END_TIME", "")
            is_slurms = time.monotonic() - self._continued_at < SAME_S
            grace_s = grace_at(time.time(), self._context.grace_s, job_end, is_slurms=is_slurms)
            self._stop(grace_s, "Stopping container {}")
        if not self._is_hurried and abs(self._signalled_again_at - self._continued_at) < SAME_S:
            self._hurry()  # SIGCONT comes just before
        deadline = self._context.pod.get("activeDeadlineS")
        if deadline and time.monotonic() - self._began >= deadline and not self._context.stopping.is_set():
            message = "Pod was active on the node longer than the specified deadline"
            self._context.report.explain("DeadlineExceeded", message)
            self._context.report.event("DeadlineExceeded", message)
            self._stop(self._context.grace_s, "Stopping container {}")

    def _keep_to_slurm(self) -> None:
        """End when slurmstepd has gone, which began this process: the node is others' from then on."""
        if os.getppid() == self._parent or self._context.stopping.is_set():
            return
        message = "Slurm's step daemon of this job has gone on node {}".format(self._context.node_name)
        self._context.report.explain("NodeLost", message)
        self._stop(self._context.grace_s, "Stopping container {}")

    def _keep_sizes(self) -> None:
        """In a thread of its own: a volume of many files takes long."""
        while not self._context.stopping.wait(CHECK_S):
            volume = self._context.volumes.oversized()
            if volume is not None:
                self._evict(volume)

    def _evict(self, volume: NodeVolume) -> None:
        if self._context.stopping.is_set():
            return
        message = 'Usage of EmptyDir volume "{}" exceeds the limit "{}". '.format(
            volume.name, volume.size_limit
        )
        self._context.report.explain("Evicted", message)
        self._context.report.event("Evicted", message, warning=True)
        self._stop(EVICTION_GRACE_S, "Stopping container {}")

    def _fail(self, reason: str, message: str) -> None:
        """For a container, in its thread."""
        if self._context.stopping.is_set():
            return
        self._context.report.explain(reason, message)
        self._context.report.event(reason, message, warning=True)
        self._stop(self._context.grace_s, "Stopping container {}")

    def _exit_code(self) -> int:
        failures = [c.exit_code for c in self._all if c.kind in ("init", "main") and c.exit_code]
        if failures:
            return failures[0]
        if self.stopped:
            return DELETED
        return 0 if all(c.exit_code == 0 for c in self._mains) else FAILED

    # ------------------------------------------------------------------ orders

    def _take_orders(self) -> None:
        """One after the other, of this user's own processes."""
        try:
            listener = listen_for_clients(self._context.scratch.folder(ATTACH_FOLDER), ORDERS)
        except OSError:  # a full disk: the pod runs all the same
            return
        listener.settimeout(None)
        while True:
            with suppress(OSError), listener.accept()[0] as client:
                if is_own_peer(client):
                    client.settimeout(ORDER_S)
                    client.send(ATTACH_END + json.dumps(self._obey(client)).encode())
                    client.recv(1)  # its end, before which it may not have read the answer

    def _obey(self, client: "socket.socket") -> Dict[str, Any]:
        try:
            spec = in_letters_of_node(json.loads(receive_input(client, ORDER_BYTES).decode()))
            refusal = self._add(spec)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            refusal = "the runner cannot read this order: {!r}".format(error)
        return {"reason": "Refused", "message": refusal} if refusal else ACCEPTED

    def _add(self, spec: Document) -> str:
        """Begin a container beside the others; why not, if it cannot be. The same one is begun once."""
        name = spec["name"]
        if any(added.name == name for added in self._added):
            return ""
        if any(container.name == name for container in self._all):
            return "this pod has a container {} of its own".format(name)
        if self._context.stopping.is_set():
            return "the pod is ending"
        if len(self._added) >= MOST_EPHEMERAL:
            return "a pod can have {} ephemeral containers".format(MOST_EPHEMERAL)
        self._context.report.add(name, "ephemeral")
        added = EphemeralLife(self._context, spec, "ephemeral")
        self._added.append(added)
        added.begin()
        self._write()  # before the answer: it is read next
        return ""

    # ------------------------------------------------------------------ the main thread's waits

    def _wait(self) -> None:
        """Wait for a change, a signal, or the next time at which there may be something to do."""
        left = CHECK_S
        deadline = self._context.pod.get("activeDeadlineS")
        if deadline:
            left = min(left, max(0.0, self._began + deadline - time.monotonic()))
        woken = select.poll()
        woken.register(self._wake_read, select.POLLIN)
        woken.poll(1000 * (left if not self._context.stopping.is_set() else 1.0))
        time.sleep(MERGE_S)
        with suppress(BlockingIOError):
            os.read(self._wake_read, 65536)

    def _write(self) -> None:
        with self._writing:
            line = self._context.report.take_line()
            if line is None:
                return
            try:
                self._report_file.write(line)
            except OSError:  # a full file system: the next change, or turn, tries again
                self._context.report.keep()


def turn_after(others: List[ContainerLife]) -> Callable[[float], None]:
    def wait(left_s: float) -> None:
        until = time.monotonic() + left_s
        for container in others:
            container.wait_ended(max(0.0, until - time.monotonic()))

    return wait


def find_mount_failure(context: PodContext) -> str:
    try:
        context.volumes.check_host_paths()
    except MountFailed as failure:
        return str(failure)
    return ""
