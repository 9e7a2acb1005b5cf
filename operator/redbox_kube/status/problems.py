"""Why a SlurmJob does not continue: a reason for programs, and a message with a remedy for people."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError


@dataclass(frozen=True, slots=True)
class StatusProblem:
    """`final`: only another SlurmJob helps; otherwise it continues when the cause is fixed."""

    reason: str
    message: str
    final: bool = False


def first_flaw(error: ValidationError) -> str:
    """The first invalid field, and why it is."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "spec"
    return f"{field}: {first['msg']}"
