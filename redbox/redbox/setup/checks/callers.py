"""Checks of callers: key sets, audiences, clocks, and rules that allow more than they seem to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from redbox.callers.authenticator import jwks_access
from redbox.callers.errors import ApiServerUnavailable, InvalidKeySet
from redbox.callers.mapping.rules import Rule
from redbox.callers.mapping.rules_file import read_rules
from redbox.callers.settings import ClusterSettings
from redbox.callers.tokens.api_access import ApiAccess
from redbox.callers.tokens.jwks import VerifyingKey, parse_key_set
from redbox.core.domain import Role
from redbox.core.yaml_document import DocumentError
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, fault, note, warning
from redbox.setup.checks.machine import Machine, SlurmHost
from redbox.setup.checks.pods import check_volumes_role
from redbox.setup.checks.sessions import check_session_rules
from redbox.setup.install.manifest import key_instructions

AUDIENCE = re.compile(r"redbox\.dev/([a-z0-9.-]+/[A-Za-z0-9]{8,}|ns/[a-z0-9-]+/[0-9a-f-]{36})")
SYNCHRONISE = "synchronise both with NTP; chronyc tracking and timedatectl show the state"
UNRELATED_NAMESPACES = ("zz9-plural-z-alpha", "q7", "kube-system")
"""Only a pattern for every namespace matches all of these."""


def check_clusters(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """Each cluster's keys are there, its audience cannot be guessed, and no two clusters share a key."""
    if not settings.callers.clusters:
        yield note("no Kubernetes cluster is configured: only users of this host and opaque tokens can call")
    clusters_by_key: dict[bytes, set[str]] = defaultdict(set)
    for cluster in settings.callers.clusters:
        if not AUDIENCE.fullmatch(cluster.audience):
            yield warning(
                f"the audience {cluster.audience} is not of the form redbox.dev/<name>/<random>",
                "use the audience from redbox init: one without a random part can be requested by mistake",
            )
        keys = _keys_of(machine, cluster)
        if isinstance(keys, Finding):
            yield keys
            continue
        for key in keys.values():
            der = key.public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            clusters_by_key[der].add(cluster.name)
    for names in clusters_by_key.values():
        if len(names) > 1:
            yield fault(
                f"clusters {', '.join(sorted(names))} share a signing key: each can forge the other's tokens",
                "give each cluster keys of its own (--service-account-signing-key-file)",
            )


def _keys_of(machine: Machine, cluster: ClusterSettings) -> Mapping[str, VerifyingKey] | Finding:
    if cluster.jwks_file is not None:
        where, cure = str(cluster.jwks_file), key_instructions(cluster.name, cluster.jwks_file)
        document = machine.read(cluster.jwks_file)
        if document is None:
            return fault(f"{where} cannot be read: tokens of cluster {cluster.name} get a 503", cure)
    else:
        where = str(cluster.jwks_url)
        cure = "check jwks_url, jwks_ca_file, jwks_token_file, and the network between this host and that URL"
        try:
            document = machine.fetch(where, jwks_access(cluster))
        except ApiServerUnavailable as error:
            return fault(f"the keys of cluster {cluster.name} cannot be fetched: {error}", cure)
    try:
        return parse_key_set(document)
    except InvalidKeySet as error:
        return fault(f"{where} is not a valid key set for cluster {cluster.name}: {error}", cure)


