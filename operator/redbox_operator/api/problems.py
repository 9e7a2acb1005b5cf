"""Why a SlurmJob does not go on: one word for programs, and a sentence for a person that names the cure."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError


@dataclass(frozen=True, slots=True)
class StatusProblem:
    """`final`: nothing but another SlurmJob helps; else it goes on by itself once the cure is done."""

    reason: str
    message: str
    final: bool = False


def first_flaw(error: ValidationError) -> str:
    """The field that is wrong, and why."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "spec"
    return f"{field}: {first['msg']}"
