"""The rules that are in force, read again when one of their files changes or on SIGHUP: all of them, or none.

Their files are two where the settings name another one for them: which, is read again with the rules. A file
with a flaw leaves the old rules in force, says which line is wrong, and is tried again when it changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from redbox.callers.file_version import FileVersion, file_version
from redbox.callers.mapping.mapping import MappingRules
from redbox.callers.mapping.rules import Rule, RulesDocument
from redbox.core.yaml_document import Document, DocumentError, Flaw, Place, read_document, validate

log = structlog.get_logger(__name__)


class RulesSource(Protocol):
    """Where the rules are."""

    @property
    def files(self) -> Sequence[Path]:
        """Those that decide what the rules are; reading them may tell of others."""
        ...

    def read(self) -> MappingRules:
        """Read the rules; raises DocumentError."""
        ...


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


class ActiveRules:
    """The last good rules."""

    def __init__(self, source: RulesSource) -> None:
        """Read the rules for the first time; raises DocumentError, since there are no old ones to keep."""
        self._source = source
        self._stamps: dict[Path, FileVersion | None] = {}
        self.flaws: tuple[Flaw, ...] = ()
        self.rules = self._read()

    def reload(self) -> bool:
        """Read the rules again (SIGHUP); False, with `flaws`, where the old ones stay in force."""
        try:
            self.rules = self._read()
        except DocumentError as error:
            self.flaws = error.flaws
            log.warning(
                "rules refused, the old ones stay in force",
                files=self._names(),
                flaws=list(map(str, self.flaws)),
            )
            return False
        self.flaws = ()
        log.info("rules read", files=self._names(), rules=len(self.rules.rules))
        return True

    def reload_if_changed(self) -> None:
        """Read the rules again if one of their files is another than the one that was read."""
        if any(file_version(file) != stamp for file, stamp in self._stamps.items()):
            self.reload()

    def _read(self) -> MappingRules:
        """Stamped before they are read: a file that is only known afterwards counts as changed since."""
        before = {file: file_version(file) for file in self._source.files}
        try:
            return self._source.read()
        finally:
            self._stamps = {file: before.get(file) for file in self._source.files}

    def _names(self) -> list[str]:
        return list(map(str, self._source.files))
