"""What slurmctld's pod says: its configuration, its address, and why slurmctld ended. Pure."""

from __future__ import annotations

import re

from redbox_hosting.api import names
from redbox_hosting.build.pods.slurmctld import RESTORE
from redbox_hosting.controllers.unstarted_pods import container_of
from redbox_kube.api.objects import Object
from redbox_shared.printable import printable

CONTAINER = "slurmctld"
RESTORES = "redbox-slurmpod: restore: "
WORDS = re.compile(r"\b(?:error|fatal): .*\S")
MOST_LINES, LONGEST_WORDS = 3, 1024


def config_hash_of(pod: Object) -> str:
    """The configuration that the kubelet was asked to project."""
    return str((pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_CONFIG_HASH, ""))


def address_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def end_of_slurmctld(pod: Object) -> str:
    """Why slurmctld ended or did not begin, in its own words, unless it was started again; else empty."""
    if why := _end_of_restore(pod):
        return f"its state is not restored: {why}"
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


def _end_of_restore(pod: Object) -> str:
    """The words of the init container that puts a backup back, if it has failed."""
    for each in (pod.get("status") or {}).get("initContainerStatuses") or []:
        if each["name"] == RESTORE:
            states = each.get("state") or {}, each.get("lastState") or {}
            ended: Object = next((state["terminated"] for state in states if "terminated" in state), {})
            if ended.get("exitCode"):
                words = str(ended.get("message") or f"exit status {ended['exitCode']}").strip()
                return printable(words.rpartition(RESTORES)[2][:LONGEST_WORDS], lines=False)
    return ""


def is_of_the_configuration(why: str) -> bool:
    """Whether slurmctld ended by its own decision; it may have run out of memory as well."""
    return "fatal: " in why


def words_in(log: str) -> str:
    """The last errors in a log of Slurm's, up to the last fatal one."""
    found = [match[0] for line in log.splitlines() if (match := WORDS.search(line))]
    fatal = [number for number, words in enumerate(found, 1) if words.startswith("fatal")]
    found = found[: fatal[-1]] if fatal else found
    return printable("; ".join(found[-MOST_LINES:])[:LONGEST_WORDS])
