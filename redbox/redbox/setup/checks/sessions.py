"""Check that the rules and the settings say the same of who may enter running jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redbox.callers.mapping.rules import Rule
from redbox.core.domain import Role
from redbox.sessions.settings import ExecSettings
from redbox.setup.checks.findings import Finding, note, warning


def check_session_rules(settings: ExecSettings, rules: Sequence[Rule]) -> Iterator[Finding]:
    named = [number for number, rule in enumerate(rules, 1) if Role.EXEC in rule.roles]
    if not settings.enabled:
        if named:
            yield note(
                f"rule {named[0]} gives the role exec, and sessions are off",
                "set exec.enabled: true and restart red-box, or leave the role out",
            )
        return
    if Role.SUBMIT not in settings.roles and not named:
        yield warning(
            "sessions are on for callers with the role exec, and no rule gives it",
            "add exec to the roles of a rule that has submit, or set exec.roles: [submit]",
        )
    elif Role.SUBMIT in settings.roles and named:
        yield note(
            f"rule {named[0]} gives the role exec, and every caller with the role submit may enter jobs",
            "set exec.roles: [exec] if only some may",
        )
