"""What of a pod may change while its job exists, and the versions by which a change is found."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_resourced.translation.files.live_sources import (
    ABSENT,
    IMMUTABLE,
    LONGEST_VOLUMES,
    Inputs,
    live_parts,
    live_sources,
    object_word,
    read_inputs,
)
from tests.resourced.translation.factories import TOKEN_VOLUME, pod

LABELS = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
NAME = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
ALL = {
    "name": "all",
    "projected": {
        "defaultMode": 0o400,
        "sources": [
            {"downwardAPI": {"items": [NAME]}},
            {"secret": {"name": "s", "optional": True}},
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 600}},
            {"configMap": {"name": "kube-root-ca.crt"}},
            {"downwardAPI": {"items": [NAME, LABELS]}},
        ],
    },
}


def found(*volumes: dict[str, Any], has_tokens: bool = True) -> list[tuple[str, int, str, str, int]]:
    sources = live_sources(live_parts(pod(volumes=list(volumes))), has_tokens=has_tokens)
    return [(each.volume, each.number, each.kind, each.name, each.mode) for each in sources]


def test_sources_keep_their_numbers_and_what_cannot_change_is_left_out() -> None:
    secret = {"name": "two", "secret": {"secretName": "s2"}}
    assert found({"name": "e", "emptyDir": {}}, ALL, secret) == [
        ("all", 1, "secret", "s", 0o400),
        ("all", 2, "serviceAccountToken", "", 0o400),
        ("all", 4, "downwardAPI", "", 0o400),
        ("two", 0, "secret", "s2", 0o644),
    ]


def test_a_token_is_renewed_only_where_the_pod_has_one() -> None:
    token = ("kube-api-access-x7k2p", 0, "serviceAccountToken", "", 0o644)
    assert found(TOKEN_VOLUME) == [token]
    assert found(TOKEN_VOLUME, has_tokens=False) == []
    assert [each[2] for each in found(ALL, has_tokens=False)] == ["secret", "downwardAPI"]


def test_pods_of_one_template_share_what_is_kept_of_their_volumes() -> None:
    names = ("kube-api-access-a", "kube-api-access-b")
    one, other = (live_parts(pod(volumes=[ALL, {**TOKEN_VOLUME, "name": name}])) for name in names)
    assert one.volumes is other.volumes


def test_of_very_long_volumes_nothing_is_kept() -> None:
    items = [{"key": f"k{number}", "path": "p" * 100} for number in range(LONGEST_VOLUMES // 100)]
    assert found({"name": "long", "configMap": {"name": "c", "items": items}}) == []


def test_labels_count_only_where_files_show_them() -> None:
    def fields(labels: dict[str, str], item: dict[str, Any]) -> str:
        volumes = [{"name": "v", "downwardAPI": {"items": [item]}}]
        return live_parts(pod(metadata={"labels": labels}, volumes=volumes)).fields

    one = {"path": "one", "fieldRef": {"fieldPath": "metadata.labels['a']"}}
    assert fields({"a": "1"}, LABELS) != fields({"a": "1", "b": "2"}, LABELS)
    assert fields({"a": "1"}, one) == fields({"a": "1", "b": "2"}, one)
    assert fields({"a": "1"}, one) != fields({"a": "2"}, one)
    assert fields({"a": "1"}, NAME) == ""


@pytest.mark.parametrize("inputs", [Inputs([], None), Inputs(["a.b", "-", "!", "@17", ""], 600)])
def test_inputs_are_written_and_read(inputs: Inputs) -> None:
    words, deadline_s = read_inputs(str(inputs)) or Inputs([], None)
    assert (list(words), deadline_s) == (list(inputs.sources), inputs.deadline_s)


@pytest.mark.parametrize(
    "text", ["", "x", "d1 x", f"@{'9' * 11} d", "@x d", "@ d", f"{'x' * 18} d", f"d{'9' * 11}"]
)
def test_inputs_of_no_such_form_are_none(text: str) -> None:
    assert read_inputs(text) is None


def test_the_word_of_an_object_has_its_version_and_its_content() -> None:
    def word(version: str, **fields: Any) -> str:
        return object_word({"metadata": {"uid": "u", "resourceVersion": version}, **fields})

    first, same, other = word("1", data={"a": "x"}), word("2", data={"a": "x"}), word("2", data={"a": "y"})
    assert (first == same, first.partition(".")[2] == same.partition(".")[2]) == (False, True)
    assert same.partition(".")[0] == other.partition(".")[0]
    assert same != other
    assert word("1", data={"a": "x"}, immutable=True) == IMMUTABLE
    assert object_word(None) == ABSENT
