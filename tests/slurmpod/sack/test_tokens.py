"""Tokens of auth/slurm, read by another implementation of JWT, and keys as Slurm takes and refuses them."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from redbox_slurmpod.sack.tokens import KeysUnusable, SackKeys, claims_of, read_keys
from tests.slurmpod.sack.factories import ANY_UID, OTHER, SECRET, entry


def jwks(folder: Path, *entries: dict[str, Any]) -> SackKeys:
    (folder / "slurm.jwks").write_text(json.dumps({"keys": entries}))
    return read_keys(folder)


def claims(**changes: object) -> dict[str, Any]:
    made = claims_of(
        cluster="lab",
        version=10752,
        uid=2001,
        gid=2001,
        receiver=ANY_UID,
        payload=b"\0\1",
        host="login-0",
        identity={"name": "alice"},
    )
    return {**made, **changes}


def test_a_token_of_slurm_key_has_no_kid_and_the_claims_that_slurm_reads(tmp_path: Path) -> None:
    (tmp_path / "slurm.key").write_bytes(SECRET)
    token = read_keys(tmp_path).sign(claims())
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    read = jwt.decode(token, SECRET, algorithms=["HS256"])
    assert read["exp"] - read["iat"] == 60
    assert {name: read[name] for name in ("context", "cluster", "uid", "gid", "ruid", "host", "ver")} == {
        "context": "sack",
        "cluster": "lab",
        "uid": 2001,
        "gid": 2001,
        "ruid": ANY_UID,
        "host": "login-0",
        "ver": 10752,
    }
    assert read["id"] == {"name": "alice"}
    assert base64.b64decode(read["payload"]) == b"\0\1"


def test_the_default_key_signs_with_its_kid(tmp_path: Path) -> None:
    keys = jwks(tmp_path, entry("k1"), entry("k2", OTHER, use="default"))
    token = keys.sign(claims())
    assert jwt.get_unverified_header(token)["kid"] == "k2"
    assert jwt.decode(token, OTHER, algorithms=["HS256"])["uid"] == 2001


def test_without_a_default_the_first_key_signs(tmp_path: Path) -> None:
    keys = jwks(tmp_path, entry("k1"), entry("k2", OTHER))
    assert jwt.get_unverified_header(keys.sign(claims()))["kid"] == "k1"


def test_slurm_jwks_goes_before_slurm_key(tmp_path: Path) -> None:
    (tmp_path / "slurm.key").write_bytes(SECRET)
    assert jwt.get_unverified_header(jwks(tmp_path, entry("k1", OTHER)).sign(claims()))["kid"] == "k1"


def test_every_key_verifies_and_a_token_without_kid_is_of_the_default_key(tmp_path: Path) -> None:
    keys = jwks(tmp_path, entry("k1"), entry("k2", OTHER, use="default"))
    for secret, header, good in (
        (SECRET, {"kid": "k1"}, True),
        (OTHER, {"kid": "k2"}, True),
        (OTHER, {}, True),
        (SECRET, {}, False),
        (SECRET, {"kid": "k2"}, False),
        (SECRET, {"kid": "k3"}, False),
    ):
        token = jwt.encode(claims(), secret, algorithm="HS256", headers=header)
        assert keys.verify(token, 2002) is good, header


def test_an_expired_key_verifies_nothing(tmp_path: Path) -> None:
    token = jwt.encode(claims(), SECRET, algorithm="HS256", headers={"kid": "k1"})
    assert jwks(tmp_path, entry("k2", OTHER), entry("k1", exp=time.time() + 600)).verify(token, 0)
    assert not jwks(tmp_path, entry("k2", OTHER), entry("k1", exp=time.time() - 1)).verify(token, 0)


def test_a_token_for_one_reader_is_no_good_to_another(tmp_path: Path) -> None:
    keys = jwks(tmp_path, entry("k1"))
    token = keys.sign(claims(ruid=2002))
    assert keys.verify(token, 2002)
    assert not keys.verify(token, 2001)
    assert keys.verify(keys.sign(claims(ruid=-1)), 2001)


@pytest.mark.parametrize(
    "changes",
    [{"exp": 1}, {"context": "cred"}, {"ruid": "2001"}, {"exp": None}],
    ids=str,
)
def test_tokens_that_are_signed_but_not_valid_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    keys = jwks(tmp_path, entry("k1"))
    assert not keys.verify(keys.sign(claims(**changes)), 2001)


def test_a_token_without_a_signature_is_refused(tmp_path: Path) -> None:
    keys = jwks(tmp_path, entry("k1"))
    for token in (
        jwt.encode(claims(), "", algorithm="none", headers={"kid": "k1"}),
        jwt.encode(claims(), SECRET, algorithm="HS384", headers={"kid": "k1"}),
        keys.sign(claims())[:-4],
        "a.b.c",
        "a.b",
        "",
        "\N{SNOWMAN}.e30.e30",
        "W10.W10.W10",
    ):
        assert not keys.verify(token, 2001)


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        "[]",
        '{"keys": []}',
        '{"keys": [17]}',
        json.dumps({"keys": [entry("k1"), entry("k1", OTHER)]}),
        json.dumps({"keys": [entry("k1", use="default"), entry("k2", OTHER, use="default")]}),
        json.dumps({"keys": [entry("k1", b"short")]}),
        json.dumps({"keys": [entry("k1", alg="RS256")]}),
        json.dumps({"keys": [{"kid": "k1"}]}),
    ],
)
def test_keys_that_slurm_would_refuse_are_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "slurm.jwks").write_text(content)
    with pytest.raises(KeysUnusable, match=r"slurm\.jwks"):
        read_keys(tmp_path)


def test_a_folder_without_keys_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeysUnusable, match=str(tmp_path)):
        read_keys(tmp_path)
    with pytest.raises(KeysUnusable, match="absent"):
        read_keys(tmp_path / "absent")
