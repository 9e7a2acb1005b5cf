"""The life of a companion: attach or submit, relay the output, collect results, and end as the job ended.

It requests its key first and attaches to the job that has it; it submits only if there is no such job. It
never cancels: on SIGTERM it exits at once, and the job lives on. Its own lines are on stderr, before the
job's first byte or after the last, and between the tasks of an array: never within the job's output.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus

from redbox_companion.array_relay import follow_tasks
from redbox_companion.log_relay import LogRelay, LogUnreadable, OutputClosed, OutputStream, WriteOrder
from redbox_companion.redbox_client import BlockingClient, RedboxAnswer, RedboxUnreachable
from redbox_companion.retrier import Retrier
from redbox_companion.session_listener import listen_for_sessions
from redbox_companion.settings import CompanionSettings, read_request
from redbox_shared import job_end
from redbox_shared.backoff import Backoff
from redbox_shared.own_lines import own_line
from redbox_shared.pod_contract import HELPER, SUBMIT_ONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any, NoReturn

    from redbox_companion.results import ResultsOutcome

STDOUT, STDERR = 1, 2
STREAMS = (("stdout", STDOUT), ("stderr", STDERR))
POLL_S = 2.0
FIRST_STATE_POLLS = Backoff(0.3, POLL_S, factor=1.5)  # red-box polls Slurm at once after a submit, if it may
UNCONFIRMED = "Submitting"  # whether Slurm has the job is unknown: only a PUT may try again
COMPLETE, CUT, UNREAD = "complete", "cut", "unread"


class JobRefused(Exception):
    """Red-box refuses this job, or this caller."""

    def __init__(self, answer: RedboxAnswer) -> None:
        super().__init__(answer.explanation)
        self.answer = answer


class CompanionProcess:
    """Represents one job in Kubernetes."""

    def __init__(self, pod: CompanionSettings, redbox: BlockingClient) -> None:
        self._settings = pod
        self._redbox = redbox
        self._path = f"/v1/jobs/{pod.key}"
        self._attached = False
        self._outputs = {name: OutputStream(descriptor) for name, descriptor in STREAMS}
        self._drift: str | None = None
        self._contradiction = ""
        self._relays: dict[str, LogRelay] = {}
        self._logs: dict[str, str] = {}
        self._log_errors: list[str] = []

    def run(self) -> int:
        try:
            if self._settings.mode == HELPER:
                return self._help_until_ended()
            job = self._attach_or_submit()
            if self._settings.mode == SUBMIT_ONLY:
                self._write_message(job_end.JobEnd(job))
                return 0
            is_array = bool(self._wait_until_in_slurm(job).get("array"))
            del job  # of an array it may be large
            self._serve()
            return self._end_as(self._relay_until_ended(is_array=is_array))
        except JobRefused as refusal:
            return self._end_refused(refusal)

    # -- submitting

    def _attach_or_submit(self) -> dict[str, Any]:
        answer = self._request("GET")
        while answer.status == HTTPStatus.NOT_FOUND or answer.body["phase"] == UNCONFIRMED:
            answer = self._submit()
        self._attached = True
        return answer.body

    def _submit(self) -> RedboxAnswer:
        answer = self._request("PUT", read_request(self._settings))
        if answer.status == HTTPStatus.CONFLICT:
            existing = self._request("GET")
            if existing.status != HTTPStatus.OK:
                raise JobRefused(answer)
            self._drift = answer.explanation
            answer = existing
        else:
            for warning in answer.body.get("warnings") or ():
                self._say(str(warning))
        if answer.body["phase"] == UNCONFIRMED:
            time.sleep(POLL_S)
        return answer

    def _request(self, method: str, body: bytes | None = None) -> RedboxAnswer:
        """Request our job until there is a conclusive answer."""
        conclusive = HTTPStatus.NOT_FOUND if method == "GET" else HTTPStatus.CONFLICT
        retrier, refused_since = Retrier(None if self._attached else self._say), None
        while True:
            try:
                answer = self._redbox.request(method, self._path, {"attempt": self._settings.attempt}, body)
            except RedboxUnreachable as error:
                retrier.wait(str(error))
                continue
            if answer.status < HTTPStatus.BAD_REQUEST:
                if job_end.is_job(answer.body, self._settings.key, self._settings.attempt):
                    return answer
                retrier.wait("its answer is not about this job, or not understood")
                continue
            if answer.status == conclusive:
                return answer
            if not answer.may_change:
                refused_since = refused_since or time.monotonic()
                if time.monotonic() - refused_since >= self._grace_s(answer):
                    raise JobRefused(answer)
            retrier.wait(answer.explanation, at_least=answer.retry_after)

    def _grace_s(self, answer: RedboxAnswer) -> float:
        """How long a refusal may yet be withdrawn: a submitted job outlives a mistake in the mapping."""
        may_pass = self._attached or answer.status == HTTPStatus.UNAUTHORIZED  # clocks, keys, rotation
        return self._settings.lost_after_s if may_pass else 0.0

    # -- following

    def _job(self) -> dict[str, Any]:
        """The job as red-box has it; Lost once red-box has had no record of it for long."""
        missing_since = None
        while True:
            answer = self._request("GET")
            if answer.status != HTTPStatus.NOT_FOUND:
                return answer.body
            missing_since = missing_since or time.monotonic()
            if time.monotonic() - missing_since >= self._settings.lost_after_s:
                return {"phase": job_end.LOST, "message": "red-box has no record of this job any more"}
            time.sleep(POLL_S)

    def _wait_until_in_slurm(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job once Slurm has shown it: before, its logs are unknown, and whether it is an array."""
        polls = 0
        while not job.get("state") and not self._has_ended(job):
            polls += 1
            time.sleep(FIRST_STATE_POLLS.full_pause_s(polls))
            job = self._job()
        return job

    def _final_job(self) -> dict[str, Any]:
        while not self._has_ended(job := self._job()):
            time.sleep(POLL_S)
        return job

    def _has_ended(self, job: Mapping[str, Any]) -> bool:
        """Whether it has ended; an answer that contradicts itself is reported once and ignored."""
        why = job_end.contradiction(job)
        if why and why != self._contradiction:
            self._say(job_end.contradiction_message(why))
        self._contradiction = why
        return job_end.has_ended(job)

    def _relay_until_ended(self, *, is_array: bool) -> dict[str, Any]:
        """The ended job. Where red-box ends a log and the job lives, the log goes on from the same byte."""
        self._relay(is_array=is_array)
        while not self._has_ended(job := self._job()):
            time.sleep(POLL_S)
            if not is_array:
                self._relay(is_array=False)
        return job

    def _relay(self, *, is_array: bool) -> None:
        names = [name for name in self._outputs if self._logs.get(name, COMPLETE) == COMPLETE]
        self._logs |= dict.fromkeys(names, CUT)  # until the last byte is written
        if is_array:
            threads = [threading.Thread(target=self._relay_tasks, daemon=True)]
        else:
            threads = [
                threading.Thread(target=self._relay_stream, args=(name,), name=name, daemon=True)
                for name in names
            ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a join without an end holds up a SIGTERM that another thread takes
                thread.join(POLL_S)

    def _relay_stream(self, name: str) -> None:
        relay = self._relays.setdefault(name, self._relay_of(name))
        try:
            self._follow(relay)
            self._logs[name] = COMPLETE
        except LogUnreadable as error:
            self._record_unreadable(name, str(error), copied=bool(relay.copied))
        except (OutputClosed, JobRefused) as error:  # main meets a refusal too, and ends with it
            self._log_errors.append(f"{name} is incomplete: {error}")

    def _follow(self, relay: LogRelay) -> None:
        """To the end; an unreadable log may become readable as long as the job is not final."""
        final = False
        while True:
            try:
                return relay.follow()
            except LogUnreadable:
                if final:
                    raise
                final = job_end.has_ended(self._job())
                if not final:
                    time.sleep(POLL_S)

    def _relay_tasks(self) -> None:
        order = WriteOrder()  # each task's output has to stay below its heading
        for output in self._outputs.values():
            output.keep_order(order)
        copied: set[str] = set()

        def relays_of(task: int, before_piece: Callable[[], None]) -> dict[str, LogRelay]:
            def before_piece_of(name: str) -> None:
                copied.add(name)
                before_piece()

            return {
                name: self._relay_of(name, partial(before_piece_of, name), task=task)
                for name in self._outputs
            }

        try:
            unreadable = follow_tasks(self._job, relays_of, self._say)
        except (OutputClosed, JobRefused) as error:
            self._log_errors.append(f"the tasks' output is incomplete: {error}")
            return
        self._logs = dict.fromkeys(self._outputs, COMPLETE)
        for name, why in unreadable:
            self._record_unreadable(name, why, copied=name in copied)

    def _relay_of(self, name: str, before_piece: Callable[[], None] | None = None, **task: int) -> LogRelay:
        query = {"attempt": self._settings.attempt, **task}
        return LogRelay(self._redbox, f"{self._path}/logs/{name}", query, self._outputs[name], before_piece)

    def _record_unreadable(self, name: str, why: str, *, copied: bool) -> None:
        self._logs[name] = CUT if copied else UNREAD
        self._log_errors.append(f"{name} cannot be read: {why}")

    # -- ports

    def _serve(self) -> None:
        """Sessions and ports, in threads of their own, until the process ends."""
        with suppress(OSError):  # another companion of this job runs here
            listen_for_sessions(self._redbox, self._path, self._settings.attempt)
        self._serve_ports()

    def _serve_ports(self) -> None:
        if not self._settings.ports:
            return
        from redbox_companion.streams.ports import JobPorts  # noqa: PLC0415 - memory, for the jobs that need it

        JobPorts(self._settings, self._redbox, self._path, self._say).start()

    # -- ending

    def _end_as(self, job: dict[str, Any]) -> int:
        end = job_end.JobEnd(job)
        for error in self._log_errors:
            self._say(error)
        if sentence := end.explanation():
            self._say(sentence)
        results = self._results(end)
        worst = max(self._logs.values(), key=(COMPLETE, CUT, UNREAD).index)
        self._write_message(end, logs=worst, results=results)
        return end.pod_exit_code()

    def _help_until_ended(self) -> int:
        """Another pod submits the job: this one serves its ports until it ends, then collects its results."""
        while self._settings.ports and self._request("GET").status == HTTPStatus.NOT_FOUND:
            time.sleep(POLL_S)
        self._attached = True
        if self._settings.ports:
            self._serve()
        end = job_end.JobEnd(self._final_job())
        results = self._results(end)
        self._write_message(end, results=results)
        return job_end.EXIT_RESULTS_FAILED if results and results.outcome == "Failed" else 0

    def _results(self, end: job_end.JobEnd) -> ResultsOutcome | None:
        wanted = self._settings.results
        if wanted is None:
            return None
        from redbox_companion import results  # noqa: PLC0415 - tarfile's memory, for the few jobs that need it

        collector = results.ResultsCollector(
            self._redbox, self._path, self._settings.attempt, Retrier(self._say)
        )
        collected = results.skipped(wanted, end.phase) or collector.collect(wanted)
        if collected.outcome == results.FAILED:
            self._say(f"results: {collected.message}")
        return collected

    def _end_refused(self, refusal: JobRefused) -> int:
        self._say(str(refusal))
        problem_type = str(refusal.answer.body.get("type", ""))
        message = job_end.refusal_message(str(refusal), problem_type=problem_type)
        write_termination_message(self._settings.termination_file, message)
        denied = refusal.answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        return job_end.EXIT_NOT_ALLOWED if denied else job_end.EXIT_REFUSED

    def _write_message(
        self, end: job_end.JobEnd, *, logs: str | None = None, results: ResultsOutcome | None = None
    ) -> None:
        message = end.termination_message(
            logs=logs, results=results._asdict() if results else None, specDrift=self._drift
        )
        write_termination_message(self._settings.termination_file, message)

    def _say(self, sentence: str) -> None:
        """Write one line of our own on stderr."""
        output = self._outputs["stderr"]
        begin = b"\n" if output.in_mid_line else b""
        with suppress(OutputClosed):
            output.write(begin + own_line(sentence))


def write_termination_message(path: Path, message: Mapping[str, Any]) -> None:
    """If it cannot be written the log has it already."""
    with suppress(OSError):
        path.write_bytes(job_end.encode_message(message))


def exit_on_signal(*_: object) -> NoReturn:
    """SIGTERM: the pod goes, the job stays. Nothing is held that would need closing."""
    os._exit(job_end.EXIT_CANCELLED)
