from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from redbox_clusters.slurm_cluster import PodUsers
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.fields.pod_table import POD
from redbox_resourced.translation.fields.rules import FieldRule, FieldTable, Treatment, check_fields
from redbox_resourced.translation.reference_page import pods_page

SCHEDULERS_OWN = {"affinity", "schedulingGates", "tolerations", "topologySpreadConstraints"}


def model_named(written: str) -> Any:
    found = re.search(r"\bV1\w+", written)
    return getattr(client, found[0], None) if found else None


def fields_without_a_row(model: Any, table: FieldTable, parent: str) -> Iterator[str]:
    for attribute, written in model.openapi_types.items():
        name = model.attribute_map[attribute]
        path, rule = f"{parent}.{name}", table.get(name)
        nested = model_named(written)
        if rule is None:
            yield path
        elif nested is None or name in SCHEDULERS_OWN or rule.treatment is not Treatment.HONOURED:
            continue
        elif rule.fields is None:
            yield f"{path} (its own fields)"
        else:
            yield from fields_without_a_row(nested, rule.fields, path)


def rows(table: FieldTable, parent: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldRule]]:
    for name, rule in table.items():
        yield (*parent, name), rule
        yield from rows({} if rule.is_added else rule.fields or {}, (*parent, name))


REFUSED = [(path, rule) for path, rule in rows(POD) if rule.treatment is Treatment.REFUSED]


def document(path: tuple[str, ...], value: object) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("part", ["metadata", "spec"])
def test_each_field_that_kubernetes_has_has_a_row(part: str) -> None:
    model = {"metadata": client.V1ObjectMeta, "spec": client.V1PodSpec}[part]
    table = POD[part].fields
    assert table is not None
    assert list(fields_without_a_row(model, table, part)) == []


def test_a_field_without_a_row_is_found() -> None:
    container = {"name": POD["metadata"]}
    spec = {"containers": FieldRule(Treatment.HONOURED, fields=container)}
    missing = set(fields_without_a_row(client.V1PodSpec, spec, "spec"))
    assert {"spec.containers.image", "spec.volumes"} <= missing
    assert "spec.containers.name" not in missing


@pytest.mark.parametrize(("path", "rule"), REFUSED, ids=[".".join(path) for path, _ in REFUSED])
def test_a_refused_field_is_named_with_the_reason(path: tuple[str, ...], rule: FieldRule) -> None:
    with pytest.raises(Unsupported) as refusal:
        check_fields(document(path, "anything"), POD, PodUsers.REFUSE)
    assert str(refusal.value) == f"{'.'.join(path)}: {rule.note}"
    for accepted in rule.accepted:
        check_fields(document(path, accepted), POD, PodUsers.REFUSE)


def test_an_unknown_field_is_refused_before_anything_else() -> None:
    spec = {"hostPID": True, "containers": [{"name": "main", "newField": {"a": 1}}]}
    with pytest.raises(Unsupported, match=r"^spec\.containers\[main\]\.newField: this version"):
        check_fields({"spec": spec}, POD, PodUsers.REFUSE)


def test_empty_values_of_unknown_and_refused_fields_count_as_absent() -> None:
    check_fields(
        {"spec": {"newField": [], "runtimeClassName": "", "resourceClaims": None}}, POD, PodUsers.REFUSE
    )


def test_root_as_user_is_a_value_like_any_other() -> None:
    with pytest.raises(Unsupported, match=r"^spec\.securityContext\.runAsUser: "):
        check_fields({"spec": {"securityContext": {"runAsUser": 0}}}, POD, PodUsers.REFUSE)


def test_where_users_are_mapped_a_pod_may_ask_for_one_and_is_never_privileged() -> None:
    asked = {"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "seLinuxOptions": {"level": "s0"}}
    check_fields({"spec": {"securityContext": asked}}, POD, PodUsers.MAP)
    container = {"name": "main", "securityContext": {"privileged": True}}
    with pytest.raises(Unsupported, match="never privileged"):
        check_fields({"spec": {"containers": [container]}}, POD, PodUsers.MAP)


def test_the_page_has_each_field_and_its_sentence() -> None:
    page = pods_page()
    for path, rule in rows(POD):
        if "initContainers" not in path:
            assert f"{path[-1]}" in page
            assert rule.note[1:].replace("|", "\\|") in page
    assert "| `spec.hostPID` | only `false` |" in page


def test_the_page_has_equal_fields_once() -> None:
    page = pods_page()
    assert "| `spec.containers[].livenessProbe.exec.command` |" in page
    assert "Fields as in `spec.containers[].livenessProbe`. |" in page
    assert "readinessProbe.exec" not in page
