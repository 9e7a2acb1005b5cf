"""The texts of Slurm's settings in a manifest: what hosted Slurm refuses is taken out, with its reason.

Hosted Slurm applies no text with a line that it refuses, so the line becomes a comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubectl_slurm.slinky.edited import EditedObject, Fields, Outcome
from redbox_shared.hosted_settings.keys import NODE_KEYS, SLURM_KEYS, SLURMDBD_KEYS, why_refused
from redbox_shared.hosted_settings.lines import (
    BARE,
    NOT_BARE,
    SYNTAX,
    ConfRefusal,
    pairs_of,
    read_lines,
    read_options,
)


def convert_lines(edited: EditedObject) -> None:
    """spec.extraConf of a Controller or an Accounting: lines of slurm.conf or slurmdbd.conf."""
    allowed = SLURM_KEYS if edited.kind == "Controller" else SLURMDBD_KEYS
    text = edited.spec.get("extraConf")
    if not isinstance(text, str):
        return
    made: list[str] = []
    for line in text.splitlines():
        made += _line(edited, line, allowed)
    edited.spec["extraConf"] = "".join(f"{line}\n" for line in made)


def _line(edited: EditedObject, line: str, allowed: Mapping[str, str]) -> list[str]:
    pairs = pairs_of(line.strip())
    if len(pairs) > 1 and pairs[0][0].lower() in allowed:
        edited.note("spec.extraConf", Outcome.CHANGED, f"{pairs[0][0]} and {pairs[1][0]} have a line each")
        return [made for key, value in pairs for made in _line(edited, f"{key}={value}", allowed)]
    read = read_lines(line, allowed)
    if not read.refused:
        return [line]
    _note_refusals(edited, "spec.extraConf", read.refused)
    # A partition is written again without the options that are refused; of another line nothing is left.
    return [str(each) for each in read.lines] or [f"# not taken: {line.strip()}"]


def convert_partition(edited: EditedObject, partition: Fields) -> None:
    """spec.partition.config of a NodeSet."""
    text = partition.get("config")
    if not isinstance(text, str) or not text.strip():
        return
    kept, refused = read_options(" ".join(text.split()), str(edited.manifest["metadata"].get("name")))
    _note_refusals(edited, "spec.partition.config", refused)
    partition["config"] = " ".join(f"{key}={value}" for key, value in kept)


def convert_node_options(edited: EditedObject) -> None:
    """spec.extraConf of a NodeSet: options of its nodes."""
    text = edited.spec.get("extraConf")
    if not isinstance(text, str) or not text.strip():
        return
    pairs = pairs_of(" ".join(text.split()))
    kept = []
    for key, value in pairs:
        if key.lower() not in NODE_KEYS:
            _note_refusals(edited, "spec.extraConf", [ConfRefusal(key, _why_not_of_node(key))])
        elif not BARE.fullmatch(value):
            _note_refusals(edited, "spec.extraConf", [ConfRefusal(key, NOT_BARE)])
        else:
            kept.append(f"{key}={value}")
    if not pairs:
        _note_refusals(edited, "spec.extraConf", [ConfRefusal(text, SYNTAX)])
    edited.spec["extraConf"] = " ".join(kept)


def _why_not_of_node(key: str) -> str:
    by_limits = {"cpus": "cpu", "realmemory": "memory", "gres": "nvidia.com/gpu or amd.com/gpu"}
    if limit := by_limits.get(key.lower()):
        return f"it follows from spec.slurmd.resources.limits: set {limit} there"
    return why_refused(key)


def _note_refusals(edited: EditedObject, path: str, refused: Iterable[ConfRefusal]) -> None:
    for each in refused:
        edited.note(path, Outcome.DROPPED, f"{each.what}: {each.why}")
