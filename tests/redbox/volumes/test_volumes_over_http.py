"""Volumes over HTTP, with a real agent: folders of the user, and who may have them deleted."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from redbox_api.errors import Conflict, NoSuchJob, NotAllowed
from redbox_api.models import VolumeRequest
from tests.redbox.http.harness import ALICE_UID, Stand, problem, standing

HANDLE = "0d9a6f0e-7f3b-4a52-9d1e-111111111111"
DATA = {"claim": "data"}


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with standing() as stand:
        yield stand


@pytest.fixture
async def alice(stand: Stand) -> AsyncIterator[httpx.AsyncClient]:
    async with stand.at_socket() as http:
        yield http


async def made(alice: httpx.AsyncClient, handle: str = HANDLE, **body: Any) -> Path:
    answer = await alice.put(f"/v1/volumes/{handle}", json={**DATA, **body})
    assert answer.status_code == 201, answer.text
    return Path(answer.json()["path"])


async def test_the_folder_is_closed_to_others(stand: Stand, alice: httpx.AsyncClient) -> None:
    folder = await made(alice)
    status = folder.stat()
    assert (status.st_uid, status.st_mode & 0o7777) == (ALICE_UID, 0o700)
    assert folder == stand.home / "volumes" / f"users-data-{HANDLE}"


async def test_a_shared_folder_is_its_groups_whatever_the_umask(alice: httpx.AsyncClient) -> None:
    folder = await made(alice, groupShared=True)
    assert folder.stat().st_mode & 0o7777 == 0o2770


async def test_a_second_put_is_the_same_folder(alice: httpx.AsyncClient) -> None:
    folder = await made(alice)
    (folder / "kept").write_text("x")
    again = await alice.put(f"/v1/volumes/{HANDLE}", json=DATA)
    assert (again.status_code, again.json()["path"]) == (200, str(folder))
    assert (folder / "kept").read_text() == "x"
    assert (await alice.get(f"/v1/volumes/{HANDLE}")).json() == again.json()


async def test_folders_are_counted_until_they_are_deleted(alice: httpx.AsyncClient, stand: Stand) -> None:
    folder = await made(alice)
    assert stand.services.volumes.count == 1
    assert (await alice.delete(f"/v1/volumes/{HANDLE}")).status_code == 200
    assert not folder.exists()
    assert stand.services.volumes.count == 0


async def test_a_deletion_removes_all_files_also_below_folders_without_permissions(
    alice: httpx.AsyncClient,
) -> None:
    folder = await made(alice)
    locked = folder / "module" / "cache"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    for path in (locked / "file", locked, folder / "module"):
        os.chown(path, ALICE_UID, -1)
    locked.chmod(0o500)
    (folder / "module").chmod(0o500)
    deleted = await alice.delete(f"/v1/volumes/{HANDLE}")
    assert deleted.status_code == 200, deleted.text
    assert deleted.json()["deletedAt"]
    assert not folder.exists()


async def test_a_deletion_may_be_repeated_and_is_final(alice: httpx.AsyncClient) -> None:
    await made(alice)
    for _ in range(2):
        assert (await alice.delete(f"/v1/volumes/{HANDLE}")).status_code == 200
    refused = problem(await alice.put(f"/v1/volumes/{HANDLE}", json=DATA))
    assert (refused["status"], "stays deleted" in refused["detail"]) == (409, True)


async def test_a_folder_that_is_gone_is_deleted(alice: httpx.AsyncClient) -> None:
    folder = await made(alice)
    folder.rmdir()
    assert (await alice.delete(f"/v1/volumes/{HANDLE}")).status_code == 200


async def test_a_link_in_its_place_is_not_followed(alice: httpx.AsyncClient) -> None:
    folder = await made(alice)
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    os.chown(elsewhere, ALICE_UID, -1)
    (elsewhere / "precious").write_text("x")
    folder.rmdir()
    folder.symlink_to(elsewhere)
    refused = problem(await alice.delete(f"/v1/volumes/{HANDLE}"))
    assert (refused["status"], "nothing was deleted" in refused["detail"]) == (409, True)
    assert (elsewhere / "precious").exists()
    folder.unlink()
    assert (await alice.delete(f"/v1/volumes/{HANDLE}")).status_code == 200


async def test_another_folder_in_its_place_is_left_alone(alice: httpx.AsyncClient) -> None:
    folder = await made(alice)
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    os.chown(folder, ALICE_UID, -1)
    assert (await alice.delete(f"/v1/volumes/{HANDLE}")).status_code == 409
    assert folder.exists()
    assert folder.with_name("moved").exists()


async def test_a_link_is_not_taken_for_a_new_folder(stand: Stand, alice: httpx.AsyncClient) -> None:
    place = stand.home / "volumes" / f"users-data-{HANDLE}"
    place.parent.mkdir()
    place.symlink_to("/tmp")
    refused = problem(await alice.put(f"/v1/volumes/{HANDLE}", json=DATA))
    assert (refused["status"], "is not a folder" in refused["detail"]) == (409, True)


async def test_a_place_that_the_user_may_not_write_is_named_with_the_setting(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    (stand.home / "volumes").mkdir(mode=0o755)
    refused = problem(await alice.put(f"/v1/volumes/{HANDLE}", json=DATA))
    if os.geteuid() != ALICE_UID:
        assert (refused["status"], "volumes.directory" in refused["detail"]) == (403, True)


async def test_the_role_volumes_deletes_recorded_folders_and_nothing_else(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    folder = await made(alice)
    (folder / "file").write_text("x")
    async with stand.client("volumes") as caretaker:
        assert (await caretaker.get_volume(HANDLE)).path == str(folder)
        with pytest.raises(NoSuchJob):
            await caretaker.delete_volume("another")
        with pytest.raises(NotAllowed):
            await caretaker.put_volume("new", VolumeRequest(claim="data"))
        with pytest.raises(NotAllowed):
            [page async for page in caretaker.list_jobs()]
        assert (await caretaker.delete_volume(HANDLE)).deleted_at
    assert not folder.exists()


@pytest.mark.parametrize("who", ["bob", "operator", "reader"])
async def test_others_can_neither_delete_nor_take_it(
    stand: Stand, alice: httpx.AsyncClient, who: str
) -> None:
    folder = await made(alice)
    async with stand.client(who) as other:
        with pytest.raises((NoSuchJob, NotAllowed)):
            await other.delete_volume(HANDLE)
        with pytest.raises((Conflict, NotAllowed)):
            await other.put_volume(HANDLE, VolumeRequest(claim="data"))
    assert folder.exists()


async def test_others_do_not_see_it(stand: Stand, alice: httpx.AsyncClient) -> None:
    await made(alice)
    async with stand.by_token("bob") as bob:
        assert problem(await bob.get(f"/v1/volumes/{HANDLE}"))["status"] == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("a%2Fb", DATA),
        ("..", DATA),
        ("x" * 65, DATA),
        (HANDLE, {}),
        (HANDLE, {"claim": "../data"}),
        (HANDLE, {"claim": "data", "path": "/etc"}),
    ],
)
async def test_bad_input_makes_nothing(
    stand: Stand, alice: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    answer = await alice.put(f"/v1/volumes/{path}", json=body)
    assert answer.status_code in {404, 405, 422}
    assert not (stand.home / "volumes").exists()
