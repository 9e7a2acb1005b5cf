"""What slurmctld's pod says: its configuration, its address, and why slurmctld ended. Pure."""

from __future__ import annotations

import re

from redbox_hosting.api import names
from redbox_hosting.controllers.unstarted_pods import container_of
from redbox_kube.api.objects import Object
from redbox_shared.printable import printable

CONTAINER = "slurmctld"
WORDS = re.compile(r"\b(?:error|fatal): .*\S")
MOST_LINES, LONGEST_WORDS = 3, 1024


def config_hash_of(pod: Object) -> str:
    """The configuration that the kubelet was asked to project."""
    return str((pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_CONFIG_HASH, ""))


def address_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def end_of_slurmctld(pod: Object) -> str:
    """Why slurmctld ended, in its own words, unless it has been started again; else empty."""
    container = container_of(pod, CONTAINER)
    state = container.get("state") or {}
    before = container.get("lastState") or {}
    waits_after_end = (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff"
    ended = state.get("terminated") or (before.get("terminated") if waits_after_end else None) or {}
    if not ended.get("exitCode"):
        return ""
    return words_in(str(ended.get("message") or "")) or (
        f"exit status {ended['exitCode']} ({printable(ended.get('reason') or 'no reason')})"
    )


def is_of_the_configuration(why: str) -> bool:
    """Whether slurmctld ended by its own decision; it may have run out of memory as well."""
    return "fatal: " in why


def words_in(log: str) -> str:
    """The last errors in a log of Slurm's, up to the last fatal one."""
    found = [match[0] for line in log.splitlines() if (match := WORDS.search(line))]
    fatal = [number for number, words in enumerate(found, 1) if words.startswith("fatal")]
    found = found[: fatal[-1]] if fatal else found
    return printable("; ".join(found[-MOST_LINES:])[:LONGEST_WORDS])
