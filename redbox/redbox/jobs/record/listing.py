"""Lists of jobs, page by page. Pure.

The first page's revision travels with the pages: a watch from there misses nothing that changed while they
were read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from redbox.jobs.errors import NotAcceptable
from redbox.jobs.record.packed_records import RecordSummary, unpack
from redbox.jobs.record.record import JobRecord, SortKey, sort_key
from redbox_api.models import Job, JobList, Phase

PAGE_WEIGHT = 4 << 20
"""Characters of users' texts in a page: each has up to 6 bytes in JSON, and clients read 64 MiB."""

MOST_LOOKED_AT = 10_000
"""Records that one page looks at: a filter that few of a hundred thousand pass makes short pages."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a list or a watch; None is unlimited."""

    phases: frozenset[Phase] | None = None
    namespace: str | None = None

    def pass_(self, record: RecordSummary) -> bool:
        right_phase = self.phases is None or record.phase in self.phases
        return right_phase and self.namespace in (None, record.key.owner.namespace)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested page: its size, and where it begins."""

    size: int | None = None
    token: str | None = None


def page_of(
    records: Callable[[SortKey | None], Iterable[RecordSummary]],
    page: PageRequest,
    revision: str,
    size: int,
    view: Callable[[JobRecord], Job],
    *,
    wanted: Callable[[RecordSummary], bool],
) -> JobList:
    """At most `size` jobs of the wanted records behind a sort key.

    They are fewer where their texts are long, or where many records are passed over.
    """
    after, revision = _read(page.token, revision)
    items: list[Job] = []
    weight = 0
    for count, outline in enumerate(records(after)):
        is_full = len(items) >= size or weight >= PAGE_WEIGHT or count >= MOST_LOOKED_AT
        if after is not None and is_full:
            return JobList(items=items, revision=revision, next=_token(after, revision))
        after = sort_key(outline.key)
        if wanted(outline):
            record = unpack(outline)
            items.append(view(record))
            weight += _weight(record, items[-1])
    return JobList(items=items, revision=revision, next=None)


def _weight(record: JobRecord, job: Job) -> int:
    texts = (record.pod_report, job.message, job.name, job.reason, job.partition, job.account, job.qos)
    paths = (job.working_directory, job.logs.stdout, job.logs.stderr)
    return sum(len(text) for text in (*texts, *paths, *job.nodes, *job.warnings) if text)


def _token(last: SortKey, revision: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([revision, last]).encode()).decode()


def _read(token: str | None, revision: str) -> tuple[SortKey | None, str]:
    if token is None:
        return None, revision
    try:
        first_revision, (cluster, namespace, account, account_uid, key, attempt) = json.loads(
            base64.urlsafe_b64decode(token)
        )
        return (str(cluster), str(namespace), str(account), str(account_uid), str(key), int(attempt)), str(
            first_revision
        )
    except (binascii.Error, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise NotAcceptable(
            "This continue token was not made by red-box: list from the beginning."
        ) from error
