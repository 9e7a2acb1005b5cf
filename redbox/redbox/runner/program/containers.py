"""One container of the pod, from its image to its last end: a thread each, which reads as its life."""

import os
import signal
import threading
import time
from typing import Callable, Optional

from redbox.node.program.started_containers import note_started
from redbox.runner.program.handlers import HandlerTarget, ProbedContainer, check_ports, run_handler
from redbox.runner.program.images import Image, PullFailed, Stopped
from redbox.runner.program.processes import ContainerProcess, DeviceMessage, read_end, signal_number
from redbox.runner.program.reports import running, terminated, waiting
from redbox.runner.program.rules import (
    PORT_HINT,
    START_ERROR,
    BackOff,
    ConfigRefused,
    Document,
    StartFailed,
    end_reason,
    image_digest,
    log_end,
    message_path,
    restarts,
    says_port_in_use,
    shown_image,
    start_error,
)
from redbox.runner.program.starts import (
    DEVICES,
    LARGEST_MESSAGE,
    ContainerStart,
    PodContext,
    StartBuilder,
)
from redbox.runner.program.volumes import remove_tree

CONFIG_RETRY_S = 10.0
SHOWN_S = 3.0
"""How long the error of a pull is shown before its back-off is."""
SHORTEST_GRACE_S = 2.0
FOREVER_S = 1e8
LOG_TAIL = 8192


