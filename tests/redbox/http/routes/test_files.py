"""Files of a job's working directory over HTTP, with its user's rights and no others."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from redbox.agents.agent import AgentClient
from redbox.agents.errors import SystemCallFailed
from redbox.agents.protocol.answers import GlobMatch, GlobResult
from tests.redbox.http.harness import ALICE_UID, BODY_LIMIT, Stand, eventually, problem

FILES = "/v1/jobs/k1/files"


@pytest.fixture
async def home(stand: Stand) -> Path:
    """Where job k1 works, with some files."""
    await stand.submitted("k1")
    (stand.home / "results/deep").mkdir(parents=True)
    for name, content in {
        "a.dat": b"0123456789",
        "results/b c.dat": b"b",
        "results/deep/ä.dat": b"c",
    }.items():
        (stand.home / name).write_bytes(content)
    (stand.home / "a.dat").chmod(0o640)
    (stand.home / "link").symlink_to("a.dat")
    for path in [*stand.home.rglob("*")]:
        os.chown(path, ALICE_UID, -1, follow_symlinks=False)
    return stand.home


async def test_globs_find_files_with_their_sizes_and_modes(home: Path, alice: httpx.AsyncClient) -> None:
    found = (await alice.get(FILES, params={"glob": ["*.dat", "results/**/*.dat"]})).json()["items"]
    assert [(entry["path"], entry["size"]) for entry in found] == [
        ("a.dat", 10),
        ("results/b c.dat", 1),
        ("results/deep/ä.dat", 1),
    ]
    assert found[0]["mode"] & 0o777 == 0o640
    assert home.exists()


@pytest.mark.usefixtures("home")
async def test_a_file_that_cannot_be_looked_up_yet_is_asked_for_again(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system lists it, and has cached that it is missing."""

    numbers = dict.fromkeys(("size", "device", "inode", "modified_ns", "mode", "uid"), 0)
    match = GlobMatch(kind="listed", path="a.dat", **numbers)

    async def glob(*_: object, **__: object) -> GlobResult:
        return GlobResult((match,), truncated=False)

    monkeypatch.setattr(AgentClient, "glob", glob)
    answer = await alice.get(FILES, params={"glob": "*.dat"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3"), answer.text


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
@pytest.mark.usefixtures("home")
async def test_a_file_server_that_is_away_is_asked_again(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def glob(*_: object, **__: object) -> GlobResult:
        raise SystemCallFailed(number, os.strerror(number), "/home/alice")

    monkeypatch.setattr(AgentClient, "glob", glob)
    answer = await alice.get("/v1/jobs/k1/archive", params={"glob": "*.dat"})
    assert (answer.status_code, problem(answer)["retry"]) == (503, True), answer.text


@pytest.mark.parametrize("glob", ["/etc/*", "../*", "a/../../*"])
@pytest.mark.usefixtures("home")
async def test_a_glob_stays_in_the_working_directory(alice: httpx.AsyncClient, glob: str) -> None:
    assert (await alice.get(FILES, params={"glob": glob})).status_code == 422


@pytest.mark.usefixtures("home")
async def test_a_list_needs_a_glob(alice: httpx.AsyncClient) -> None:
    answer = await alice.get(FILES)
    assert answer.status_code == 422
    assert "glob is missing" in problem(answer)["detail"]


@pytest.mark.parametrize(
    ("range_", "expected", "content_range"),
    [
        ("bytes=0-", b"0123456789", "bytes 0-9/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=2-5", b"2345", "bytes 2-5/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
    ],
)
@pytest.mark.usefixtures("home")
async def test_a_download_goes_on_where_it_broke_off(
    alice: httpx.AsyncClient, range_: str, expected: bytes, content_range: str
) -> None:
    answer = await alice.get(f"{FILES}/a.dat", headers={"range": range_})
    assert (answer.status_code, answer.content) == (206, expected)
    assert answer.headers["content-range"] == content_range


async def test_a_download_of_a_file_that_changed_begins_anew(home: Path, alice: httpx.AsyncClient) -> None:
    part = {"range": "bytes=4-"}
    tag = (await alice.get(f"{FILES}/a.dat")).headers["etag"]
    same = await alice.get(f"{FILES}/a.dat", headers=part | {"if-range": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (206, b"456789", tag)
    (home / "a.dat").write_bytes(b"9876543210")
    other = await alice.get(f"{FILES}/a.dat", headers=part | {"if-range": tag})
    assert (other.status_code, other.content) == (200, b"9876543210")
    assert "content-range" not in other.headers


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("path", [f"{FILES}/a%00b", f"{FILES}?glob=a%00b", "/v1/jobs/k1/archive?glob=%00"])
async def test_a_path_with_a_nul_is_refused(alice: httpx.AsyncClient, path: str) -> None:
    answer = await alice.get(path)
    assert answer.status_code == 422
    assert "NUL" in problem(answer)["detail"]


@pytest.mark.usefixtures("home")
async def test_a_range_behind_the_end_is_refused_with_the_size(alice: httpx.AsyncClient) -> None:
    answer = await alice.get(f"{FILES}/a.dat", headers={"range": "bytes=10-"})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == "bytes */10"
    problem(answer)


@pytest.mark.parametrize("range_", ["bytes=-5", "bytes=1-2,4-5", "lines=1-2", "bytes=5-2"])
@pytest.mark.usefixtures("home")
async def test_a_range_that_is_not_served_is_refused_in_words(alice: httpx.AsyncClient, range_: str) -> None:
    answer = await alice.get(f"{FILES}/a.dat", headers={"range": range_})
    assert answer.status_code == 422
    assert range_ in problem(answer)["detail"]


async def test_a_whole_file(home: Path, alice: httpx.AsyncClient) -> None:
    content = os.urandom(3_000_000)
    (home / "large").write_bytes(content)
    answer = await alice.get(f"{FILES}/large")
    assert answer.content == content
    assert answer.headers["content-length"] == str(len(content))


@pytest.mark.usefixtures("home")
async def test_an_archive_keeps_names_modes_and_links(alice: httpx.AsyncClient) -> None:
    answer = await alice.get("/v1/jobs/k1/archive", params={"glob": ["a.dat", "link", "results"]})
    assert answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        members = {member.name: member for member in tar}
    assert {"a.dat", "link", "results/b c.dat", "results/deep/ä.dat"} <= set(members)
    assert members["a.dat"].mode & 0o777 == 0o640
    assert members["link"].linkname == "a.dat"


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("results", {"results", "results/b c.dat", "results/deep", "results/deep/ä.dat"}),
        ("results/", {"results", "results/b c.dat", "results/deep", "results/deep/ä.dat"}),
        ("results/deep/ä.dat", {"ä.dat"}),
        ("results/**/*.dat", {"b c.dat", "deep/ä.dat"}),
        ("res*/b*", {"results/b c.dat"}),
    ],
)
async def test_an_absolute_glob_is_archived_under_the_names_behind_its_folder(
    home: Path, alice: httpx.AsyncClient, glob: str, names: set[str]
) -> None:
    answer = await alice.get("/v1/jobs/k1/archive", params={"glob": f"{home}/{glob}"})
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        assert set(tar.getnames()) == names


@pytest.mark.parametrize(
    ("globs", "status"),
    [(["/"], 422), (["/etc/*/../x"], 422), (["/etc/hosts", "a.dat"], 422), (["/no/such/folder/x"], 404)],
)
@pytest.mark.usefixtures("home")
async def test_an_absolute_glob_that_says_too_little_or_too_much_is_refused(
    alice: httpx.AsyncClient, globs: list[str], status: int
) -> None:
    assert (await alice.get("/v1/jobs/k1/archive", params={"glob": globs})).status_code == status


@pytest.mark.usefixtures("home")
async def test_an_archive_of_nothing_is_not_found(alice: httpx.AsyncClient) -> None:
    assert (await alice.get("/v1/jobs/k1/archive?glob=nothing*")).status_code == 404


async def test_a_file_is_staged_in_whole_however_large(home: Path, alice: httpx.AsyncClient) -> None:
    content = os.urandom(3 * BODY_LIMIT)
    answer = await alice.put(f"{FILES}/in/put.dat?mode=600", content=content)
    assert (answer.status_code, answer.json()) == (201, {"size": len(content)})
    written = home / "in/put.dat"
    assert written.read_bytes() == content
    assert (written.stat().st_mode & 0o777, written.stat().st_uid) == (0o600, ALICE_UID)


async def test_an_upload_that_breaks_off_leaves_what_was_there(
    stand: Stand, home: Path, alice: httpx.AsyncClient
) -> None:
    begun = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        begun.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(alice.put(f"{FILES}/a.dat", content=pieces()))
    await begun.wait()
    upload.cancel()
    async with stand.at_socket() as other:
        assert (await other.get(f"{FILES}/a.dat")).content == b"0123456789"
    await eventually(lambda: {path.name for path in home.iterdir()} == {"a.dat", "link", "results"})


async def test_a_link_leads_no_further_than_the_users_own_rights(
    home: Path, alice: httpx.AsyncClient
) -> None:
    secret = home / "secret"
    secret.write_text("root's")
    secret.chmod(0)
    (home / "to-secret").symlink_to(secret)
    for path in ("to-secret", "..%2Fnothing", "results/..%2Fsecret"):
        answer = await alice.get(f"{FILES}/{path}")
        assert answer.status_code in {403, 404}, path
        problem(answer)


@pytest.mark.parametrize(("path", "status"), [("missing", 404), ("results", 422), ("a%00b", 422)])
@pytest.mark.usefixtures("home")
async def test_what_is_no_file_is_not_downloaded(alice: httpx.AsyncClient, path: str, status: int) -> None:
    answer = await alice.get(f"{FILES}/{path}")
    assert answer.status_code == status
    problem(answer)


@pytest.mark.parametrize("mode", ["4755", "888", "rw"])
@pytest.mark.usefixtures("home")
async def test_a_mode_is_three_octal_digits(alice: httpx.AsyncClient, mode: str) -> None:
    assert (await alice.put(f"{FILES}/x?mode={mode}", content=b"")).status_code == 422


NO_UTF8 = b"caf\xe9.txt"


async def test_a_name_that_is_no_utf8_is_listed_with_a_mark(home: Path, alice: httpx.AsyncClient) -> None:
    (home / os.fsdecode(NO_UTF8)).touch()
    answer = await alice.get("/v1/jobs/k1/files", params={"glob": "caf*"})
    assert [item["path"] for item in answer.json()["items"]] == ["caf\ufffd.txt"]


async def test_what_is_left_out_of_an_archive_is_one_line_in_the_log(
    home: Path, alice: httpx.AsyncClient
) -> None:
    for number in range(20):
        os.mkfifo(home / f"fifo{number:02}")
    with capture_logs() as lines:
        answer = await alice.get("/v1/jobs/k1/archive", params={"glob": "fifo*"})
    assert answer.status_code == 200
    skipped = [line for line in lines if "left out" in line["event"]]
    assert [(line["count"], line["path"][:4]) for line in skipped] == [(20, "fifo")]
