"""The rules in force, read again when one of their files changes or on SIGHUP: all of them, or none.

There are two files if the settings refer to a separate one, which is determined again at each reload. A file
with a flaw leaves the old rules in force, is reported with its line, and is read again when it changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from redbox.callers.file_version import FileVersion, file_version
from redbox.callers.mapping.mapping import MappingRules
from redbox.callers.mapping.rules import Rule, RulesDocument
from redbox.core.yaml_document import Document, DocumentError, DocumentPath, Flaw, read_document, validate

log = structlog.get_logger(__name__)


class RulesSource(Protocol):
    """The source of the rules."""

    @property
    def files(self) -> Sequence[Path]:
        """The files that determine the rules; a read may add others."""
        ...

    def read(self) -> MappingRules: ...


def read_rules(path: Path, clusters: Collection[str]) -> tuple[Rule, ...]:
    document = read_document(path)
    rules = validate(RulesDocument, document).rules
    refuse_unknown_clusters(rules, clusters, document, ("rules",))
    return rules


def refuse_unknown_clusters(
    rules: Sequence[Rule], clusters: Collection[str], document: Document, place: DocumentPath
) -> None:
    """Raise DocumentError for rules of clusters that the settings do not have: misspelt names."""
    configured = ", ".join(clusters) or "none"
    flaws = [
        document.flaw(
            (*place, number, "cluster"), f"{rule.cluster!r} is not one of callers.clusters ({configured})"
        )
        for number, rule in enumerate(rules)
        if rule.cluster is not None and rule.cluster not in clusters
    ]
    if flaws:
        raise DocumentError(*flaws)


class ActiveRules:
    """The last valid rules."""

    def __init__(self, source: RulesSource) -> None:
        """Read the rules for the first time; raises DocumentError."""
        self._source = source
        self._versions: dict[Path, FileVersion | None] = {}
        self.flaws: tuple[Flaw, ...] = ()
        self.rules = self._read()

    def reload(self) -> bool:
        """Read the rules again (SIGHUP); return False, with `flaws` set, if the old ones stay in force."""
        try:
            self.rules = self._read()
        except DocumentError as error:
            self.flaws = error.flaws
            log.warning(
                "rules rejected, the old ones stay in force",
                files=self._names(),
                flaws=list(map(str, self.flaws)),
            )
            return False
        self.flaws = ()
        log.info("rules read", files=self._names(), rules=len(self.rules.rules))
        return True

    def reload_if_changed(self) -> None:
        if any(file_version(file) != version for file, version in self._versions.items()):
            self.reload()

    def _read(self) -> MappingRules:
        """Versions are taken before the read; a file that the read adds counts as changed."""
        versions = {file: file_version(file) for file in self._source.files}
        try:
            return self._source.read()
        finally:
            self._versions = {file: versions.get(file) for file in self._source.files}

    def _names(self) -> list[str]:
        return list(map(str, self._source.files))
