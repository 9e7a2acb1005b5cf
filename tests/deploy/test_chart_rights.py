"""The rights that the chart gives: few, and each for something that is done."""

from __future__ import annotations

import pytest

from redbox_clusters.serving_requests import SIGNER, USER
from redbox_hosting.api.crds import hosting_crds
from redbox_operator.api.crds import all_crds
from tests.deploy.chart_objects import CONTROLLERS, Render, is_hook, of_kind, rules_of

pytestmark = pytest.mark.timeout(1800)  # Helm is built first, once

USER_ROLES = {"redbox-editor", "redbox-viewer", "redbox-cluster-viewer"}


def test_the_hook_may_change_every_kind_of_ours_and_no_other(rendered: Render) -> None:
    (changed,) = [rule for rule in rules_of(rendered(), "redbox-crds") if "patch" in rule["verbs"]]
    assert sorted(changed["resourceNames"]) == sorted(crd["metadata"]["name"] for crd in all_crds())


@pytest.mark.parametrize("account", [*CONTROLLERS, "redbox-crds", "redbox-uninstall"])
def test_no_account_reads_secrets_runs_commands_or_raises_itself(rendered: Render, account: str) -> None:
    rules = list(rules_of(rendered(resourced={"enabled": True}), account))
    assert rules
    for rule in rules:
        assert not {"secrets", "pods/exec", "roles", "clusterroles", "*"} & {*rule["resources"]}
        assert not {"escalate", "bind", "*"} & {*rule["verbs"]}
        if "approve" in rule["verbs"]:
            assert (account, rule["resourceNames"]) == ("redbox-operator", [SIGNER])
        if "impersonate" in rule["verbs"]:
            assert rule["resourceNames"] in ([USER], ["system:nodes"])


def test_the_operator_may_do_only_what_it_does(rendered: Render) -> None:
    allowed: dict[str, set[str]] = {}
    for rule in rules_of(rendered(), "redbox-operator"):
        for resource in rule["resources"]:
            allowed.setdefault(resource, set()).update(rule["verbs"])
    jobs = {"get", "list", "watch", "patch", "delete"}
    assert allowed == {
        "slurmjobs": jobs,
        "wlmjobs": jobs,
        "slurmjobs/status": {"patch"},
        "wlmjobs/status": {"patch"},
        "slurmjobs/finalizers": {"update"},
        "wlmjobs/finalizers": {"update"},
        "slurmclusters": {"get", "list", "watch", "patch"},
        "slurmclusters/status": {"patch"},
        "slurmendpoints": {"get", "list", "watch"},
        "slurmendpoints/status": {"patch"},
        "pods": {"get", "list", "watch", "create", "delete"},
        "configmaps": {"get", "create", "delete"},
        "events": {"create"},
        "nodes": {"list"},
        "customresourcedefinitions": {"list", "watch"},
        "leases": {"create", "get", "update"},
        "serviceaccounts/token": {"create"},
    }


@pytest.mark.parametrize(
    "resourced", [{}, {"enabled": True, "approveServing": False}, {"enabled": True, "servingSecret": "own"}]
)
def test_the_operator_approves_certificates_only_where_resourced_requests_them(
    rendered: Render, resourced: dict[str, object]
) -> None:
    def approves(**values: object) -> bool:
        return any("approve" in rule["verbs"] for rule in rules_of(rendered(**values), "redbox-operator"))

    assert approves(resourced={"enabled": True})
    assert not approves(resourced=resourced)


def test_hosting_has_rights_in_its_namespaces_alone(rendered: Render) -> None:
    hosting = {"enabled": True, "namespaces": ["hpc", "hpc2"]}
    objects = rendered(hosting=hosting)
    bindings = [
        (one["kind"], one["metadata"].get("namespace"))
        for one in of_kind(objects, "ClusterRoleBinding", "RoleBinding")
        if one["subjects"][0]["name"] == "redbox-hosting"
    ]
    assert bindings == [("RoleBinding", "hpc"), ("RoleBinding", "hpc2")]
    rules = list(rules_of(objects, "redbox-hosting"))
    assert {verb for rule in rules if "secrets" in rule["resources"] for verb in rule["verbs"]} == {
        "get",
        "create",
        "patch",
    }
    for rule in rules:
        assert not {"pods/exec", "roles", "rolebindings", "serviceaccounts/token", "*"} & {*rule["resources"]}
        assert not {"escalate", "bind", "impersonate", "*"} & {*rule["verbs"]}
    (nodes,) = [
        rule
        for rule in rules_of(rendered(hosting={**hosting, "nodes": "read"}), "redbox-hosting")
        if "nodes" in rule["resources"]
    ]
    assert nodes["verbs"] == ["get", "list", "watch"]


def test_the_hook_of_hosting_may_change_its_kinds_and_no_other(rendered: Render) -> None:
    objects = rendered(hosting={"enabled": True, "namespaces": ["hpc"]})
    (changed,) = [rule for rule in rules_of(objects, "redbox-hosting-crds") if "patch" in rule["verbs"]]
    assert sorted(changed["resourceNames"]) == sorted(crd["metadata"]["name"] for crd in hosting_crds())


def test_resourced_writes_only_what_it_serves(rendered: Render) -> None:
    written: dict[str, set[str]] = {}
    for rule in rules_of(rendered(resourced={"enabled": True}), "redbox-resourced"):
        for resource in rule["resources"]:
            written.setdefault(resource, set()).update({*rule["verbs"]} - {"get", "list", "watch"})
    assert {resource: verbs for resource, verbs in written.items() if verbs} == {
        "nodes": {"create", "patch", "delete"},
        "nodes/status": {"patch"},
        "pods": {"delete"},
        "pods/status": {"patch"},
        "leases": {"create", "update", "patch", "delete"},
        "events": {"create"},
        "serviceaccounts/token": {"create"},
        "subjectaccessreviews": {"create"},
        "users": {"impersonate"},
        "groups": {"impersonate"},
    }


