"""Mapping of a proved identity to a Unix user. Pure: from rules and accounts to a Caller, or NotMapped.

The first rule whose callers include the identity decides, even if it then refuses: a later rule would make
the result depend on the members of a group. Users of this host and holders of tokens need no rule (they keep
their user, with the role submit), but a rule may restrict them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from redbox.callers.errors import NotMapped
from redbox.callers.identities import LOCAL_CLUSTER, Identity, Peer, ServiceAccount, TokenHolder
from redbox.callers.mapping.rules import EVERYONE, TEMPLATES, USER_NAME, Rule
from redbox.callers.unix_accounts import AccountLookup, UnixAccount
from redbox.core.domain import Caller, Limits, Owner, Role, UnixUser

LOCAL_NAMESPACE = "users"


@dataclass(frozen=True, slots=True)
class MappingRules:
    """The rules, with the limits that apply to all of them."""

    rules: Sequence[Rule] = ()
    min_uid: int = 1000
    users_group: str = "redbox-users"


class _Refused(Exception):
    """Passes the reason to `map_caller_to_user`."""


def map_caller_to_user(identity: Identity, rules: MappingRules, accounts: AccountLookup) -> Caller:
    """Return the caller; raises NotMapped."""
    try:
        if isinstance(identity, ServiceAccount):
            return _map_service_account(identity, rules, accounts)
        return _map_local_caller(identity, rules, accounts)
    except _Refused as refused:
        raise NotMapped(str(identity), str(refused)) from None


def _map_service_account(identity: ServiceAccount, rules: MappingRules, accounts: AccountLookup) -> Caller:
    rule = rule_for(identity, rules.rules)
    if rule is None:
        raise _Refused("no mapping rule matches it; the HPC administrator can add one to mapping.rules")
    user = _mapped_user(identity, rule, rules, accounts) if Role.SUBMIT in rule.roles else None
    owner = Owner(identity.cluster, identity.namespace, identity.name, identity.uid)
    name = f"system:serviceaccount:{identity.namespace}:{identity.name}"
    return Caller(name, owner, rule.roles, user, _limits(rule))


def _map_local_caller(identity: Peer | TokenHolder, rules: MappingRules, accounts: AccountLookup) -> Caller:
    account, rule = _own_account(identity, accounts), None
    if isinstance(identity, Peer):
        rule = next((rule for rule in rules.rules if _names(rule.unix_users, account.name)), None)
    else:
        rule = next((rule for rule in rules.rules if _names(rule.tokens, identity.token_id)), None)
    roles = rule.roles if rule else frozenset({Role.SUBMIT})
    user = _checked(account, rule, rules) if Role.SUBMIT in roles else None
    owner = Owner(LOCAL_CLUSTER, LOCAL_NAMESPACE, account.name, str(account.uid))
    return Caller(str(identity), owner, roles, user, _limits(rule))


def _own_account(identity: Peer | TokenHolder, accounts: AccountLookup) -> UnixAccount:
    if isinstance(identity, Peer):
        account, wanted = accounts.account_of(identity.uid), f"number {identity.uid}"
    else:
        account, wanted = accounts.account(identity.user), repr(identity.user)
    if account is None:
        raise _Refused(f"this host has no user {wanted}")
    return account


def rule_for(identity: ServiceAccount, rules: Sequence[Rule]) -> Rule | None:
    """The rule that decides: the first that matches."""
    return next((rule for rule in rules if _includes(rule, identity)), None)


def _includes(rule: Rule, identity: ServiceAccount) -> bool:
    return (
        rule.cluster == identity.cluster
        and _matches(rule.namespaces, identity.namespace)
        and (rule.service_accounts is None or identity.name in rule.service_accounts)
    )


def _matches(namespaces: tuple[str, ...] | str | None, namespace: str) -> bool:
    if isinstance(namespaces, str):
        return re.fullmatch(namespaces, namespace) is not None
    return namespaces is None or namespace in namespaces


def _names(listed: tuple[str, ...] | None, name: str) -> bool:
    return listed is not None and (name in listed or EVERYONE in listed)


def _mapped_user(
    identity: ServiceAccount, rule: Rule, rules: MappingRules, accounts: AccountLookup
) -> UnixUser:
    if rule.is_template:
        return _checked(_templated_account(identity, rule, rules, accounts), rule, rules)
    account = accounts.account(str(rule.user))
    if account is None:
        raise _Refused(f"it is mapped to {rule.user!r}, but this host has no such user")
    return _checked(account, rule, rules)


def _templated_account(
    identity: ServiceAccount, rule: Rule, rules: MappingRules, accounts: AccountLookup
) -> UnixAccount:
    name: str = getattr(identity, TEMPLATES[str(rule.user)])
    if not USER_NAME.fullmatch(name):
        raise _Refused(f"{name!r}, the user of its rule's template, is not a valid name of a Unix user")
    if rule.allowed_group is None and name not in (rule.allowed_users or ()):
        raise _Refused(f"user {name!r} is not allowed by its rule")
    account = accounts.account(name)
    if account is None:
        raise _Refused(f"this host has no user {name!r}")
    if name not in (rule.allowed_users or ()) and not _is_in(account, rule.allowed_group, accounts):
        raise _Refused(f"user {name!r} is not allowed by its rule")
    if not _is_in(account, rules.users_group, accounts):
        raise _Refused(f"user {name!r} is not in the group {rules.users_group}")
    return account


def _is_in(account: UnixAccount, group: str | None, accounts: AccountLookup) -> bool:
    number = None if group is None else accounts.group(group)
    return number is not None and number in account.groups


def _checked(account: UnixAccount, rule: Rule | None, rules: MappingRules) -> UnixUser:
    lowest = max(rules.min_uid, (rule.min_uid or 0) if rule else 0)
    if account.uid == 0:
        raise _Refused("jobs do not run as root")
    if account.uid < lowest:
        raise _Refused(f"user {account.name!r} has the uid {account.uid}; the lowest allowed is {lowest}")
    if not USER_NAME.fullmatch(account.name):
        raise _Refused(f"jobs cannot run as {account.name!r}: the name is not valid")
    return UnixUser(account.name, account.uid)


def _limits(rule: Rule | None) -> Limits:
    if rule is None:
        return Limits()
    return Limits(
        accounts=None if rule.accounts is None else frozenset(rule.accounts),
        partitions=None if rule.partitions is None else frozenset(rule.partitions),
    )
