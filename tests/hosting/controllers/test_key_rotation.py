"""The moves of a rotation of keys, as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from redbox_hosting.controllers.clusters.keys import FORMER_JWT, JWKS, JWT, ROTATION, new_keys
from redbox_hosting.controllers.clusters.rotation.key_readers import nodes_without
from redbox_hosting.controllers.clusters.rotation.key_rotation import (
    LONGEST_CREDENTIAL,
    Rotation,
    RotationMove,
    is_rotating,
    next_move,
)
from redbox_hosting.slurm.answers import RestNode
from redbox_kube.controller.steps import StepFailed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + LONGEST_CREDENTIAL
DONE, ADDED, SIGNS, SIGNED, REPLACED = RotationMove


def kids(files: Mapping[str, bytes]) -> list[str]:
    """The one that signs has a star."""
    keys = json.loads(files[JWKS])["keys"]
    return [key["kid"] + ("*" if key.get("use") == "default" else "") for key in keys]


def moved(files: Mapping[str, bytes], now: datetime = NOW, *, owns_jwt: bool = True) -> Mapping[str, bytes]:
    found = next_move(files, "a", [], now, owns_jwt=owns_jwt).files
    assert found is not None
    return found


def files_at(move: RotationMove) -> Mapping[str, bytes]:
    files: Mapping[str, bytes] = new_keys()
    while Rotation.read(files).move is not move:
        files = moved(files, LATER if Rotation.read(files).move is SIGNED else NOW)
    return files


def test_each_move_writes_what_all_daemons_can_verify() -> None:
    """With those that have the files of the move before."""
    files: Mapping[str, bytes] = new_keys()
    seen = []
    for _ in range(5):
        now = LATER if Rotation.read(files).move is SIGNED else NOW
        before, files = files, moved(files, now)
        seen.append((Rotation.read(files).move, kids(files)))
        signs = kids(files)[0].rstrip("*")
        assert signs in [kid.rstrip("*") for kid in kids(before)] or kids(before)[0] in kids(files)
    assert seen == [
        (ADDED, ["k1*", "k2"]),
        (SIGNS, ["k2*", "k1"]),
        (SIGNED, ["k2*", "k1"]),
        (REPLACED, ["k2*"]),
        (DONE, ["k2*"]),
    ]
    assert next_move(files, "a", [], NOW, owns_jwt=True).files is None
    assert kids(moved_again := next_move(files, "b", [], NOW, owns_jwt=True).files or {}) == ["k2*", "k3"]
    assert Rotation.read(moved_again).value == "b"


def test_the_key_of_tokens_is_replaced_with_the_last_move_and_the_former_kept_until_it_is_read() -> None:
    signed = files_at(SIGNED)
    replaced = moved(signed, LATER)
    assert replaced[FORMER_JWT] == signed[JWT] != replaced[JWT]
    done = moved(replaced)
    assert (done[JWT], done[FORMER_JWT]) == (replaced[JWT], b"")


def test_a_users_own_key_of_tokens_stays() -> None:
    signed = files_at(SIGNED)
    replaced = moved(signed, LATER, owns_jwt=False)
    assert replaced[JWT] == signed[JWT]
    assert FORMER_JWT not in replaced


@pytest.mark.parametrize(("move", "number"), [(ADDED, "1"), (SIGNS, "2"), (SIGNED, "3"), (REPLACED, "4")])
def test_no_move_while_a_daemon_is_behind_and_the_condition_names_it(move: RotationMove, number: str) -> None:
    found = next_move(files_at(move), "a", ["node w-0 has not read them yet"], LATER, owns_jwt=True)
    assert found.files is None
    assert found.waits_for.startswith(f"{number} of 4: ")
    assert found.waits_for.endswith("node w-0 has not read them yet")


def test_a_rotation_does_not_begin_while_a_daemon_does_not_report() -> None:
    with pytest.raises(StepFailed, match="the keys are not rotated: a; b; c; d; and 1 more"):
        next_move(new_keys(), "a", list("abcde"), NOW, owns_jwt=True)


def test_the_old_key_stays_as_long_as_what_it_has_signed() -> None:
    files = files_at(SIGNED)
    early = next_move(files, "a", [], LATER - timedelta(seconds=1), owns_jwt=True)
    assert (early.files, early.waits_for[:6]) == (None, "3 of 4")
    first = next_move(files, "a", [], NOW, owns_jwt=True)
    assert first.again_in_s == LONGEST_CREDENTIAL.total_seconds()


@pytest.mark.parametrize(
    ("move", "value", "asked", "rotates"),
    [
        (DONE, "", "", False),
        (DONE, "", "a", True),
        (DONE, "a", "a", False),
        (DONE, "a", "", False),
        (DONE, "a", "b", True),
        (ADDED, "a", "", True),  # what has begun is ended
        (REPLACED, "a", "b", True),
    ],
)
def test_each_new_value_rotates_once(move: RotationMove, value: str, asked: str, *, rotates: bool) -> None:
    assert is_rotating(Rotation(value, move, NOW), asked) == rotates


def test_a_value_that_comes_in_the_middle_begins_a_second_rotation_after_the_first() -> None:
    files = files_at(SIGNS)
    assert Rotation.read(next_move(files, "b", [], NOW, owns_jwt=True).files or {}).value == "a"


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"value": "a", "move": "Nonsense", "since": null}'])
def test_a_progress_that_cannot_be_read_is_one_sentence(text: bytes) -> None:
    with pytest.raises(StepFailed, match="remove it"):
        next_move({**new_keys(), ROTATION: text}, "a", [], NOW, owns_jwt=True)


@pytest.mark.parametrize("text", [b"{", b'{"keys": []}', b'{"keys": [{"k": "x"}]}', b'{"keys": [1]}'])
def test_keys_that_cannot_be_read_are_one_sentence(text: bytes) -> None:
    with pytest.raises(StepFailed, match=r"slurm.jwks in the Secret"):
        next_move({**new_keys(), JWKS: text}, "a", [], NOW, owns_jwt=True)


@pytest.mark.parametrize(
    ("state", "comment", "words"),
    [
        (["IDLE"], "redbox-keys:0123456789abcdef", ""),
        (["ALLOCATED"], "redbox-keys:fedcba9876543210", "has not read them yet"),
        (["IDLE", "NOT_RESPONDING"], "redbox-keys:fedcba9876543210", "has not read them yet"),
        (["IDLE"], "", "may know one key alone"),
        (["MIXED"], "of an administrator", "may know one key alone"),
        (["DOWN"], "", ""),
        (["IDLE", "POWERED_DOWN"], "", ""),
    ],
)
def test_a_node_reports_in_its_comment(state: list[str], comment: str, words: str) -> None:
    node = RestNode.model_validate({"name": "w-0", "state": state, "comment": comment})
    found = nodes_without("0123456789abcdef" * 4, [node])
    assert words in "".join(found)
    assert bool(found) == bool(words)
