"""The rules that are in force, read again when their file changes or on SIGHUP: all of them, or none.

A file with a flaw leaves the old rules in force, says which line is wrong, and is tried again when it
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from redbox.callers.mapping import Rules
from redbox.callers.rules import MappingSettings, RulesDocument
from redbox.callers.stamps import stamp_of
from redbox.documents import DocumentError, Flaw, read_document, validate

log = structlog.get_logger(__name__)

RulesReader = Callable[[], Rules]
"""Reads the rules from where they are; raises DocumentError."""


def rules_reader(settings: MappingSettings, read_settings: Callable[[], MappingSettings]) -> RulesReader:
    """How to read the rules again: from their own file, or from the settings file that holds them."""

    def read() -> Rules:
        if settings.file is not None:
            rules = validate(RulesDocument, read_document(settings.file)).rules
        else:
            rules = read_settings().rules
        return Rules(rules, settings.min_uid, settings.users_group)

    return read


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