def check_clocks(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """This host's clock and those of the API servers agree well enough for tokens."""
    for cluster in settings.callers.clusters:
        review = cluster.token_review
        if review is not None:
            remote_time = machine.time_at(review.server, ApiAccess(review.ca_file, None, review.deadline))
        elif cluster.jwks_url is not None:
            remote_time = machine.time_at(cluster.jwks_url, jwks_access(cluster))
        else:
            continue
        if remote_time is not None:
            yield from _compare_clocks(machine.now(), remote_time, cluster.name, settings.callers.leeway)


def _compare_clocks(local: datetime, remote: datetime, cluster: str, leeway_s: float) -> Iterator[Finding]:
    difference_s = abs((local - remote).total_seconds())
    if difference_s > leeway_s:
        yield fault(
            f"the clocks of this host and of cluster {cluster} are {difference_s:.0f} s apart, "
            "more than callers.leeway allows",
            SYNCHRONISE,
        )
    elif difference_s > leeway_s / 3:
        yield warning(
            f"the clocks of this host and of cluster {cluster} are {difference_s:.0f} s apart",
            SYNCHRONISE,
        )


def rules_of(settings: RedboxSettings) -> Sequence[Rule]:
    """Return the rules, from their own file where there is one; raises DocumentError."""
    if settings.mapping.file is None:
        return settings.mapping.rules
    return read_rules(Path(settings.mapping.file), settings.clusters)


def check_rules(host: SlurmHost | None, settings: RedboxSettings) -> Iterator[Finding]:
    """The rules can be read, and name users of the host; rules for very many callers are reported."""
    try:
        rules = rules_of(settings)
    except DocumentError as error:
        yield from (fault(str(flaw), "fix that line") for flaw in error.flaws)
        return
    if settings.callers.clusters and not any(Role.SUBMIT in rule.roles and rule.cluster for rule in rules):
        yield note(
            "no rule allows a service account to submit jobs", "add one to mapping.rules for each namespace"
        )
    for number, rule in enumerate(rules, 1):
        yield from _check_breadth(rule, number)
        if host is not None:
            yield from _check_users(host, settings, rule, number)
    yield from _check_requeue_role(rules)
    yield from check_volumes_role(rules)
    yield from check_session_rules(settings.exec, rules)


def _check_requeue_role(rules: Sequence[Rule]) -> Iterator[Finding]:
    """Settings of before the role requeue have an operator that may not requeue."""
    operated = {rule.cluster for rule in rules if Role.OPERATOR in rule.roles and rule.cluster}
    requeued = {rule.cluster for rule in rules if {Role.OPERATOR, Role.REQUEUE} <= {*rule.roles}}
    for cluster in sorted(operated - requeued):
        yield note(
            f"no rule of cluster {cluster} has the roles operator and requeue: `kubectl slurm requeue` "
            "is refused",
            "add requeue to the roles of the rule for redbox-operator in mapping.rules",
        )


def _check_breadth(rule: Rule, number: int) -> Iterator[Finding]:
    if rule.is_template:
        yield warning(
            f"rule {number} derives the user from {rule.user}: anyone who can create that name is that user",
            "allow only administrators to create namespaces and service accounts there, or name each user",
        )
    if isinstance(rule.namespaces, str) and all(
        re.fullmatch(rule.namespaces, name) for name in UNRELATED_NAMESPACES
    ):
        yield warning(
            f"rule {number} matches every namespace of cluster {rule.cluster}: {rule.namespaces}",
            "list the namespaces, or give the pattern a prefix that only administrators may use",
        )


def users_named(rule: Rule) -> tuple[str, ...]:
    names = () if rule.is_template or rule.user is None else (rule.user,)
    return (*names, *(rule.allowed_users or ()))


def _check_users(host: SlurmHost, settings: RedboxSettings, rule: Rule, number: int) -> Iterator[Finding]:
    mapping = settings.mapping
    members = host.group(mapping.users_group)
    for name in users_named(rule):
        account = host.account(name)
        if account is None:
            yield fault(
                f"rule {number} names user {name}, who does not exist on {host.where}", "correct the name"
            )
        elif account.uid < max(mapping.min_uid, rule.min_uid or 0):
            yield fault(
                f"rule {number} names user {name}, whose uid {account.uid} is below min_uid",
                "remove the name",
            )
        elif settings.agents.transport != "self" and members is not None and members not in account.groups:
            yield fault(
                f"rule {number} names user {name}, who is not in the group {mapping.users_group}",
                f"usermod -aG {mapping.users_group} {name}, or remove the name",
            )
    if rule.allowed_group is not None and host.group(rule.allowed_group) is None:
        yield fault(
            f"rule {number} names group {rule.allowed_group}, which does not exist on {host.where}",
            "correct the name",
        )
