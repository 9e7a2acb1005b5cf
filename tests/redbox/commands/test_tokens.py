"""Making, listing and revoking opaque tokens, and what the server then says to them."""

from __future__ import annotations

import json

import pytest

from tests.redbox.commands.conftest import Run
from tests.redbox.http.harness import Stand


async def made(redbox: Run, **options: str) -> str:
    given = {"user": "nobody", "expires": "30d", **options}
    ended = await redbox("token", "create", *(f"--{name}={value}" for name, value in given.items()))
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout.strip()


async def test_only_the_token_is_on_stdout(redbox: Run) -> None:
    token = await made(redbox)
    assert token.startswith("rbt_")
    assert len(token.split()) == 1


async def test_a_token_is_listed_without_its_secret(stand: Stand, redbox: Run) -> None:
    token = await made(redbox, note="for the CI")
    listed = json.loads((await redbox("token", "list", "-o", "json")).stdout)
    mine = next(row for row in listed if row["note"] == "for the CI")
    assert (mine["user"], mine["state"]) == ("nobody", "good")
    assert set(mine) == {"id", "user", "state", "created", "expires", "note"}
    kept = (stand.directory / "tokens.json").read_text()
    _, _, secret = token.split("_", 2)  # which may have a "_" itself
    assert secret not in kept
    assert (stand.directory / "tokens.json").stat().st_mode & 0o777 == 0o600


async def test_a_revoked_token_is_worthless_at_once(stand: Stand, redbox: Run) -> None:
    secret = stand.tokens["bob"]
    identifier = secret.split("_")[1]
    async with stand.by_token(secret) as bob:
        assert (await bob.get("/v1/whoami")).status_code == 200
        assert (await redbox("token", "revoke", identifier)).exit_code == 0
        answer = await bob.get("/v1/whoami")
    assert answer.status_code == 401
    assert "revoked" in answer.json()["detail"]
    listed = json.loads((await redbox("token", "list", "-o", "json")).stdout)
    assert next(row for row in listed if row["id"] == identifier)["state"] == "revoked"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("create", "--user", "no-such-user", "--expires", "1d"),
            "there is no user 'no-such-user' on this host",
        ),
        (("create", "--user", "nobody", "--expires", "soon"), "is not a duration"),
        (("create", "--user", "nobody", "--expires", "0s"), "longer than 0 seconds"),
        (("revoke", "nonesuch"), "there is no token 'nonesuch'"),
        (("list", "--config", "/nonexistent.yaml"), "/nonexistent.yaml line 1: cannot be read"),
    ],
)
async def test_what_cannot_be_is_one_sentence(redbox: Run, arguments: tuple[str, ...], words: str) -> None:
    ended = await redbox("token", *arguments)
    assert ended.exit_code == 1
    assert words in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
