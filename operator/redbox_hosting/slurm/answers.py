"""Answers of slurmrestd v0.0.40 to v0.0.45, as far as the operator reads them.

Fields of later releases are ignored. A field that is read is required where its absence could be taken for a
good sign: a node without states would not be busy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WrapValidator, field_validator

from redbox_api.hostlists import LONGEST, LONGEST_TEXT, expand

RELEASE = re.compile(r"[0-9]{2}\.[0-9]{2}[0-9A-Za-z.-]{0,24}")


def _number(given: object) -> object:
    """A number that may be unset: {"set": true, "infinite": false, "number": 3}."""
    if not isinstance(given, dict):
        return given
    return given.get("number") if given.get("set") and not given.get("infinite") else None


def _names(given: object) -> object:
    """A list, or the same as one text."""
    return [name for name in given.split(",") if name] if isinstance(given, str) else given


@lru_cache(maxsize=4096)
def _expanded(text: str) -> tuple[str, ...]:
    """One tuple for all equal lists: a user may have thousands of jobs that name a hundred nodes each."""
    return tuple(map(sys.intern, expand(text)))


def _hosts(given: object, checked: Callable[[object], tuple[str, ...]]) -> tuple[str, ...]:
    return _expanded(given) if isinstance(given, str) else checked(given)


def _all_hosts(given: object, checked: Callable[[object], tuple[str, ...]]) -> tuple[str, ...]:
    """Where a name that is not read is a job that is not seen."""
    if isinstance(given, str) and len(given) > LONGEST_TEXT:
        raise ValueError("the list of hosts is too long")
    hosts = _hosts(given, checked)
    if len(hosts) >= LONGEST or any("[" in host for host in hosts):
        raise ValueError("the list of hosts cannot be read")
    return hosts


def _upper(given: object) -> object:
    words = _names(given)
    return frozenset(map(str.upper, words)) if isinstance(words, list) else words


MaybeNumber = Annotated[int | None, BeforeValidator(_number)]
States = Annotated[frozenset[str], BeforeValidator(_upper), Field(min_length=1)]
Hosts = Annotated[tuple[str, ...], WrapValidator(_hosts)]
AllHosts = Annotated[tuple[str, ...], WrapValidator(_all_hosts)]
Words = Annotated[tuple[str, ...], BeforeValidator(_names)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class RestNode(_Row):
    """A node's record."""

    name: str = Field(min_length=1, max_length=255)
    state: States
    reason: str = ""
    reason_changed_at: MaybeNumber = None
    address: str = ""
    instance_id: str = ""
    comment: str = ""
    boot_time: MaybeNumber = None
    partitions: Words = ()
    features: Words = ()
    version: str = ""


class RestJob(_Row):
    """A job, or an element of an array."""

    job_id: int
    job_state: States
    nodes: AllHosts
    required_nodes: Hosts = ()
    name: str = ""
    user_name: str = ""
    partition: str = ""
    start_time: MaybeNumber = None
    end_time: MaybeNumber = None


class RestLicense(_Row):
    """A license; one of them is the marker of the running configuration."""

    name: str = Field(alias="LicenseName")


class RestReservation(_Row):
    """A reservation."""

    name: str
    node_list: Hosts = ()


class RestError(_Row):
    """One of `errors`; slurmrestd leaves out what it does not have."""

    description: str | None = None
    error: str | None = None
    error_number: int | None = None
    source: str | None = None


class DatedAnswer(_Row):
    """A list as slurmctld had it at a time of its own clock."""

    last_update: MaybeNumber = None


class NodeList(DatedAnswer):
    """GET nodes."""

    nodes: tuple[RestNode, ...]

    @field_validator("nodes")
    @classmethod
    def _each_once(cls, rows: tuple[RestNode, ...]) -> tuple[RestNode, ...]:
        if len({row.name for row in rows}) < len(rows):
            raise ValueError("a node is there twice")
        return rows


class RestJobList(DatedAnswer):
    """GET jobs."""

    jobs: tuple[RestJob, ...]


class LicenseList(_Row):
    """GET licenses."""

    licenses: tuple[RestLicense, ...]


class ReservationList(DatedAnswer):
    """GET reservations."""

    reservations: tuple[RestReservation, ...]


class Done(_Row):
    """An answer that has nothing but its errors."""


def release_in(document: dict[str, Any]) -> str:
    """Slurm's release, as 26.05.2, which slurmrestd adds to each answer; empty where it is not one."""
    meta = document.get("meta")
    slurm = meta.get("slurm") if isinstance(meta, dict) else None
    release = slurm.get("release") if isinstance(slurm, dict) else None
    return release if isinstance(release, str) and RELEASE.fullmatch(release) else ""


def errors_of(document: dict[str, Any]) -> list[RestError]:
    """Raises ValueError where `errors` is not a list of errors: that is no answer."""
    errors = document.get("errors")
    if errors is None:
        return []
    if not isinstance(errors, list):
        raise ValueError("its errors are not a list")  # noqa: TRY004 (as pydantic's)
    return [RestError.model_validate(error) for error in errors]
