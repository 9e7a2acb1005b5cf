"""sinfo: the nodes, once for each partition that they are in, with what each has and what of it is taken."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redbox.slurm.text.record_format import ParseReport, RecordFormat, split_fields, split_records
from redbox.slurm.text.values import read_number, text_or_none

FIELDS = (
    "NodeList", "PartitionName", "StateComplete", "CPUsState", "Memory", "AllocMem", "Gres", "GresUsed",
    "Features", "Reason",
)  # fmt: skip
CPUS = re.compile(r"([0-9]+)/([0-9]+)/([0-9]+)/([0-9]+)")  # allocated/idle/other/total
GRES = re.compile(r"(?P<name>[^:,()=]+)(?::(?P<type>[^:,()=]+))?:(?P<count>[0-9]+)(?P<unit>[KMGT]?)")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
AWAY = frozenset({
    "down", "drain", "fail", "error", "future", "unknown", "blocked", "inval", "invalid_reg", "maint",
    "not_responding", "power_down", "powering_down", "reboot_issued", "reserved",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node as a member of one partition."""

    name: str
    partition: str
    states: frozenset[str]  # idle+drain: a base and flags, in lower case
    base: str
    cpus: int
    cpus_free: int
    mem_mb: int
    mem_mb_taken: int
    gres: dict[str, int]
    gres_taken: dict[str, int]
    features: tuple[str, ...]
    reason: str | None

    @property
    def usable(self) -> bool:
        """Whether a job could be started on it now, if it had room."""
        return not self.states & AWAY


def all_nodes(frame: RecordFormat) -> list[str]:
    """Every node of every partition, hidden ones too, of this cluster only."""
    return ["sinfo", "--noheader", "--all", "--local", "--Node", f"--Format={frame.format()}"]


def read_rows(text: str, frame: RecordFormat, tally: ParseReport) -> tuple[NodeRow, ...]:
    rows = []
    for record in split_records(text, frame, tally):
        fields = split_fields(record, frame, tally)
        row = read_row(dict(zip(FIELDS, fields, strict=True))) if fields else None
        if row is not None:
            rows.append(row)
        elif fields:
            tally.dropped += 1
    return tuple(rows)


def read_row(seen: dict[str, str]) -> NodeRow | None:
    """One record; None where its counts are none."""
    cpus, memory = CPUS.fullmatch(seen["CPUsState"]), read_number(seen["Memory"])
    if cpus is None or memory is None or not seen["NodeList"]:
        return None
    states = seen["StateComplete"].lower().split("+")
    return NodeRow(
        name=seen["NodeList"],
        partition=seen["PartitionName"].rstrip("*"),
        states=frozenset(states),
        base=states[0],
        cpus=int(cpus[4]),
        cpus_free=int(cpus[2]),
        mem_mb=memory,
        mem_mb_taken=read_number(seen["AllocMem"]) or 0,
        gres=read_gres(seen["Gres"]),
        gres_taken=read_gres(seen["GresUsed"]),
        features=tuple(
            text_or_none(word) or "" for word in seen["Features"].split(",") if text_or_none(word)
        ),
        reason=text_or_none(seen["Reason"]),
    )


def read_gres(text: str) -> dict[str, int]:
    """`gpu:tesla:2(S:0-1),shm:8K` by name and type: {"gpu:tesla": 2, "shm": 8192}."""
    amounts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        found = GRES.fullmatch(part.strip())
        if found is not None:
            name = ":".join(word for word in (found["name"], found["type"]) if word)
            amounts[name] = amounts.get(name, 0) + int(found["count"]) * UNITS[found["unit"]]
    return amounts
