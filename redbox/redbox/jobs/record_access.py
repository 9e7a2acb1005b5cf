"""Which jobs a caller may submit, read and act on, beyond which of them are its own (`store.ownership`)."""

from __future__ import annotations

from collections.abc import Sequence

from redbox.core.domain import Caller, Owner, Role, UnixUser
from redbox.jobs.errors import Forbidden, JobsBusy
from redbox.jobs.record.api_view import visible
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.store.ownership import OwnershipClaims, addressed_owner, job_not_found, may_see
from redbox.jobs.store.record_store import RecordStore


def submitter_of(caller: Caller) -> UnixUser:
    """The Unix user of a caller who may submit."""
    if caller.user is None or not caller.may(Role.SUBMIT):
        raise Forbidden(
            f"{caller.identity} may not submit jobs here: its mapping rule lacks the role submit."
        )
    return caller.user


def require_reader(caller: Caller) -> None:
    """Refuse a caller who may see no jobs."""
    if not (caller.may(Role.SUBMIT) or caller.may(Role.OPERATOR)):
        raise Forbidden(
            f"{caller.identity} may not see jobs: its mapping rule lacks the role submit, or operator for "
            "Red Box's operator."
        )


class RecordAccess:
    """Records by key, for callers who may see them; else JobNotFound."""

    def __init__(self, store: RecordStore, claims: OwnershipClaims) -> None:
        self._store = store
        self._claims = claims

    async def record(self, caller: Caller, key: str, attempt: int, owner: Owner | None) -> JobRecord:
        """One attempt, of the caller or of the owner that an operator names."""
        of = addressed_owner(caller, owner)
        await self._claims.claim(of, key, by_name_only=of != caller.owner)
        found = [r for r in self.line(caller, of, key, attempt) if visible(r)]
        if not found:
            raise job_not_found()
        return max(found, key=lambda record: record.created_at)

    async def own_record(self, caller: Caller, key: str, attempt: int) -> JobRecord:
        """One attempt of the caller, who may submit and still is the job's Unix user."""
        user = submitter_of(caller)
        line = self.line(caller, caller.owner, key, attempt)
        if any(r.stage is Stage.UNCONFIRMED for r in line):
            raise JobsBusy(
                "It is unknown whether Slurm has this job: a PUT of it settles that.", retry_after=10
            )
        record = await self.record(caller, key, attempt, None)
        if record.user.uid != user.uid:
            raise job_not_found()
        return record

    def line(self, caller: Caller, owner: Owner, key: str, attempt: int | None = None) -> Sequence[JobRecord]:
        """All attempts of a key, or one, that this caller may see."""
        records = self._store.index.line(owner, key, attempt)
        exactly = owner == caller.owner
        return [r for r in records if may_see(caller, r) and (not exactly or r.key.owner == owner)]
