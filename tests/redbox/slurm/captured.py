"""What each release of Slurm really printed for one set of jobs (capture.py), and the names of those jobs.

squeue's fields end with ~F~ and its records with ~R~ there. One job of the set, bob's "forger", writes ~F~
and ~R~ into its name and comment: as if he had guessed the tokens.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from redbox.slurm.commands import sacct, squeue
from redbox.slurm.text.record_format import ParseReport, RecordFormat

RELEASES = ("22.05", "24.11", "26.05")
OUTPUTS = Path(__file__).parent / "outputs"
FRAME = RecordFormat(squeue.FIELDS, "~F~", "~R~")


def output(release: str, name: str) -> str:
    return (OUTPUTS / release / name).read_text()


def job_ids(release: str) -> dict[str, str]:
    """The jobs of the set by what became of them."""
    ids: dict[str, str] = json.loads(output(release, "ids.json"))
    return ids


def queue_rows(release: str) -> tuple[list[squeue.QueueRow], ParseReport]:
    tally = ParseReport()
    return list(squeue.read_rows(output(release, "squeue.txt"), FRAME, tally)), tally


def start_rows(release: str, name: str) -> list[squeue.StartRow]:
    """Of one job of the set; SchedNodes was not captured."""
    frame = replace(FRAME, fields=squeue.START_FIELDS)
    end = FRAME.record_end
    text = output(release, "squeue.txt").replace(end, f"{FRAME.field_end}(null){end}")
    rows = squeue.read_start_rows(text, frame, ParseReport())
    return [row for row in rows if row.job.leader == job_ids(release)[name]]


def accounting_rows(release: str) -> tuple[list[sacct.AccountingRow], ParseReport]:
    tally = ParseReport()
    fields, texts = accounting_fields(release)
    columns = sacct.text_columns(texts, sacct.TEXT_QUERIES[0].width)
    shown = dict(sacct.read_texts((OUTPUTS / release / "sacct-texts.txt").read_bytes(), columns, tally))
    rows = sacct.read_rows(output(release, "sacct.txt"), fields, tally)
    return [row.with_texts(shown[sacct.run_of(row)]) for row in rows], tally


def accounting_fields(release: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that the release has: what no user writes, and texts."""
    listed = output(release, "sacct-fields.txt")
    return sacct.read_field_names(listed), sacct.read_field_names(listed, sacct.TEXTS)
