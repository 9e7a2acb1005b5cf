"""Access to records, and how owners claim jobs whose names were lost with a journal.

Callers address only their own jobs; an operator names the owner, within its own cluster, and cannot know
the uid of the owner's account. A record that was rebuilt from its mark has its owner only as keyed hashes:
the first caller whose names have these hashes claims it.
"""

from __future__ import annotations

from dataclasses import replace

from redbox.core.domain import Caller, JobKey, Owner, Role
from redbox.jobs.errors import Forbidden, JobNotFound
from redbox.jobs.record.marks import Mark, Marks
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.record.record import UNCLAIMED, JobRecord, lineage
from redbox.jobs.store.record_store import Change, RecordStore

HASHED = "~"  # begins an account uid of which only the hash is known


def unclaimed_owner(mark: Mark) -> Owner:
    """The owner as a mark has it."""
    return Owner(UNCLAIMED, mark.names_id, "", HASHED + mark.account_uid_id)


def addressed_owner(caller: Caller, owner: Owner | None) -> Owner:
    """The owner whose jobs this caller addresses; JobNotFound if they belong to another."""
    if owner is None or _same_names(owner, caller.owner):
        if caller.may(Role.SUBMIT):
            return caller.owner
        if owner is None:
            raise Forbidden(
                f"{caller.identity} has no jobs of its own here: its mapping rule lacks the role submit."
            )
    if caller.may(Role.OPERATOR) and owner.cluster == caller.owner.cluster:
        return owner
    raise job_not_found()


def job_not_found() -> JobNotFound:
    return JobNotFound("There is no such job, or it is not yours.")


def may_see(caller: Caller, record: RecordSummary) -> bool:
    """Its owner, who still maps to the job's Unix user, or an operator of its cluster."""
    if caller.may(Role.OPERATOR) and record.key.owner.cluster == caller.owner.cluster:
        return True
    same_user = caller.user is not None and caller.user.uid == record.user.uid
    return caller.may(Role.SUBMIT) and same_user and record.key.owner == caller.owner


def _same_names(first: Owner, second: Owner) -> bool:
    return replace(first, account_uid="") == replace(second, account_uid="")


class OwnershipClaims:
    """Gives rebuilt records the names of their owners."""

    def __init__(self, store: RecordStore, marks: Marks) -> None:
        self._store = store
        self._marks = marks
        self._unclaimed = sum(self._is_partial(record) for record in store.index)

    async def claim(self, owner: Owner, key: str, *, by_name_only: bool) -> None:
        """Give this key's records their owner's names; from an operator the uid stays hashed."""
        if self._unclaimed:
            hashed = HASHED + self._marks.account_uid_id(owner.account_uid)
            nameless = Owner(UNCLAIMED, self._marks.names_id(owner), "", "" if by_name_only else hashed)
            await self._rename(nameless, owner, key, by_name_only=by_name_only)
            if not by_name_only:
                await self._rename(replace(owner, account_uid=hashed), owner, key, by_name_only=False)

    async def claim_all(self, owner: Owner) -> None:
        """As `claim`, for all the keys that this owner may have left."""
        names, hashed = self._marks.names_id(owner), HASHED + self._marks.account_uid_id(owner.account_uid)
        if self._unclaimed:
            partial = [record.key for record in self._store.index if self._is_partial(record)]
            for key in {
                k.key
                for k in partial
                if k.owner.account_uid == hashed and names_of(k.owner, self._marks) == names
            }:
                await self.claim(owner, key, by_name_only=False)

    async def _rename(self, former: Owner, owner: Owner, key: str, *, by_name_only: bool) -> None:
        def partial() -> list[JobRecord]:
            return [record for record in self._store.index.line(former, key) if self._is_partial(record)]

        def decide() -> Change:
            save, forget = [], []
            for record in partial():
                account_uid = record.key.owner.account_uid if by_name_only else owner.account_uid
                named = JobKey(replace(owner, account_uid=account_uid), key, record.key.attempt)
                if self._store.index.get(named) is None:
                    save.append(replace(record, key=named))
                    forget.append(record.key)
            return Change(save=tuple(save), forget=tuple(forget))

        if partial():
            await self._store.change([lineage(former, key), lineage(owner, key)], decide)
            self._unclaimed = sum(self._is_partial(record) for record in self._store.index)

    @staticmethod
    def _is_partial(record: RecordSummary) -> bool:
        return record.key.owner.account_uid.startswith(HASHED)


def names_of(owner: Owner, marks: Marks) -> str:
    """The hash of an owner's names, which is all that an unclaimed owner has."""
    return owner.namespace if owner.cluster == UNCLAIMED else marks.names_id(owner)
