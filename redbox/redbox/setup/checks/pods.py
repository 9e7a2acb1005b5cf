"""Checks of what pods need of this red-box beside what SlurmJobs need: the role `volumes` of resourced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redbox.callers.identities import ServiceAccount
from redbox.callers.mapping.mapping import rule_for
from redbox.callers.mapping.rules import Rule
from redbox.core.domain import Role
from redbox.setup.checks.findings import Finding, note, warning
from redbox.setup.install.plan import RESOURCED_ACCOUNT


def check_volumes_role(rules: Sequence[Rule]) -> Iterator[Finding]:
    """Resourced can delete the folders of claims: the first rule that matches it has the role `volumes`.

    Whether pods are wanted is decided in Kubernetes, so a role that no rule gives is only a note.
    """
    with_role = _named_accounts(rules, Role.VOLUMES)
    for account in with_role:
        deciding = rule_for(account, rules)
        if deciding is not None and Role.VOLUMES not in deciding.roles:
            yield warning(
                f"{account} does not get the role volumes: rule {_number(rules, deciding)} matches it first",
                "put the rule with the role volumes before that one",
            )
    for account in _named_accounts(rules, Role.OPERATOR):
        deciding = rule_for(account, rules)
        if account.name == RESOURCED_ACCOUNT and account not in with_role and deciding is not None:
            yield note(
                f"{account} does not have the role volumes: if pods run as jobs there, the folders of their "
                "claims are not deleted",
                f"if they do, put a rule for this account alone before rule {_number(rules, deciding)}, "
                "with roles: [operator, reader, volumes]",
            )


def _named_accounts(rules: Sequence[Rule], role: Role) -> list[ServiceAccount]:
    """Those to which rules give this role by name, in order and each once."""
    named = [
        ServiceAccount(rule.cluster, namespace, name, "")
        for rule in rules
        if rule.cluster is not None and role in rule.roles and isinstance(rule.namespaces, tuple)
        for namespace in rule.namespaces
        for name in rule.service_accounts or ()
    ]
    return list(dict.fromkeys(named))


def _number(rules: Sequence[Rule], rule: Rule) -> int:
    return next(number for number, other in enumerate(rules, 1) if other is rule)
