"""sinfo: the nodes, a row for each partition of each node, with resources in total and in use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redbox.slurm.text.record_format import ParseReport, RecordFormat, read_records
from redbox.slurm.text.values import read_number, text_or_none

FIELDS = (
    "NodeList", "PartitionName", "StateComplete", "CPUsState", "Memory", "AllocMem", "Gres", "GresUsed",
    "Features", "Reason",
)  # fmt: skip
FIELDS_BEFORE_21_08 = tuple("StateLong" if name == "StateComplete" else name for name in FIELDS)
"""These releases print nothing for StateComplete, and exit with 0."""
IN_WORDS = {
    "completing": "idle+completing", "drained": "idle+drain", "draining": "mixed+drain", "fail": "idle+fail",
    "failing": "mixed+fail", "maint": "idle+maint", "reboot": "idle+reboot_issued",
    "reserved": "idle+reserved",
}  # fmt: skip
"""States of StateLong, which has one word, as StateComplete would write them."""
SUFFIXES = {
    "*": "not_responding", "~": "powered_down", "#": "powering_up", "%": "powering_down", "$": "maint",
    "@": "reboot_issued", "+": "completing",
}  # fmt: skip
CPUS = re.compile(r"([0-9]+)/([0-9]+)/([0-9]+)/([0-9]+)")  # allocated/idle/other/total
GRES = re.compile(r"(?P<name>[^:,()=]+)(?::(?P<type>[^:,()=]+))?:(?P<count>[0-9]+)(?P<unit>[KMGT]?)")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
AWAY = frozenset({
    "down", "drain", "fail", "error", "future", "unknown", "blocked", "inval", "invalid_reg", "maint",
    "not_responding", "power_down", "powering_down", "reboot_issued", "reserved",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node in one partition."""

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
        """Whether Slurm starts jobs on it, if its resources suffice."""
        return not self.states & AWAY


def nodes_argv(record_format: RecordFormat) -> list[str]:
    """Every node of every partition, hidden ones too, of this cluster only."""
    return ["sinfo", "--noheader", "--all", "--local", "--Node", f"--Format={record_format.format()}"]


def read_rows(text: str, record_format: RecordFormat, report: ParseReport) -> tuple[NodeRow, ...]:
    return tuple(read_records(text, record_format, report, read_row))


def read_row(fields: dict[str, str]) -> NodeRow | None:
    """None where the name, the CPUs or the memory cannot be parsed."""
    cpus, memory = CPUS.fullmatch(fields["CPUsState"]), read_number(fields["Memory"])
    if cpus is None or memory is None or not fields["NodeList"]:
        return None
    states = (fields.get("StateComplete", "").lower() or complete_state(fields.get("StateLong", ""))).split(
        "+"
    )
    return NodeRow(
        name=fields["NodeList"],
        partition=fields["PartitionName"].rstrip("*"),
        states=frozenset(states),
        base=states[0],
        cpus=int(cpus[4]),
        cpus_free=int(cpus[2]),
        mem_mb=memory,
        mem_mb_taken=read_number(fields["AllocMem"]) or 0,
        gres=read_gres(fields["Gres"]),
        gres_taken=read_gres(fields["GresUsed"]),
        features=tuple(feature for word in fields["Features"].split(",") if (feature := text_or_none(word))),
        reason=text_or_none(fields["Reason"]),
    )


def complete_state(text: str) -> str:
    """`drained*` as `idle+drain+not_responding`."""
    state = text.lower().rstrip("".join(SUFFIXES))
    flags = [SUFFIXES[suffix] for suffix in text[len(state) :]]
    return "+".join([IN_WORDS.get(state, state), *flags])


def read_gres(text: str) -> dict[str, int]:
    """`gpu:tesla:2(S:0-1),shm:8K` by name and type: {"gpu:tesla": 2, "shm": 8192}."""
    amounts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        found = GRES.fullmatch(part.strip())
        if found is not None:
            name = ":".join(word for word in (found["name"], found["type"]) if word)
            amounts[name] = amounts.get(name, 0) + int(found["count"]) * UNITS[found["unit"]]
    return amounts