def test_pods_add_these_rights_and_without_them_there_are_none(rendered: Render) -> None:
    off, on = (
        rendered(resourced={"enabled": True, "pods": {"enabled": enabled, "namespaces": ["alice", "bob"]}})
        for enabled in (False, True)
    )
    assert off == rendered(resourced={"enabled": True})
    before, after = (list(rules_of(objects, "redbox-resourced")) for objects in (off, on))
    assert all(rule in after for rule in before)
    added: dict[str, set[str]] = {}
    for rule in after:
        if rule not in before:
            for resource in rule["resources"]:
                added.setdefault(resource, set()).update(rule["verbs"])
    assert added == {
        "pods": {"get", "patch"},
        "persistentvolumeclaims": {"get", "list", "watch"},
        "persistentvolumes": {"get", "list", "watch", "create", "patch", "delete"},
        "storageclasses": {"list", "watch"},
        "slurmclusters/status": {"patch"},
        "secrets": {"get", "list", "watch"},
        "configmaps": {"get", "list", "watch"},
        "services": {"list", "watch"},
        "endpointslices": {"list", "watch", "create", "patch", "delete"},  # by redbox-slices its own only
    }
    for account in ("redbox-operator", "redbox-crds", "redbox-uninstall"):
        assert list(rules_of(on, account)) == list(rules_of(off, account))


def test_an_uninstall_lifts_finalizers_of_volumes_also_where_pods_are_off_by_now(rendered: Render) -> None:
    for values in ({}, {"resourced": {"enabled": True}}):
        rules = rules_of(rendered(**values), "redbox-uninstall")
        (lifting,) = [rule for rule in rules if rule["resources"] == ["persistentvolumes"]]
        assert lifting["verbs"] == ["get", "list", "patch"]
    limited = rules_of(rendered(watchNamespaces=["alice"]), "redbox-uninstall")
    assert not [rule for rule in limited if "persistentvolumes" in rule["resources"]]


def test_secrets_are_read_in_the_listed_namespaces_only(rendered: Render) -> None:
    pods_of = {"enabled": True, "namespaces": ["alice", "bob"]}
    objects = rendered(resourced={"enabled": True, "pods": pods_of})
    reading = [
        (role["kind"], role["metadata"].get("namespace"), tuple(rule["verbs"]))
        for role in of_kind(objects, "ClusterRole", "Role")
        for rule in role["rules"]
        if "secrets" in rule["resources"]
    ]
    verbs = ("get", "list", "watch")
    assert reading == [("Role", "alice", verbs), ("Role", "bob", verbs)]
    without = rendered(resourced={"enabled": True, "pods": {"enabled": True}})
    assert not any("secrets" in rule["resources"] for rule in rules_of(without, "redbox-resourced"))


def test_the_operator_asks_for_tokens_of_its_own_account_only(rendered: Render) -> None:
    rules = rules_of(rendered(), "redbox-operator")
    named = [rule.get("resourceNames") for rule in rules if "serviceaccounts/token" in rule["resources"]]
    assert named == [["redbox-operator"]]


def test_without_the_policy_resourced_asks_for_tokens_of_its_own_account_only(rendered: Render) -> None:
    objects = rendered(resourced={"enabled": True}, admission={"tokens": False})
    rules = rules_of(objects, "redbox-resourced")
    named = [rule.get("resourceNames") for rule in rules if "serviceaccounts/token" in rule["resources"]]
    assert named == [["redbox-resourced"]]


def test_limited_to_namespaces_nothing_of_others_can_be_read_or_written(rendered: Render) -> None:
    objects = rendered(watchNamespaces=["alice", "bob"])
    everywhere = {
        resource
        for role in of_kind(objects, "ClusterRole")
        if not is_hook(role) and role["metadata"]["name"] not in USER_ROLES
        for rule in role["rules"]
        for resource in rule["resources"]
    }
    assert everywhere == {"slurmclusters", "slurmclusters/status"}
    roles = [one for one in of_kind(objects, "Role") if one["metadata"]["namespace"] in {"alice", "bob"}]
    assert {role["metadata"]["namespace"] for role in roles} == {"alice", "bob"}


def test_limited_to_namespaces_an_uninstall_touches_no_node(rendered: Render) -> None:
    rules = rules_of(rendered(watchNamespaces=["alice"]), "redbox-uninstall")
    assert not {"nodes", "nodes/status"} & {one for rule in rules for one in rule["resources"]}
    assert "kube-node-lease" not in {
        one["metadata"].get("namespace") for one in of_kind(rendered(watchNamespaces=["alice"]), "Role")
    }
    assert "nodes" in {one for rule in rules_of(rendered(), "redbox-uninstall") for one in rule["resources"]}


def test_users_roles_never_hold_status_or_finalizers_and_view_gets_nothing(rendered: Render) -> None:
    users = [one for one in of_kind(rendered(), "ClusterRole") if one["metadata"]["name"] in USER_ROLES]
    assert len(users) == len(USER_ROLES)
    for role in users:
        assert not any("/" in resource for rule in role["rules"] for resource in rule["resources"])
        labels = role["metadata"]["labels"]
        assert "rbac.authorization.k8s.io/aggregate-to-view" not in labels
    editor = next(one for one in users if one["metadata"]["name"] == "redbox-editor")
    assert editor["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
