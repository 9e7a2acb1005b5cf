"""slurmctld's record of this pod's node, by scontrol: the record, its absence, or no answer at all."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

_WITHIN_S = 20
# Of 24.11 and older: one letter after the state, for what later releases write as a flag.
_MARKS = "*~#!%$@^-+"
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_POWER = frozenset({"POWERING_UP", "POWERED_DOWN", "POWERING_DOWN"})


class SlurmUnavailable(Exception):
    """slurmctld did not answer, or scontrol could not ask it."""


@dataclass(frozen=True)
class NodeRecord:
    """What decides who may drain the node, and when its pod may end."""

    states: frozenset[str]
    instance_id: str
    address: str
    comment: str = ""

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.states

    @property
    def busy(self) -> bool:
        """Whether jobs are on it, even those without a step."""
        return bool(self.states & _BUSY)

    @property
    def changes_power(self) -> bool:
        """In these states a DRAIN requeues the jobs that wait for the node, and ALLOCATED means only them."""
        return bool(self.states & _POWER)


def read_node(name: str) -> NodeRecord | None:
    """None if Slurm has no such node."""
    ended = _scontrol("--oneliner", "show", "node", name)
    if ended.returncode and "not found" in ended.stdout + ended.stderr:
        return None
    if ended.returncode or not (record := parse_node(ended.stdout)):
        raise SlurmUnavailable(_words(ended))
    return record


def parse_node(line: str) -> NodeRecord | None:
    state = _field(line, "State")
    if not _field(line, "NodeName") or not state:
        return None
    states = frozenset(part.rstrip(_MARKS) for part in state.split("+"))
    return NodeRecord(states, _field(line, "InstanceId"), _field(line, "NodeAddr"), _field(line, "Comment"))


def drain(name: str, reason: str) -> None:
    _update(name, "state=drain", f"reason={reason}")


def identify(name: str, instance_id: str, comment: str) -> None:
    """Without a comment the one that is there stays."""
    _update(name, f"instanceid={instance_id}", *([f"comment={comment}"] if comment else []))


def _update(name: str, *changes: str) -> None:
    ended = _scontrol("update", f"nodename={name}", *changes)
    if ended.returncode:
        raise SlurmUnavailable(_words(ended))


def _field(line: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", line)
    return found[1] if found and found[1] != "(null)" else ""


def _scontrol(*arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = ("scontrol", *arguments)
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmUnavailable(str(error)) from error


def _words(ended: subprocess.CompletedProcess[str]) -> str:
    return " ".join((ended.stderr or ended.stdout).split()) or f"scontrol ended with {ended.returncode}"
