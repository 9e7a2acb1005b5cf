"""The companion's life: attach or submit, relay, bring results, and end as the job ended.

It asks for its key first and attaches to whatever job that is; only where there is none it submits. It never
cancels: on SIGTERM it leaves at once, and the job lives on. What it has to say itself it says on stderr,
before the first byte of the job or after the last, and between the tasks of an array: never in their midst.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn

from redbox_companion import outcome, settings
from redbox_companion.arrays import follow_tasks
from redbox_companion.patience import Patience
from redbox_companion.redbox import Answer, NoAnswer, Redbox
from redbox_companion.relay import Outlet, Relay, Unreadable, Unwritable
from redbox_companion.settings import Settings, read_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from redbox_companion.results import Outcome

STDOUT, STDERR = 1, 2
STREAMS = (("stdout", STDOUT), ("stderr", STDERR))
ASK_AGAIN_S = 2.0
LOOK_AGAIN_S = 0.3  # red-box looks at Slurm at once after a submit
UNCONFIRMED = "Submitting"  # nobody knows whether Slurm has it: only a PUT may try again
COMPLETE, CUT, UNREAD = "complete", "cut", "unread"


class Refused(Exception):
    """Red-box will not have this job, or not this caller."""

    def __init__(self, answer: Answer) -> None:
        """Keep the answer: it says why."""
        super().__init__(answer.explanation)
        self.answer = answer


class Companion:
    """One job's stand-in in Kubernetes."""

    def __init__(self, told: Settings, redbox: Redbox) -> None:
        self._settings = told
        self._redbox = redbox
        self._path = f"/v1/jobs/{told.key}"
        self._attached = False
        self._outlets = {name: Outlet(descriptor) for name, descriptor in STREAMS}
        self._drift: str | None = None
        self._logs: dict[str, str] = {}
        self._troubles: list[str] = []

    def run(self) -> int:
        """From attaching to the exit code."""
        try:
            return self._run()
        except Refused as refusal:
            return self._end_refused(refusal)

    def _run(self) -> int:
        if self._settings.mode == settings.RESULTS_ONLY:
            return self._end_with_results_only()
        self._attach_or_submit()
        if self._settings.mode == settings.SUBMIT_ONLY:
            self._leave_word(self._job())
            return 0
        self._relay(self._job_in_slurm())
        return self._end_as(self._final_job())

    # -- submitting

    def _attach_or_submit(self) -> None:
        answer = self._ask("GET")
        while answer.status == HTTPStatus.NOT_FOUND or answer.body["phase"] == UNCONFIRMED:
            answer = self._submit()
        self._attached = True

    def _submit(self) -> Answer:
        answer = self._ask("PUT", read_request(self._settings))
        if answer.status == HTTPStatus.CONFLICT:
            there = self._ask("GET")
            if there.status != HTTPStatus.OK:
                raise Refused(answer)
            self._drift = answer.explanation
            return there
        for warning in answer.body.get("warnings") or ():
            self._say(str(warning))
        if answer.body["phase"] == UNCONFIRMED:
            time.sleep(ASK_AGAIN_S)
        return answer

    def _ask(self, method: str, body: bytes | None = None) -> Answer:
        """Ask about our job until there is an answer that says something."""
        patience, refused_since = Patience(None if self._attached else self._say), None
        while True:
            try:
                answer = self._redbox.ask(method, self._path, {"attempt": self._settings.attempt}, body)
            except NoAnswer as error:
                patience.wait(str(error))
                continue
            if _says_something(method, answer):
                return answer
            if not answer.may_change:
                refused_since = refused_since or time.monotonic()
                if time.monotonic() - refused_since >= self._grace_s(answer):
                    raise Refused(answer)
            patience.wait(answer.explanation, at_least=answer.retry_after)

    def _grace_s(self, answer: Answer) -> float:
        """How long a refusal may yet be taken back: a job that is there outlives a mistake in the mapping."""
        may_pass = self._attached or answer.status == HTTPStatus.UNAUTHORIZED  # clocks, keys, rotation
        return self._settings.lost_after_s if may_pass else 0.0

    # -- following

    def _job(self) -> dict[str, Any]:
        """The job as red-box has it; one that red-box does not know for long is lost."""
        missing_since = None
        while True:
            answer = self._ask("GET")
            if answer.status != HTTPStatus.NOT_FOUND:
                return answer.body
            missing_since = missing_since or time.monotonic()
            if time.monotonic() - missing_since >= self._settings.lost_after_s:
                return {"phase": "Lost", "message": "red-box no longer knows this job"}
            time.sleep(ASK_AGAIN_S)

    def _job_in_slurm(self) -> dict[str, Any]:
        """As soon as Slurm has shown it: not before can one know where its logs are, or if it is an array."""
        while not (job := self._job()).get("state") and job["phase"] not in outcome.FINAL:
            time.sleep(LOOK_AGAIN_S)
        return job

    def _final_job(self) -> dict[str, Any]:
        while (job := self._job())["phase"] not in outcome.FINAL:
            time.sleep(ASK_AGAIN_S)
        return job

    def _relay(self, job: dict[str, Any]) -> None:
        self._logs = dict.fromkeys(self._outlets, CUT)  # until the last byte is out
        if job.get("array"):
            threads = [threading.Thread(target=self._relay_tasks, daemon=True)]
        else:
            threads = [
                threading.Thread(target=self._relay_one, args=(name,), name=name, daemon=True)
                for name in self._outlets
            ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _relay_one(self, name: str) -> None:
        relay = self._relay_of(name)
        try:
            self._follow(relay)
            self._logs[name] = COMPLETE
        except Unreadable as error:
            self._is_not_whole(name, str(error), copied=bool(relay.copied))
        except (Unwritable, Refused) as error:  # main meets a refusal too, and ends with it
            self._troubles.append(f"{name} is cut: {error}")

    def _relay_tasks(self) -> None:
        relays: dict[str, list[Relay]] = {name: [] for name in self._outlets}

        def relays_of(task: int, before_first: Callable[[], None]) -> dict[str, Relay]:
            made = {name: self._relay_of(name, before_first, task=task) for name in self._outlets}
            for name, relay in made.items():
                relays[name].append(relay)
            return made

        try:
            troubles = follow_tasks(self._job, relays_of, self._say)
        except (Unwritable, Refused) as error:
            self._troubles.append(f"the tasks' output is cut: {error}")
            return
        self._logs = dict.fromkeys(self._outlets, COMPLETE)
        for name, why in troubles:
            self._is_not_whole(name, why, copied=any(relay.copied for relay in relays[name]))

    def _relay_of(self, name: str, before_first: Callable[[], None] | None = None, **task: int) -> Relay:
        query = {"attempt": self._settings.attempt, **task}
        return Relay(self._redbox, f"{self._path}/logs/{name}", query, self._outlets[name], before_first)

    def _is_not_whole(self, name: str, why: str, *, copied: bool) -> None:
        self._logs[name] = CUT if copied else UNREAD
        self._troubles.append(f"{name} cannot be read: {why}")

    def _follow(self, relay: Relay) -> None:
        """To the end; what is unreadable may be mended as long as the job is not final."""
        final = False
        while True:
            try:
                return relay.follow()
            except Unreadable:
                if final:
                    raise
                final = self._job()["phase"] in outcome.FINAL
                if not final:
                    time.sleep(ASK_AGAIN_S)

    # -- ending

    def _end_as(self, job: dict[str, Any]) -> int:
        code = outcome.exit_code_of(job)
        for trouble in self._troubles:
            self._say(trouble)
        if sentence := outcome.sentence_of(job):
            self._say(sentence)
        results = self._results(job)
        worst = max(self._logs.values(), key=(COMPLETE, CUT, UNREAD).index)
        self._leave_word(job, logs=worst, results=results)
        return code

    def _end_with_results_only(self) -> int:
        self._attached = True
        job = self._final_job()
        results = self._results(job)
        self._leave_word(job, results=results)
        return outcome.RESULTS_FAILED if results and results.outcome == "Failed" else 0

    def _results(self, job: dict[str, Any]) -> Outcome | None:
        wanted = self._settings.results
        if wanted is None:
            return None
        from redbox_companion import results  # noqa: PLC0415 - tarfile's memory, for the few jobs that need it

        patience = Patience(self._say)
        collection = results.Collection(self._redbox, self._path, self._settings.attempt, patience)
        came = results.skipped(wanted, job["phase"]) or collection.collect(wanted)
        if came.outcome == results.FAILED:
            self._say(f"results: {came.message}")
        return came

    def _end_refused(self, refusal: Refused) -> int:
        self._say(str(refusal))
        problem = str(refusal.answer.body.get("type", ""))
        word = outcome.word_of_refusal(str(refusal), problem=problem)
        outcome.leave_word(self._settings.termination_file, word)
        denied = refusal.answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        return outcome.NOT_ALLOWED if denied else outcome.REFUSED

    def _leave_word(
        self, job: dict[str, Any], *, logs: str | None = None, results: Outcome | None = None
    ) -> None:
        told = results._asdict() if results else None
        word = outcome.word_of(job, logs=logs, results=told, specDrift=self._drift)
        outcome.leave_word(self._settings.termination_file, word)

    def _say(self, sentence: str) -> None:
        """One line of our own on stderr."""
        outlet = self._outlets["stderr"]
        begin = "\n" if outlet.in_mid_line else ""
        with suppress(Unwritable):
            outlet.write(f"{begin}redbox: {' '.join(sentence.split())}\n".encode())


def leave(*_: object) -> NoReturn:
    """SIGTERM: the pod goes, the job stays. Nothing is held that would need closing."""
    os._exit(outcome.CANCELLED)


def _says_something(method: str, answer: Answer) -> bool:
    telling = HTTPStatus.NOT_FOUND if method == "GET" else HTTPStatus.CONFLICT
    return answer.status < HTTPStatus.BAD_REQUEST or answer.status == telling
