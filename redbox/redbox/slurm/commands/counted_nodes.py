"""scontrol show node, for counting: states with all their flags, and what of each node is in use.

sinfo has no flags before 21.08, no release's sinfo has what is reserved for the system, and both ask
slurmctld for the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from redbox.slurm.commands.sinfo import read_gres
from redbox.slurm.text.record_format import ParseReport
from redbox.slurm.text.values import read_number

BEGIN = re.compile(r"NodeName=(\S+) ")
FREE_TEXT = re.compile(r"\s(?:Comment|Extra|Reason)=")
WORD = re.compile(r"(?<=\s)(\w+)=(\S*)")
LOAD = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")
SUFFIXES: Mapping[str, str] = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "%": "powering_down",
    "$": "maintenance",
    "@": "reboot_issued",
    "^": "reboot_issued",
    "!": "power_down",
    "-": "planned",
}
"""Of releases whose flags are not all words."""


@dataclass(frozen=True, slots=True)
class CountedNode:
    """One node. What jobs can get of it is less than all where some is reserved for the system."""

    name: str
    partitions: tuple[str, ...]
    base: str
    flags: frozenset[str]
    cpus: int
    cpus_effective: int
    cpus_alloc: int
    mem_mb: int
    mem_mb_effective: int
    mem_mb_alloc: int
    mem_mb_free: int
    gpus: int
    gpus_alloc: int
    cpu_load: float | None  # of the last five minutes


def nodes_argv() -> list[str]:
    """Every node, one line each; --detail shows how much of the GRES is in use."""
    return ["scontrol", "--oneliner", "--all", "--detail", "show", "node"]


def read_nodes(text: str, report: ParseReport) -> Iterator[CountedNode]:
    """A line's free text, which is last and may hold anything, is not read."""
    for line in text.splitlines():
        begin = BEGIN.match(line)
        if begin is None:
            continue
        node = _read_node(begin[1], dict(WORD.findall(FREE_TEXT.split(line, maxsplit=1)[0])))
        if node is None:
            report.dropped += 1
        else:
            yield node


def _read_node(name: str, words: Mapping[str, str]) -> CountedNode | None:
    """None where the state, the CPUs or the memory cannot be parsed."""
    cpus, memory = read_number(words.get("CPUTot", "")), read_number(words.get("RealMemory", ""))
    if cpus is None or memory is None or not words.get("State"):
        return None
    base, flags = read_node_state(words["State"])

    def amount(word: str, otherwise: int = 0) -> int:
        found = read_number(words.get(word, ""))
        return otherwise if found is None else found

    return CountedNode(
        name=name,
        partitions=tuple(filter(None, words.get("Partitions", "").split(","))),
        base=base,
        flags=flags,
        cpus=cpus,
        cpus_effective=amount("CPUEfctv", cpus),  # since 22.05
        cpus_alloc=amount("CPUAlloc"),
        mem_mb=memory,
        mem_mb_effective=max(0, memory - amount("MemSpecLimit")),
        mem_mb_alloc=amount("AllocMem"),
        mem_mb_free=amount("FreeMem"),
        gpus=_gpus(words.get("Gres", "")),
        gpus_alloc=_gpus(words.get("GresUsed", "")),
        cpu_load=float(words["CPULoad"]) if LOAD.fullmatch(words.get("CPULoad", "")) else None,
    )


def read_node_state(text: str) -> tuple[str, frozenset[str]]:
    """`IDLE+DRAIN`, or of older releases `IDLE*+DRAIN`: the base and the flags, in lower case."""
    suffixes = frozenset(SUFFIXES[character] for character in text if character in SUFFIXES)
    base, *flags = "".join(character for character in text if character not in SUFFIXES).lower().split("+")
    return base, suffixes.union(flags)


def _gpus(text: str) -> int:
    return sum(amount for name, amount in read_gres(text).items() if name.partition(":")[0] == "gpu")
