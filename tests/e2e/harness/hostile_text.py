"""Values that users may write into their jobs, made to be taken for something else than text."""

from __future__ import annotations

import random

from redbox.slurm.commands import sacct, squeue

PIECES = (
    b"\n", b"\r\n", b"\r", b"|", b"||", b"+", b",", b":", b"=", b" ", b"  ", b"\t", b"\x0b", b"\x0c", b"\x1c",
    b"\x1f", b"\\", b"\\n", b'"', b"'", b"`", b"$(id)", b"%j", b"%A_%a", b"%", b"~", b"~~", b"~F~", b"~R~",
    b"\x1b[31m", b"\x1b]0;title\x07", b"\x9b31m", b"\xc2\x9b31m", b"\xff", b"\xc3", b"\xed\xa0\x80",
    b"\xf0\x9f", "\u202e".encode(), "\u2066".encode(), "\u200f".encode(), "\u2028".encode(),
    "\u0085".encode(), "é".encode(), b"x", b"(null)", b"N/A", b"None", b"Unknown", b"7_[0-3]", b"7+1", b"-1",
    b"99999999999999999999", b"#SBATCH hetjob", b"x" * 255, b"y" * 256, b"z" * 4096,
)  # fmt: skip


def hostile_values(number: int, *, job: str, uid: int, mark: str) -> list[bytes]:
    """As many, always the same: forged rows of this job, and mixtures of what separates and escapes."""
    values = [*forged_rows(job, uid, mark), *PIECES]
    chosen = random.Random(44)
    while len(values) < number:
        values.append(b"".join(chosen.choices(PIECES[:-1], k=chosen.randint(2, 12))))
    return values[:number]


def forged_rows(job: str, uid: int, mark: str) -> list[bytes]:
    """Of each output that red-box reads, by one who knows its form."""
    facts = dict.fromkeys(sacct.FIELDS, "0") | {
        "JobID": job, "JobIDRaw": job, "UID": str(uid), "State": "FAILED", "ExitCode": "7:0",
        "Submit": "1795254165", "Start": "1795254165", "End": "1795254165",
    }  # fmt: skip
    line = "|".join(facts[name] for name in sacct.FIELDS)
    columns = sacct.text_columns(sacct.TEXTS, sacct.TEXT_QUERIES[0].width).widths
    texts = dict.fromkeys(columns, "x") | {"JobIDRaw": job, "Submit": facts["Submit"], "Comment": mark}
    record = "".join(f"{texts[name]:<{width}} " for name, width in columns.items()) + "\n"
    row = "\x1f".join([job, job, "N/A", job, "1", str(uid), "RUNNING", *["x"] * (len(squeue.FIELDS) - 7)])
    widths = [sum(list(columns.values())[index:]) for index in range(len(columns))]
    padded = ["x" * (width % 256) + " " + record for width in widths]
    return [text.encode() for text in (f"\n{line}\n", f"{line}\n{line}", mark, f"\n{row}\n", record, *padded)]
