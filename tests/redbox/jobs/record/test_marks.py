from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.core.domain import JobKey, Owner
from redbox.jobs.record.marks import Marks, SecretUnusable, key8, parse, read_secret
from redbox_api.job_parts import Container, RegistryCredentials
from redbox_api.models import JobRequest
from tests.redbox.jobs.harness import SECRET, request

MARKS = Marks(SECRET, "hpc1")
OWNER = Owner("kube", "physics", "default", "uid-1")
UID = "3f2b7c1e-0000-4000-8000-000000000001"
MARK = MARKS.make(JobKey(OWNER, UID, 3), "a" * 16, 2001)
KEYS = st.from_regex(r"[A-Za-z0-9-]{1,64}", fullmatch=True)


def test_a_mark_is_short_and_of_characters_that_every_field_carries() -> None:
    assert len(MARK) < 125
    assert re.fullmatch(r"[A-Za-z0-9.-]+", MARK)


@given(key=KEYS, attempt=st.integers(1, 10**6), uid=st.integers(1000, 2**32 - 2))
def test_what_was_made_verifies_for_its_user_and_for_nobody_else(key: str, attempt: int, uid: int) -> None:
    text = MARKS.make(JobKey(OWNER, key, attempt), "b" * 16, uid)
    mark = MARKS.verify(text, uid)
    assert mark is not None
    assert (mark.key, mark.attempt, mark.body_id) == (key, attempt, "b" * 16)
    assert mark.owner_id == MARKS.owner_id(OWNER)
    assert MARKS.verify(text, uid + 1) is None
    assert Marks(SECRET, "hpc2").verify(text, uid) is None
    assert Marks(b"x" * 32, "hpc1").verify(text, uid) is None


@given(place=st.integers(0, len(MARK) - 1), character=st.sampled_from("abz27.-A"))
def test_a_mark_with_any_other_character_does_not_verify(place: int, character: str) -> None:
    forged = MARK[:place] + character + MARK[place + 1 :]
    assert forged == MARK or MARKS.verify(forged, 2001) is None


@given(st.text(max_size=200))
def test_any_text_is_a_mark_or_is_not_and_never_a_fault(text: str) -> None:
    assert MARKS.verify(text, 2001) is None
    assert parse(text + "\n") is None


def test_owners_are_told_apart_by_each_of_their_parts() -> None:
    others = [
        Owner("kube2", "physics", "default", "uid-1"),
        Owner("kube", "physics2", "default", "uid-1"),
        Owner("kube", "physics", "default2", "uid-1"),
        Owner("kube", "physics", "default", "uid-2"),
        Owner("kube", "physicsd", "efault", "uid-1"),
    ]
    assert len({MARKS.owner_id(owner) for owner in [OWNER, *others]}) == 6


def test_a_mark_tells_no_names() -> None:
    assert not any(word in MARK for word in ("physics", "kube", "default", "alice", "2001"))


def with_password(password: str) -> JobRequest:
    credentials = RegistryCredentials.model_validate({"username": "u", "password": password})
    return JobRequest(container=Container(image="docker://x", registry=credentials))


def test_sameness_is_of_the_whole_body_or_of_the_callers_digest() -> None:
    assert MARKS.body_id(request()) == MARKS.body_id(request())
    assert MARKS.body_id(request()) != MARKS.body_id(request(hold=True))
    assert MARKS.body_id(with_password("a")) != MARKS.body_id(with_password("b"))
    assert MARKS.body_id(request(spec_digest="d")) == MARKS.body_id(request("other", spec_digest="d"))
    assert MARKS.body_digest(request(spec_digest="d")) != MARKS.body_digest(request("other", spec_digest="d"))


def test_a_request_keeps_the_digest_that_release_0_1_0_gave_it() -> None:
    """Else a job that was submitted before an upgrade would be another one after it."""
    plain = JobRequest(batch="#!/bin/sh\n")
    container = {"name": "c", "image": "docker://x", "env": [{"name": "A", "value": "1"}]}
    body = {"name": "p", "namespace": "n", "uid": "u", "containers": [container]}
    pod = JobRequest.model_validate({"pod": body})
    marks = Marks(b"k" * 32, "hpc")
    assert [marks.body_digest(each) for each in (plain, pod)] == ["shoyfkxqkxadqjfu", "seds3ppxs47hgpxs"]
    assert marks.body_digest(plain.model_copy(update={"arguments": ["a"]})) != "shoyfkxqkxadqjfu"


def test_two_pods_are_told_apart_by_what_is_in_their_files() -> None:
    def pod(content: str) -> JobRequest:
        files = [{"path": "f", "content": content}]
        container = {"name": "c", "image": "docker://x"}
        volumes = [{"name": "v", "files": {"files": files}}]
        body = {"name": "p", "namespace": "n", "uid": "u", "containers": [container], "volumes": volumes}
        return JobRequest.model_validate({"pod": body})

    assert MARKS.body_id(pod("YQ==")) == MARKS.body_id(pod("YQ=="))
    assert MARKS.body_id(pod("YQ==")) != MARKS.body_id(pod("Yg=="))


def test_a_directory_is_told_apart_by_eight_characters() -> None:
    assert key8(UID) == "3f2b7c1e"
    assert len(key8("nightly-2026-01-01")) == 8
    assert key8("nightly-2026-01-01") != key8("nightly-2026-01-02")


def test_the_secret_is_read_from_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "mark.secret"
    path.touch(mode=0o600)
    path.write_text("5a" * 32 + "\n")
    assert read_secret(path) == b"\x5a" * 32


def test_a_secret_that_others_could_have_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mark.secret"
    path.write_text("5a" * 32 + "\n")
    path.chmod(0o640)
    with pytest.raises(SecretUnusable, match="can be read by others"):
        read_secret(path)


@pytest.mark.parametrize("text", ["", "abc", "zz" * 32])
def test_what_is_no_secret_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mark.secret"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(SecretUnusable, match="not a secret made by red-box"):
        read_secret(path)
    with pytest.raises(SecretUnusable, match="redbox init"):
        read_secret(tmp_path / "nowhere")
