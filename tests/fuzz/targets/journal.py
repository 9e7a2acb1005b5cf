"""The journal's rows and its file, changed by a disk or by hand: red-box starts, or says why it cannot.

After a start that has read all rows, every job can be shown and written again.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from hypothesis import strategies as st

from redbox.jobs.errors import JournalError
from redbox.jobs.record.api_view import job_view, task_views
from redbox.jobs.record.codec import to_text
from redbox.jobs.record.messages import explain
from redbox.jobs.record.packed_records import unpack
from redbox.jobs.store.journal import FILE_NAME, Journal
from redbox.jobs.store.record_store import FLOOR, RecordStore
from redbox.jobs.store.sqlite import ALL_JOBS
from tests.fuzz.mutations import Pieces, mutated
from tests.fuzz.target import Play, Target
from tests.redbox.jobs.factories import MACHINE

DUMP = Path(__file__).parents[2] / "redbox/jobs/store/journal_of_0.1.0.sql"
FACTS = [b"0123456789ab", b"0", b"1767225585.0"]
"""Before the rows: the epoch, the revision up to which deletions are forgotten, a tombstone's time."""
VALUES = st.sampled_from(
    [b"null", b"0", b"-1", b"1e400", b"NaN", b"9" * 20, b"9" * 5000, b'""', b'"x"', b"[]", b"{}", b"true",
     b'["0-99999999999"]', b"[" * 5000, b'"\\ud800"', b"1e18", b"[[]]", b"253402300800"]
)  # fmt: skip


def made(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(DUMP.read_text())


def texts() -> list[bytes]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(DUMP.read_text())
        return [row[-1].encode() for row in database.execute(ALL_JOBS)]


TEXTS = texts()


@st.composite
def rows(draw: st.DrawFn) -> Pieces:
    """The facts, and the records of all jobs, in some of which another value stands."""
    pieces = [*FACTS, *TEXTS]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(pieces) - 1))
        words = pieces[at].split(b'":')
        which = draw(st.integers(0, len(words) - 1))
        _, comma, after = words[which].partition(b',"')
        words[which] = draw(VALUES) + comma + after
        pieces[at] = b'":'.join(words)
    return pieces


def write_rows(path: Path, pieces: Pieces) -> None:
    epoch, floor, made_at, *records = [*pieces, *FACTS[len(pieces) :]]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        fact = "UPDATE facts SET value = CAST(? AS TEXT) WHERE name = ?"
        database.execute(fact, (epoch, "epoch"))
        database.execute(fact, (floor, FLOOR))
        with suppress(ValueError, sqlite3.Error):  # of what is no number
            database.execute("UPDATE tombstones SET made_at = ?", (float(made_at),))
        keys = database.execute("SELECT rowid_of FROM (SELECT mark AS rowid_of FROM jobs ORDER BY revision)")
        for (mark,), record in zip(keys.fetchall(), records, strict=False):
            database.execute("UPDATE jobs SET record = CAST(? AS TEXT) WHERE mark = ?", (record, mark))


def damage(path: Path, pieces: Pieces) -> None:
    """Each piece is an offset in four bytes, and what stands there."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        for piece in pieces:
            file.seek(int.from_bytes(piece[:4]) % size)
            file.write(piece[4:])


def start(directory: Path) -> None:
    """As red-box starts; then everything is shown."""
    said = ""
    try:
        with closing(Journal(directory)) as journal:
            show_all(RecordStore(journal, deletions=10))
    except JournalError as error:
        said = str(error)
    assert said.isprintable()
    assert len(said) < 1000


def show_all(store: RecordStore) -> None:
    for outline in store.index:
        record = unpack(outline)
        tasks = task_views(record.status.tasks, MACHINE.states)
        view = job_view(record, MACHINE, epoch="e", slurm_cluster=None, stale_since=None, tasks=tasks)
        view.model_dump_json()
        explain(record)
        to_text(record).encode()


@asynccontextmanager
async def changed_rows() -> AsyncIterator[Play]:
    with tempfile.TemporaryDirectory(prefix="fuzz-journal-") as top:
        whole, directory = Path(top, "whole.db"), Path(top, "journal")
        made(whole)

        async def play(pieces: Pieces) -> None:
            directory.mkdir()
            try:
                shutil.copy(whole, directory / FILE_NAME)
                write_rows(directory / FILE_NAME, pieces)
                start(directory)
            finally:
                shutil.rmtree(directory)

        yield play


@asynccontextmanager
async def damaged_files() -> AsyncIterator[Play]:
    with tempfile.TemporaryDirectory(prefix="fuzz-journal-") as top:
        whole, directory = Path(top, "whole.db"), Path(top, "journal")
        made(whole)

        async def play(pieces: Pieces) -> None:
            directory.mkdir()
            try:
                shutil.copy(whole, directory / FILE_NAME)
                damage(directory / FILE_NAME, pieces)
                start(directory)
            finally:
                shutil.rmtree(directory)

        yield play


DAMAGES = st.lists(st.binary(min_size=5, max_size=60), max_size=4)
TARGETS = (
    Target("journal-rows", mutated(rows()), changed_rows, [*FACTS, *TEXTS], in_ci=60),
    Target("journal-file", DAMAGES, damaged_files, [b"\0\0\1\0\0"], in_ci=60),
)
