"""Which Unix user an identity is: tables of identities, rules and accounts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.callers.errors import NotMapped
from redbox.callers.identities import Identity, Peer, ServiceAccount, TokenHolder
from redbox.callers.mapping.mapping import MappingRules, map_caller_to_user
from redbox.callers.mapping.rules import Rule
from redbox.callers.unix_accounts import UnixAccount
from redbox.core.domain import Limits, Owner, Role, UnixUser
from tests.redbox.callers.fakes import MEMBERS, STAFF, Accounts


def accounts(*present: UnixAccount) -> Accounts:
    return Accounts({account.name: account for account in present})


ALICE = UnixAccount("alice", 2001, frozenset({2001, MEMBERS, STAFF}))
BOB = UnixAccount("bob", 2002, frozenset({2002, MEMBERS}))
EVE = UnixAccount("eve", 2003, frozenset({2003, STAFF}))
ROOT = UnixAccount("root", 0, frozenset({0, MEMBERS, STAFF}))
DAEMON = UnixAccount("daemon", 2, frozenset({2, MEMBERS, STAFF}))
TOOR = UnixAccount("toor", 0, frozenset({0, MEMBERS}))
HOST = accounts(ALICE, BOB, EVE, ROOT, DAEMON, TOOR)


def pod_of(namespace: str, account: str = "default", cluster: str = "prod") -> ServiceAccount:
    return ServiceAccount(cluster, namespace, account, uid="u-1", pod="p", pod_uid="p-1")


def rules(*written: dict[str, Any], **more: Any) -> MappingRules:
    return MappingRules([Rule.model_validate(rule) for rule in written], **more)


PHYSICS_IS_ALICE = {"cluster": "prod", "namespaces": ["physics"], "user": "alice"}
TEMPLATED = {
    "cluster": "prod",
    "namespaces": "^[a-z0-9-]+$",
    "user": "{namespace}",
    "allowed_group": "staff",
}

MAPPED: dict[str, tuple[Identity, MappingRules, str]] = {
    "by namespace": (pod_of("physics"), rules(PHYSICS_IS_ALICE), "alice"),
    "any account of the namespace": (pod_of("physics", "runner"), rules(PHYSICS_IS_ALICE), "alice"),
    "by service account": (
        pod_of("physics", "runner"),
        rules({**PHYSICS_IS_ALICE, "service_accounts": ["runner"]}),
        "alice",
    ),
    "the first rule that matches": (
        pod_of("physics"),
        rules(PHYSICS_IS_ALICE, {**PHYSICS_IS_ALICE, "user": "bob"}),
        "alice",
    ),
    "not a rule before that does not match": (
        pod_of("physics"),
        rules({**PHYSICS_IS_ALICE, "service_accounts": ["other"], "user": "bob"}, PHYSICS_IS_ALICE),
        "alice",
    ),
    "by pattern": (pod_of("team-a"), rules({**PHYSICS_IS_ALICE, "namespaces": "^team-[a-z]$"}), "alice"),
    "by template and group": (pod_of("alice"), rules(TEMPLATED), "alice"),
    "by template and list": (
        pod_of("bob"),
        rules({**TEMPLATED, "allowed_group": None, "allowed_users": ["bob"]}),
        "bob",
    ),
    "by template of the service account": (
        pod_of("jupyter", "alice"),
        rules({**TEMPLATED, "namespaces": ["jupyter"], "user": "{service_account}"}),
        "alice",
    ),
    "at exactly the lowest number": (pod_of("physics"), rules(PHYSICS_IS_ALICE, min_uid=2001), "alice"),
    "on the socket without any rule": (Peer(2001, 2001, 77), rules(), "alice"),
    "by token without any rule": (TokenHolder("abc", "bob"), rules(), "bob"),
}


@pytest.mark.parametrize("case", MAPPED)
def test_an_identity_becomes_a_user(case: str) -> None:
    identity, decided_by, expected = MAPPED[case]
    mapped = map_caller_to_user(identity, decided_by, HOST)
    assert mapped.user == UnixUser(expected, HOST.accounts[expected].uid)
    assert mapped.roles == {Role.SUBMIT}


REFUSED: dict[str, tuple[Identity, MappingRules, str]] = {
    "no rules at all": (pod_of("physics"), rules(), "no mapping rule matches it"),
    "another namespace": (pod_of("biology"), rules(PHYSICS_IS_ALICE), "no mapping rule"),
    "another cluster": (pod_of("physics", cluster="test"), rules(PHYSICS_IS_ALICE), "no mapping rule"),
    "another service account": (
        pod_of("physics"),
        rules({**PHYSICS_IS_ALICE, "service_accounts": ["runner"]}),
        "no mapping rule",
    ),
    "only part of the name matches": (
        pod_of("x-team-a"),
        rules({**PHYSICS_IS_ALICE, "namespaces": "^team-[a-z]$"}),
        "no mapping rule",
    ),
    "an alternative that is not anchored": (
        pod_of("physics-evil"),
        rules({**PHYSICS_IS_ALICE, "namespaces": "^physics|biology$"}),
        "no mapping rule",
    ),
    "no such user": (
        pod_of("physics"),
        rules({**PHYSICS_IS_ALICE, "user": "gone"}),
        "mapped to 'gone', but this host has no such user",
    ),
    "a second name of root": (pod_of("physics"), rules({**PHYSICS_IS_ALICE, "user": "toor"}), "as root"),
    "a system account": (pod_of("physics"), rules({**PHYSICS_IS_ALICE, "user": "daemon"}), "lowest allowed"),
    "below the lowest number": (
        pod_of("physics"),
        rules(PHYSICS_IS_ALICE, min_uid=2002),
        "has the uid 2001; the lowest allowed is 2002",
    ),
    "below the rule's lowest number": (
        pod_of("physics"),
        rules({**PHYSICS_IS_ALICE, "min_uid": 5000}),
        "lowest allowed is 5000",
    ),
    "a rule cannot lower the limit": (
        pod_of("physics"),
        rules({**PHYSICS_IS_ALICE, "user": "daemon", "min_uid": 1}),
        "lowest allowed is 1000",
    ),
    "template: root": (pod_of("root"), rules(TEMPLATED), "as root"),
    "template: daemon": (pod_of("daemon"), rules(TEMPLATED), "lowest allowed"),
    "template: a number": (pod_of("0"), rules(TEMPLATED), "not a valid name of a Unix user"),
    "template: nobody here": (pod_of("nobody-here"), rules(TEMPLATED), "no user 'nobody-here'"),
    "template: not in the rule's group": (pod_of("bob"), rules(TEMPLATED), "is not allowed by its rule"),
    "template: not in redbox-users": (pod_of("eve"), rules(TEMPLATED), "not in the group redbox-users"),
    "template: not in the rule's list": (
        pod_of("alice"),
        rules({**TEMPLATED, "allowed_group": None, "allowed_users": ["bob"]}),
        "is not allowed by its rule",
    ),
    "template: the group is gone": (
        pod_of("alice"),
        rules({**TEMPLATED, "allowed_group": "gone"}),
        "is not allowed by its rule",
    ),
    "template: redbox-users is gone": (
        pod_of("alice"),
        rules(TEMPLATED, users_group="gone"),
        "not in the group gone",
    ),
    "template: no later rule has a say": (
        pod_of("bob"),
        rules(TEMPLATED, {**PHYSICS_IS_ALICE, "namespaces": ["bob"]}),
        "is not allowed by its rule",
    ),
    "root on the socket": (Peer(0, 0, 1), rules(), "as root"),
    "a number without an account": (Peer(4711, 1, 1), rules(), "no user number 4711"),
    "a daemon on the socket": (Peer(2, 2, 1), rules(), "lowest allowed"),
    "a token for root": (TokenHolder("abc", "root"), rules(), "as root"),
    "a token for somebody who left": (TokenHolder("abc", "gone"), rules(), "no user 'gone'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_identity_is_refused_with_what_was_seen(case: str) -> None:
    identity, decided_by, words = REFUSED[case]
    with pytest.raises(NotMapped) as refusal:
        map_caller_to_user(identity, decided_by, HOST)
    assert words in refusal.value.reason
    assert refusal.value.identity == str(identity)


def test_a_caller_owns_jobs_by_the_uid_of_its_account() -> None:
    mapped = map_caller_to_user(pod_of("physics"), rules(PHYSICS_IS_ALICE), HOST)
    assert mapped.owner == Owner("prod", "physics", "default", "u-1")
    assert mapped.identity == "system:serviceaccount:physics:default"


def test_a_user_has_the_same_jobs_by_socket_and_by_token() -> None:
    callers = [
        map_caller_to_user(identity, rules(), HOST)
        for identity in (Peer(2001, 1, 1), TokenHolder("t", "alice"))
    ]
    assert [caller.owner for caller in callers] == [Owner("local", "users", "alice", "2001")] * 2


def test_a_rule_limits_accounts_and_partitions() -> None:
    written = {**PHYSICS_IS_ALICE, "accounts": ["physics"], "partitions": ["GPU_big", "long"]}
    mapped = map_caller_to_user(pod_of("physics"), rules(written), HOST)
    assert mapped.limits == Limits(frozenset({"physics"}), frozenset({"GPU_big", "long"}))


def test_operators_of_two_clusters_share_no_connections() -> None:
    """They have one name in both, and one of them must not be able to take all that the other needs."""
    names = []
    for cluster in ("prod", "test"):
        rule = {
            "cluster": cluster,
            "namespaces": ["redbox-system"],
            "service_accounts": ["redbox-operator"],
            "roles": ["operator"],
        }
        operator = pod_of("redbox-system", "redbox-operator", cluster)
        names.append(map_caller_to_user(operator, rules(rule), HOST).name)
    assert names[0] != names[1]
    assert names[1] == "system:serviceaccount:redbox-system:redbox-operator of cluster test"


def test_operators_and_readers_have_no_user() -> None:
    written = {
        "cluster": "prod",
        "namespaces": ["redbox-system"],
        "service_accounts": ["redbox-operator"],
        "roles": ["operator", "reader"],
    }
    mapped = map_caller_to_user(pod_of("redbox-system", "redbox-operator"), rules(written), HOST)
    assert mapped.user is None
    assert mapped.may(Role.OPERATOR)
    assert not mapped.may(Role.SUBMIT)


def test_a_rule_may_let_root_look_without_running_jobs() -> None:
    written = {"unix_users": ["root"], "roles": ["reader"]}
    mapped = map_caller_to_user(Peer(0, 0, 1), rules(written), HOST)
    assert mapped.user is None
    assert mapped.roles == {Role.READER}


def test_a_token_of_a_system_account_is_refused_until_a_rule_lets_it_read() -> None:
    scraper = TokenHolder("abc", "daemon")
    with pytest.raises(NotMapped):
        map_caller_to_user(scraper, rules(), HOST)
    mapped = map_caller_to_user(scraper, rules({"tokens": ["abc"], "roles": ["reader"]}), HOST)
    assert mapped.user is None
    assert mapped.roles == {Role.READER}


def test_rules_may_limit_a_token_or_everybody_on_the_socket() -> None:
    decided_by = rules(
        {"tokens": ["abc"], "partitions": ["debug"]}, {"unix_users": ["*"], "roles": ["reader"]}
    )
    by_token = map_caller_to_user(TokenHolder("abc", "alice"), decided_by, HOST)
    by_socket = map_caller_to_user(Peer(2001, 1, 1), decided_by, HOST)
    assert by_token.limits == Limits(partitions=frozenset({"debug"}))
    assert by_socket.roles == {Role.READER}


NAMESPACES = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?\Z")
UIDS = st.integers(min_value=0, max_value=3000)


@given(
    namespace=NAMESPACES | st.sampled_from(["root", "0", "00", "1000", "daemon"]),
    uid=UIDS,
    member=st.booleans(),
    staff=st.booleans(),
    listed=st.booleans(),
)
def test_a_template_never_makes_more_than_the_rule_allows(
    *, namespace: str, uid: int, member: bool, staff: bool, listed: bool
) -> None:
    groups = frozenset({MEMBERS} if member else ()) | frozenset({STAFF} if staff else ())
    written = {**TEMPLATED, "allowed_users": ["somebody"]}
    if listed and not namespace.isdigit() and namespace != "root":
        written["allowed_users"] = [namespace]
    host = accounts(UnixAccount(namespace, uid, groups))
    is_allowed = staff or namespace in written["allowed_users"]
    if uid >= 1000 and member and is_allowed and not namespace.isdigit():
        mapped = map_caller_to_user(pod_of(namespace), rules(written), host)
        assert mapped.user == UnixUser(namespace, uid)
    else:
        with pytest.raises(NotMapped):
            map_caller_to_user(pod_of(namespace), rules(written), host)