class ContainerLife:
    """A container's starts, one after the other."""

    def __init__(self, context: PodContext, spec: Document, kind: str) -> None:
        self.name: str = spec["name"]
        self.kind = kind
        self.spec = spec
        self.exit_code: Optional[int] = None
        self.started = threading.Event()
        """Its startup probe has succeeded, and its postStart hook has run."""
        self.ended = threading.Event()
        """For good: nothing follows."""
        self._context = context
        self._builder = StartBuilder(context, spec, kind)
        self._begun = False
        self._restarts = 0
        self._lock = threading.Lock()
        self._process: Optional[ContainerProcess] = None
        self._target: Optional[HandlerTarget] = None
        self._note: Optional[int] = None
        self._stop_signal: int = signal.SIGTERM
        self._last_state: Document = {}
        """How its last start ended."""
        self._state_before: Document = {}
        """How the start before that one did."""

    def begin(self) -> None:
        self._begun = True
        threading.Thread(target=self._live, name=self.name, daemon=True).start()

    def wait_ended(self, limit_s: Optional[float] = None) -> None:
        if self._begun:
            self.ended.wait(limit_s)

    def _live(self) -> None:
        """Start the container until its restart policy says that it has ended for good."""
        backoff = BackOff(at_once_first=True)
        try:
            while True:
                self.exit_code = self._run_once()
                if not self._starts_again(self.exit_code):
                    return
                self._wait_for_restart(backoff.pause(time.time()))
                self._restarts += 1
        except Stopped:
            if self._last_state and "waiting" in self._context.report.state(self.name):
                self._report(state=self._last_state, lastState=self._state_before)
        except Exception as error:
            self._report_end(START_ERROR, "StartError", "the runner failed: {!r}".format(error), None)
            self.exit_code = START_ERROR
            if self._process is not None:
                self._process.kill()
            raise  # to the runner's own log
        finally:
            self.ended.set()
            self._context.wake()

    def _starts_again(self, code: int) -> bool:
        is_unhealthy = self._process is not None and self._process.is_unhealthy
        return restarts(self._context.restart_policy, self.kind, code, is_unhealthy=is_unhealthy)

    def _run_once(self) -> int:
        image = self._bring_image()
        try:
            return self._run_image(image)
        finally:
            if self._note is not None:
                os.close(self._note)
                self._note = None
            if self._process is not None and self._process.console is not None:
                self._process.console.close()

    def _run_image(self, image: Image) -> int:
        started_at = None
        try:
            check_ports(self.spec, self._context.node_name)
            start = self._build_start(image)
            process = self._start(start, image)
            started_at = process.started_at
            code = self._follow(process)
            self._check_start(process, start.log, code)
        except StartFailed as failure:
            self._event("Failed", "Error: {}".format(failure), warning=True)
            self._report_end(START_ERROR, failure.reason, str(failure), started_at)
            return START_ERROR
        if code != 0 and says_port_in_use(read_end(start.log, LOG_TAIL)):
            self._event("PortInUse", PORT_HINT.format(self.name, self._context.node_name), warning=True)
        reason = end_reason(code, out_of_memory=process.was_out_of_memory())
        self._report_end(code, reason, self._end_message(process, start, code), started_at)
        if start.overlay is not None:
            remove_tree(start.overlay)
        return code

    # ------------------------------------------------------------------ image

    def _bring_image(self) -> Image:
        """The image, pulled if need be, again and again until it is here or the pod ends."""
        backoff = BackOff(at_once_first=False)
        within_s = self._context.pod["paths"].get("imagesWithinS") or float("inf")
        give_up_at: Optional[float] = None
        while True:
            self._check_stopping()
            try:
                image = self._context.images.find(self.spec) or self._pull()
            except PullFailed as failure:
                failed_at = time.monotonic()
                if give_up_at is None:
                    give_up_at = failed_at + within_s
                elif failed_at >= give_up_at and not self._restarts:  # a pod that has run goes on
                    self._give_up_pull(failure, within_s)
                self._wait_out_pull(failure, backoff.pause(time.time()))
                continue
            if image.pulled_s is None and not self._restarts:
                self._event(
                    "Pulled", 'Container image "{}" already present on machine'.format(shown_image(self.spec))
                )
            self._report(imageID=image_digest(self.spec["image"]))
            return image

    def _pull(self) -> Image:
        shown = shown_image(self.spec)
        self._event("Pulling", 'Pulling image "{}"'.format(shown))
        try:
            image = self._context.images.pull(self.spec)
        except PullFailed as failure:
            self._event("Failed", 'Failed to pull image "{}": {}'.format(shown, failure), warning=True)
            raise
        self._event("Pulled", 'Successfully pulled image "{}" in {:.3f}s'.format(shown, image.pulled_s or 0))
        return image

    def _wait_out_pull(self, failure: PullFailed, pause_s: float) -> None:
        """Show the error for a while, then that the next pull is waited for."""
        shown = shown_image(self.spec)
        self._report_waiting(failure.reason, str(failure))
        self._event("Failed", "Error: {}".format(failure.reason), warning=True)
        if failure.reason != "ErrImagePull":
            self._sleep(pause_s)
            return
        self._sleep(SHOWN_S)
        message = 'Back-off pulling image "{}"'.format(shown)
        self._event("BackOff", message)
        self._report_waiting("ImagePullBackOff", "{}: ErrImagePull: {}".format(message, failure))
        self._sleep(pause_s - SHOWN_S)

    def _give_up_pull(self, failure: PullFailed, within_s: float) -> None:
        """The pod holds its nodes, and its user pays for them."""
        message = 'image "{}" of container {} could not be pulled for {:.0f} s: {}'.format(
            shown_image(self.spec), self.name, within_s, failure
        )
        self._context.fail("ImagePullFailed", message)

    # ------------------------------------------------------------------ start

    def _build_start(self, image: Image) -> ContainerStart:
        while True:
            self._check_stopping()
            try:
                return self._builder.build(image, self._restarts)
            except ConfigRefused as refusal:
                self._event("Failed", "Error: {}".format(refusal), warning=True)
                self._report_waiting("CreateContainerConfigError", str(refusal))
                self._sleep(CONFIG_RETRY_S)
            except OSError as error:
                raise self._node_failure(error) from error

    def _node_failure(self, error: OSError) -> StartFailed:
        """A full disk, say: what the node could not do for this container."""
        node = self._context.node_name
        return StartFailed("{} on node {}: {}".format(error.filename, node, error.strerror))

    def _start(self, start: ContainerStart, image: Image) -> ContainerProcess:
        name = self.spec.get("stopSignal") or image.config.stop_signal
        self._stop_signal = signal_number(name)
        with self._lock:
            self._check_stopping()
            try:
                process = self._process = start.launch()
            except OSError as error:
                raise self._node_failure(error) from error
        if message_path(self.spec).startswith(DEVICES):
            process.message = DeviceMessage(message_path(self.spec))
        process.wait_started()
        if process.has_exited():
            self._check_start(process, start.log, process.wait())
        address, variables, ended = self._context.address, start.variables, process.ended.is_set
        if process.pid is not None:
            self._note = note_started(self._context.scratch.path, self.name, process.pid, variables)
        target = HandlerTarget(process.pid, start.cwd, address, ended, variables=variables)
        self._target = self._context.targets[self.name] = target
        return process

    def _follow(self, process: ContainerProcess) -> int:
        """Report the container as running, probe it, and wait for its end."""
        self._event("Created", "Created container: {}".format(self.name))
        self._event("Started", "Started container {}".format(self.name))
        self._report(
            state=running(process.started_at), lastState=self._last_state, restartCount=self._restarts
        )
        assert self._target is not None  # noqa: S101 # _start has set it
        probed = ProbedContainer(
            self.spec,
            process,
            self._target,
            self._report_probes,
            on_problem=self._report_problem,
            on_dead=self._report_dead,
        )
        if not self.spec.get("postStart"):
            probed.begin()
        threading.Thread(target=self._complete_start, args=(probed, process), daemon=True).start()
        return process.wait()

    def _complete_start(self, probed: ProbedContainer, process: ContainerProcess) -> None:
        """As kubelets: before the end of its hook a container is not ready, and nothing probes it."""
        hook = self.spec.get("postStart")
        if hook and self._target is not None:
            succeeded, message = run_handler(hook, self._target, FOREVER_S)
            if process.ended.is_set():
                return
            if not succeeded:
                self._event("FailedPostStartHook", "PostStartHook failed: {}".format(message), warning=True)
                self.stop(self._context.grace_s, "FailedPostStartHook")
                return
            probed.begin()
        while not process.ended.is_set():
            if probed.started.wait(0.2):
                self.started.set()
                return

    def _check_start(self, process: ContainerProcess, log: str, code: int) -> None:
        failure: Optional[str] = process.failed_before_start()
        if not failure and process.pid is None:  # else its program was seen, whatever it says
            failure = start_error(code, read_end(log, LOG_TAIL))
        if failure:
            raise StartFailed("failed to start container {}: {}".format(self.name, failure))

    # ------------------------------------------------------------------ probes

    def _report_probes(self, started: bool, ready: bool) -> None:  # noqa: FBT001 # a report of two facts
        if "running" in self._context.report.state(self.name):
            self._report(started=started, ready=ready)

    def _report_problem(self, kind: str, message: str, succeeded: bool) -> None:  # noqa: FBT001 # as above
        reason, word = ("ProbeWarning", "warning") if succeeded else ("Unhealthy", "failed")
        self._event(reason, "{} probe {}: {}".format(kind, word, message), warning=True)

    def _report_dead(self, kind: str, probe: Document) -> None:
        own, process = probe.get("terminationGraceS"), self._process
        if process is not None and not process.ended.is_set():
            process.is_unhealthy = True
        why = "Container {} failed {} probe".format(self.name, kind.lower())
        if restarts(self._context.restart_policy, self.kind, 0, is_unhealthy=True):
            why += ", will be restarted"
        self.stop(self._context.grace_s if own is None else own, why)

    # ------------------------------------------------------------------ end

    def stop(self, grace_s: float, why: str, wait_for_turn: Optional[Callable[[float], None]] = None) -> None:
        """Stop what runs now: preStop, the stop signal, the grace period, SIGKILL."""
        with self._lock:
            process, target = self._process, self._target
            if process is None or process.ended.is_set():
                return
            is_first = not process.stopping.is_set()
            process.stopping.set()
        until = time.monotonic() + grace_s
        if is_first:
            self._event("Killing", why)
            self._run_pre_stop(target, grace_s)
            if wait_for_turn is not None:
                wait_for_turn(max(0.0, until - time.monotonic()))
            process.signal(self._stop_signal)
        if not process.ended.wait(max(SHORTEST_GRACE_S, until - time.monotonic())):
            process.kill()

    def pass_on(self, number: int) -> None:
        process = self._process
        if process is not None:
            process.pass_on(number)

    def _run_pre_stop(self, target: Optional[HandlerTarget], grace_s: float) -> None:
        hook = self.spec.get("preStop")
        if not hook or target is None or grace_s <= 0:
            return
        succeeded, message = run_handler(hook, target, grace_s)
        if not succeeded and not target.ended():
            self._event("FailedPreStopHook", "PreStopHook failed: {}".format(message), warning=True)

    def _end_message(self, process: ContainerProcess, start: ContainerStart, code: int) -> str:
        """As kubelets: the end of a long file, and of that the first where many containers share a pod's."""
        limit = self._context.message_limit
        text = process.message.read(LARGEST_MESSAGE) if process.message is not None else ""
        if start.message_file:
            text = read_end(start.message_file, LARGEST_MESSAGE)
        text = text[:limit]
        if not text and code != 0 and self.spec.get("messageFromLogs"):
            text = log_end(read_end(start.log, LOG_TAIL))[-limit:]
        return text

    def _report_end(self, code: int, reason: str, message: str, started_at: Optional[float]) -> None:
        self._state_before = self._last_state
        self._last_state = terminated(code, reason, message, started_at)
        is_done = self.kind == "init" and code == 0
        # The API server lets no container of such a pod leave an end that it does not count as a failure.
        is_passed = code == 0 and self._context.restart_policy == "OnFailure" and self._starts_again(code)
        self._report(
            state=waiting("ContainerCreating") if is_passed else self._last_state,
            lastState=self._last_state if is_passed else self._state_before,
            restartCount=self._restarts,
            ready=is_done,
            started=False,
        )

    def _wait_for_restart(self, pause_s: float) -> None:
        self._check_stopping()
        if pause_s <= 0:
            return
        pod = self._context.full_name
        message = "back-off {:.0f}s restarting failed container={} pod={}".format(pause_s, self.name, pod)
        self._event(
            "BackOff",
            "Back-off restarting failed container {} in pod {}".format(self.name, pod),
            warning=True,
        )
        self._report_waiting("CrashLoopBackOff", message)
        self._sleep(pause_s)

    # ------------------------------------------------------------------ helpers of all

    def _check_stopping(self) -> None:
        if self._context.stopping.is_set():
            raise Stopped

    def _sleep(self, seconds: float) -> None:
        if self._context.stopping.wait(max(0.0, seconds)):
            raise Stopped

    def _report_waiting(self, reason: str, message: str) -> None:
        """Its log is that of its last start meanwhile, and `kubectl logs --previous` shows it too."""
        self._report(state=waiting(reason, message), lastState=self._last_state)

    def _report(self, **fields: object) -> None:
        self._context.report.change(self.name, **fields)

    def _event(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._context.report.event(reason, message, self.name, warning=warning)
