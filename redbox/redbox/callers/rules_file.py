"""The rules that are in force, read again when their file changes or on SIGHUP: all of them, or none.

A file with a flaw leaves the old rules in force, says which line is wrong, and is tried again when it
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import structlog

from redbox.callers.mapping import Rules
from redbox.callers.rules import Rule, RulesDocument
from redbox.callers.stamps import stamp_of
from redbox.documents import Document, DocumentError, Flaw, Place, read_document, validate

log = structlog.get_logger(__name__)

RulesReader = Callable[[], Rules]
"""Reads the rules from where they are; raises DocumentError."""


def read_rules(path: Path, clusters: Collection[str]) -> tuple[Rule, ...]:
    """Read a file of rules."""
    document = read_document(path)
    rules = validate(RulesDocument, document).rules
    refuse_unknown_clusters(rules, clusters, document, ("rules",))
    return rules


def refuse_unknown_clusters(
    rules: Sequence[Rule], clusters: Collection[str], document: Document, place: Place
) -> None:
    """Refuse rules for clusters that nobody's tokens can come from: their names are misspelt."""
    known = ", ".join(clusters) or "none"
    flaws = [
        document.flaw(
            (*place, number, "cluster"), f"{rule.cluster!r} is not one of callers.clusters ({known})"
        )
        for number, rule in enumerate(rules)
        if rule.cluster is not None and rule.cluster not in clusters
    ]
    if flaws:
        raise DocumentError(*flaws)


class RulesInForce:
    """The last good rules."""

    def __init__(self, path: Path, read: RulesReader) -> None:
        """Read the rules for the first time; raises DocumentError, since there are no old ones to keep."""
        self._path = path
        self._read = read
        self._stamp = stamp_of(path)
        self.flaws: tuple[Flaw, ...] = ()
        self.rules = read()

    def reload(self) -> bool:
        """Read the rules again (SIGHUP); False, with `flaws`, where the old ones stay in force."""
        self._stamp = stamp_of(self._path)
        try:
            self.rules = self._read()
        except DocumentError as error:
            self.flaws = error.flaws
            log.warning(
                "rules refused, the old ones stay in force",
                file=str(self._path),
                flaws=list(map(str, self.flaws)),
            )
            return False
        self.flaws = ()
        log.info("rules read", file=str(self._path), rules=len(self.rules.rules))
        return True

    def reload_if_changed(self) -> None:
        """Read the rules again if their file is another than the one that was read."""
        if stamp_of(self._path) != self._stamp:
            self.reload()
