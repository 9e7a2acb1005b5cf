"""The text of Slurm's commands, through the functions that read it: values, or nothing, and never an error.

squeue and sacct have tests of their own with hostile values (`tests/redbox/slurm/commands`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from hypothesis import strategies as st

from redbox.slurm.commands import counted_nodes, sacctmgr, scontrol, sdiag, sinfo, sstat
from redbox.slurm.text.record_format import ParseReport, RecordFormat, decode
from redbox.slurm.views.partitions import build_partitions
from tests.fuzz.mutations import Pieces, mutated
from tests.fuzz.target import Play, Target
from tests.redbox.slurm.captured import RELEASES, output

SINFO = RecordFormat(sinfo.FIELDS, "~F~", "~R~")
PARTITIONS = scontrol.read_partitions(output(RELEASES[0], "partitions.txt"))


def _read_sinfo(text: str) -> object:
    nodes = sinfo.read_rows(text, SINFO, ParseReport())
    return [partition.model_dump_json() for partition in build_partitions(PARTITIONS, nodes)]


def _read_partitions(text: str) -> object:
    partitions = scontrol.read_partitions(text)
    return [partition.model_dump_json() for partition in build_partitions(partitions, ())]


READERS: Mapping[str, Callable[[str], object]] = {
    "sinfo.txt": _read_sinfo,
    "partitions.txt": _read_partitions,
    "config.txt": scontrol.read_configuration,
    "federation.txt": scontrol.read_federation,
    "sdiag.txt": sdiag.read_text,
    "sdiag.json": sdiag.read_json,
    "associations.txt": sacctmgr.read_associations,
    "sacctmgr-config.txt": sacctmgr.hides_jobs,
    "sstat.txt": lambda text: list(sstat.read_usage(text)),
    "counted-nodes.txt": lambda text: list(counted_nodes.read_nodes(text, ParseReport())),
}
WORDS = st.sampled_from(
    [b"9" * 20, b"9" * 5000, b"-1", b"nan", b"1e400", b"(null)", b"UNLIMITED", b"~F~", b"~R~", b"\n", b"=",
     b"|",
     "\u0663".encode(), "\u2028".encode(), b"\xff", b"\0", b"a" * 5000, b":", b",", b"(" * 5000, b"[" * 5000]
)  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> Pieces:
    """The reader's name, then the lines of a captured text, in one of which stands what nobody expects."""
    name, release = draw(st.sampled_from(sorted(READERS))), draw(st.sampled_from(RELEASES))
    lines = output(release, name).encode().splitlines(keepends=True)[:60]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines) - 1)) if lines else 0
        line = lines[at] if lines else b""
        place, end = sorted(draw(st.tuples(*[st.integers(0, len(line))] * 2)))
        lines[at : at + 1] = [line[:place] + draw(WORDS) + line[end:]]
    return [name.encode(), *lines]


@asynccontextmanager
async def readers() -> AsyncIterator[Play]:
    async def play(pieces: Pieces) -> None:
        if not pieces:
            return
        read = READERS.get(pieces[0].decode("latin-1"))
        for reader in READERS.values() if read is None else [read]:
            reader(decode(b"".join(pieces[1:])))

    yield play


TARGETS = (Target("slurm-text", mutated(texts()), readers, [b"sstat.txt"], in_ci=300),)
