"""The companion's life: attach or submit, relay, and end as the job ended.

It asks for its key first and attaches to whatever job that is; only where there is none it submits. It never
cancels: on SIGTERM it leaves at once, and the job lives on.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NoReturn

from redbox_companion import outcome
from redbox_companion.patience import Patience
from redbox_companion.redbox import Answer, NoAnswer, Redbox
from redbox_companion.relay import Relay, Unreadable
from redbox_companion.settings import Settings, read_request

STDOUT, STDERR = 1, 2
STREAMS = (("stdout", STDOUT), ("stderr", STDERR))
UNAUTHENTICATED_TRIES = 12  # a token that is not good yet (clock, rotation) gets about a minute
ASK_AGAIN_S = 2.0
UNCONFIRMED = "Submitting"  # nobody knows whether Slurm has it: only a PUT may try again


class Refused(Exception):
    """Red-box will not have this job."""

    def __init__(self, answer: Answer) -> None:
        """Keep the answer: it says why."""
        super().__init__(answer.explanation)
        self.answer = answer


@dataclass
class Companion:
    """One job's stand-in in Kubernetes."""

    settings: Settings
    redbox: Redbox
    troubles: list[str] = field(default_factory=list)

    def run(self) -> int:
        """From attaching to the exit code."""
        try:
            self._attach_or_submit()
        except Refused as refusal:
            return self._end_refused(refusal)
        self._relay()
        job = self._final_job()
        code = outcome.exit_code_of(job)
        if job.get("message"):
            self.say(str(job["message"]))
        logs = "; ".join(self.troubles) or "complete"
        outcome.leave_word(self.settings.termination_file, outcome.word_of(job, logs=logs, exit_code=code))
        return code

    def say(self, sentence: str) -> None:
        """One line of our own among the job's stderr."""
        os.write(STDERR, f"redbox: {sentence}\n".encode())

    def _attach_or_submit(self) -> None:
        answer = self._ask("GET")
        if answer.status != HTTPStatus.NOT_FOUND and answer.body.get("phase") != UNCONFIRMED:
            return
        answer = self._ask("PUT", read_request(self.settings))
        if answer.status == HTTPStatus.CONFLICT and self._ask("GET").status != HTTPStatus.OK:
            raise Refused(answer)
        for warning in answer.body.get("warnings", []):
            self.say(str(warning))

    def _ask(self, method: str, body: bytes | None = None) -> Answer:
        """Ask about our job until there is an answer that says something."""
        patience, unauthenticated = Patience(self.say), 0
        while True:
            try:
                answer = self.redbox.ask(method, self._path, {"attempt": self.settings.attempt}, body)
            except NoAnswer as error:
                time.sleep(patience(str(error)))
                continue
            unauthenticated += answer.status == HTTPStatus.UNAUTHORIZED
            patience.answered()
            if _says_something(answer):
                return answer
            if not _may_change(answer) or unauthenticated > UNAUTHENTICATED_TRIES:
                raise Refused(answer)
            time.sleep(answer.retry_after or patience(answer.explanation))

    def _relay(self) -> None:
        threads = [
            threading.Thread(target=self._relay_one, args=(name, target), name=name, daemon=True)
            for name, target in STREAMS
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _relay_one(self, name: str, target: int) -> None:
        relay = Relay(
            self.redbox, f"{self._path}/logs/{name}", self.settings.attempt, target, Patience(self.say)
        )
        try:
            relay.run()
        except Unreadable as error:
            self.say(f"{name} cannot be read: {error}")
            self.troubles.append(f"{name}: {error}")

    def _final_job(self) -> dict[str, Any]:
        while True:
            answer = self._ask("GET")
            if answer.status == HTTPStatus.NOT_FOUND:
                return {"phase": "Lost", "message": "red-box no longer knows this job"}
            if answer.body.get("phase") in outcome.FINAL:
                return answer.body
            time.sleep(ASK_AGAIN_S)

    def _end_refused(self, refusal: Refused) -> int:
        self.say(str(refusal))
        status = refusal.answer.status
        outcome.leave_word(
            self.settings.termination_file, outcome.word_of_refusal(str(refusal), status=status)
        )
        denied = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        return outcome.NOT_ALLOWED if denied else outcome.REFUSED

    @property
    def _path(self) -> str:
        return f"/v1/jobs/{self.settings.key}"


def leave(*_: object) -> NoReturn:
    """SIGTERM: the pod goes, the job stays. Nothing is held that would need closing."""
    os._exit(outcome.CANCELLED)


def _says_something(answer: Answer) -> bool:
    return answer.status < HTTPStatus.BAD_REQUEST or answer.status in (
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
    )


def _may_change(answer: Answer) -> bool:
    by_status = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status == HTTPStatus.UNAUTHORIZED
    return bool(answer.body.get("retry", by_status)) or answer.status == HTTPStatus.UNAUTHORIZED
