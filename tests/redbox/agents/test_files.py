"""Files are what the kernel says they are, to their user."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE

import pytest

from redbox.agents.agent import AgentClient
from redbox.agents.errors import RequestFailed, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import OmittedFile, ReadPrecondition
from redbox.core.domain import UnixUser
from tests.redbox.agents.harness import LaunchedTransport, until

STRANGE = "str\u00e4nge \udcff\n'name"


async def tar_of(agent: AgentClient, folder: Path, *paths: str) -> tuple[tarfile.TarFile, list[OmittedFile]]:
    data, left_out = bytearray(), []
    async with aclosing(agent.tar(str(folder), paths)) as parts:
        async for part in parts:
            if isinstance(part, OmittedFile):
                left_out.append(part)
            else:
                data += part
    return tarfile.open(fileobj=io.BytesIO(bytes(data)), encoding="utf-8", errors="surrogateescape"), left_out


async def test_a_read_tells_bytes_and_facts_in_one_answer(agent: AgentClient, folder: Path) -> None:
    path = folder / "log"
    path.write_bytes(b"0123456789")
    piece = await agent.read(str(path), offset=3, limit=4, tail=True)
    status = path.stat()
    assert (piece.data, piece.offset, piece.same) == (b"3456", 3, True)
    assert (piece.facts.size, piece.facts.inode, piece.facts.device) == (10, status.st_ino, status.st_dev)
    assert piece.facts.modified_ns == status.st_mtime_ns
    assert piece.tail == sha256(b"0123456").hexdigest()


async def test_the_tail_is_of_the_last_4_kib(agent: AgentClient, folder: Path) -> None:
    data = os.urandom(10_000)
    (folder / "log").write_bytes(data)
    piece = await agent.read(str(folder / "log"), offset=100, limit=8_900, tail=True)
    assert piece.tail == sha256(data[9_000 - 4096 : 9_000]).hexdigest()


async def test_a_read_goes_on_in_the_file_that_is_expected_only(agent: AgentClient, folder: Path) -> None:
    path = folder / "log"
    path.write_bytes(b"first run\n")
    before = await agent.read(str(path), tail=True)
    expected = ReadPrecondition(before.facts.device, before.facts.inode, before.tail)
    with path.open("ab") as file:
        file.write(b"more\n")
    more = await agent.read(str(path), offset=len(before.data), expect=expected)
    assert (more.data, more.same) == (b"more\n", True)
    path.write_bytes(b"other run, longer\n")  # same inode
    assert not (await agent.read(str(path), offset=len(before.data), expect=expected)).same
    path.write_bytes(b"short")
    assert not (await agent.read(str(path), offset=len(before.data), expect=expected)).same
    path.unlink()
    (folder / "holds-the-inode").touch()
    path.write_bytes(b"first run\nmore\n")
    replaced = await agent.read(str(path), offset=len(before.data), expect=expected)
    assert (replaced.data, replaced.same) == (b"", False)


async def test_a_negative_offset_counts_from_the_end(agent: AgentClient, folder: Path) -> None:
    (folder / "log").write_bytes(b"0123456789")
    assert (await agent.read(str(folder / "log"), offset=-3)).data == b"789"
    assert (await agent.read(str(folder / "log"), offset=-30)).data == b"0123456789"


async def test_a_file_that_is_kept_open_is_opened_again_when_it_is_old_enough(
    agent: AgentClient, folder: Path
) -> None:
    path = folder / "log"
    path.write_bytes(b"old")
    await agent.read(str(path), reuse_s=60)
    path.rename(folder / "moved")
    path.write_bytes(b"new")
    assert (await agent.read(str(path), reuse_s=60)).data == b"old"
    assert (await agent.read(str(path), reuse_s=0)).data == b"new"


async def test_dev_null_is_an_empty_file_and_nothing_else_is_one(agent: AgentClient, folder: Path) -> None:
    piece = await agent.read("/dev/null")
    assert (piece.data, piece.facts.kind, piece.facts.size) == (b"", "null", 0)
    os.mkfifo(folder / "fifo", 0o666)
    for path in (str(folder / "fifo"), "/dev/zero", "/dev/tty", str(folder)):
        with pytest.raises(SystemCallFailed):
            await agent.read(path, deadline=60)


async def test_what_the_user_may_not_read_is_the_users_own_permission_error(
    agent: AgentClient, folder: Path
) -> None:
    with pytest.raises(SystemCallFailed) as denied:
        await agent.read("/etc/shadow")
    assert denied.value.is_denied
    assert denied.value.path == "/etc/shadow"
    (folder / "link").symlink_to("/etc/shadow")
    with pytest.raises(SystemCallFailed) as linked:
        await agent.read(f"{folder}/../{folder.name}/link")
    assert linked.value.is_denied


async def test_relative_and_broken_paths_are_refused(agent: AgentClient) -> None:
    for path in ("etc/passwd", "", "/etc/\0passwd", "/\ud800"):
        with pytest.raises(RequestFailed):
            await agent.stat(path)
    with pytest.raises(SystemCallFailed) as missing:
        await agent.stat("/etc/passwd/x")
    assert missing.value.is_missing


async def test_stat_follows_links(agent: AgentClient, folder: Path) -> None:
    (folder / "file").write_bytes(b"123")
    (folder / "link").symlink_to("file")
    assert (await agent.stat(str(folder / "link"))).kind == "file"
    assert (await agent.stat(str(folder / "file"))).file_system == "tmpfs"


async def test_a_download_is_the_file_byte_for_byte(agent: AgentClient, folder: Path) -> None:
    data = os.urandom(7_654_321)
    (folder / "big").write_bytes(data)
    got = b"".join([part async for part in agent.download(str(folder / "big"), offset=21)])
    assert got == data[21:]
    assert (
        b"".join([part async for part in agent.download(str(folder / "big"), limit=2_000_000)])
        == data[:2_000_000]
    )


async def test_a_slow_reader_holds_up_nobody_and_is_given_no_more_than_its_window(
    agent: AgentClient, folder: Path
) -> None:
    path = folder / "big"
    path.write_bytes(bytes(20_000_000))
    async with aclosing(agent.download(str(path))) as slow:
        first = await anext(slow)
        assert (await agent.run(["/bin/echo", "quick"], deadline=60)).stdout == b"quick\n"
        assert len((await agent.read(str(path), limit=4_000_000)).data) == 4_000_000
        rest = [len(part) async for part in slow]
    assert len(first) + sum(rest) == 20_000_000


async def test_a_reader_that_leaves_early_leaves_the_agent_in_order(agent: AgentClient, folder: Path) -> None:
    (folder / "big").write_bytes(bytes(20_000_000))
    for _ in range(80):  # more than there may be requests at once
        async with aclosing(agent.download(str(folder / "big"))) as parts:
            await anext(parts)
    assert (await agent.stat("/")).kind == "directory"


async def test_a_glob_finds_names_of_all_kinds_within_its_limit(agent: AgentClient, folder: Path) -> None:
    (folder / "a/b").mkdir(parents=True)
    for name in ("x.out", "a/y.out", "a/b/z.out", STRANGE):
        (folder / name).write_bytes(b"1")
    (folder / "dangling.out").symlink_to("/nowhere")
    found = await agent.glob(str(folder), ["**/*.out", "x.*", "str*"])
    assert {match.path for match in found.found} == {"x.out", "a/y.out", "a/b/z.out", "dangling.out", STRANGE}
    assert len(found.found) == 5
    assert not found.truncated
    few = await agent.glob(str(folder), ["**/*.out"], limit=2)
    assert (len(few.found), few.truncated) == (2, True)
    with pytest.raises(SystemCallFailed):
        await agent.glob(str(folder / "missing"), ["*"])


async def test_a_glob_of_many_names_finds_hidden_ones_only_by_a_dot(agent: AgentClient, folder: Path) -> None:
    for name in ("x1.out", "x2.out", "x.txt", ".x1.out", "é1.out"):
        (folder / name).touch()
    found = await agent.glob(str(folder), ["x[1].out", "*2.out", "é[0-9].out", "x*.out"])
    assert sorted(match.path for match in found.found) == ["x1.out", "x2.out", "é1.out"]
    hidden = await agent.glob(str(folder), [".x*", "y*"])
    assert [match.path for match in hidden.found] == [".x1.out"]


async def test_a_directory_that_cannot_be_listed_is_an_error_of_a_glob(
    agent: AgentClient, folder: Path
) -> None:
    """It may be searched: each name in it can be looked up."""
    (folder / "closed").mkdir(mode=0o300)
    (folder / "closed").chmod(0o300)
    with pytest.raises(SystemCallFailed):
        await agent.glob(str(folder / "closed"), ["x[1].out"])


async def test_the_status_of_a_link_names_what_it_leads_to(agent: AgentClient, folder: Path) -> None:
    (folder / "there").mkdir()
    (folder / "link").symlink_to("there")
    assert (await agent.stat(str(folder / "link"))).real_path == str((folder / "there").resolve())


async def test_a_pattern_in_the_directorys_own_name_means_itself(agent: AgentClient, folder: Path) -> None:
    for name in ("[ab]", "a"):
        (folder / name).mkdir()
        (folder / name / f"in {name}").touch()
    found = await agent.glob(str(folder / "[ab]"), ["*"])
    assert [match.path for match in found.found] == ["in [ab]"]


async def test_a_written_file_is_whole_or_not_there(agent: AgentClient, folder: Path, user: UnixUser) -> None:
    path = folder / "file"
    facts = await agent.write(str(path), b"x" * 3_000_000, mode=0o640)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"x" * 3_000_000, 0o640)
    assert (facts.size, facts.uid) == (3_000_000, user.uid)

    async def breaks_off() -> AsyncIterator[bytes]:
        yield b"y" * 2_000_000
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await agent.write(str(path), breaks_off())
    await agent.stat("/")
    assert path.read_bytes() == b"x" * 3_000_000


async def test_a_write_replaces_a_link_and_not_what_it_points_to(agent: AgentClient, folder: Path) -> None:
    (folder / "victim").write_bytes(b"keep")
    (folder / "link").symlink_to("victim")
    await agent.write(str(folder / "link"), b"new")
    assert (folder / "victim").read_bytes() == b"keep"
    assert (folder / "link").read_bytes() == b"new"
    with pytest.raises(SystemCallFailed):
        await agent.write("/etc/redbox-was-here", b"")


async def test_a_directory_is_removed_however_deep_it_is(agent: AgentClient, folder: Path) -> None:
    """Also with one in it that its owner may not write to."""
    top = await agent.make_own_directory(str(folder / "top"), mode=0o700)
    deep = "import os\nfor _ in range(1200):\n    os.mkdir('d')\n    os.chdir('d')\nos.chmod('.', 0o500)"
    made = await agent.run(["/usr/bin/python3", "-c", deep], cwd=str(folder / "top"), deadline=60)
    assert made.code == 0, made.stderr
    await agent.remove_own_directory(str(folder / "top"), inode=top.inode, deadline=60)
    assert not (folder / "top").exists()


async def test_directories_are_made_and_removed(agent: AgentClient, folder: Path) -> None:
    path = folder / "a/b/c"
    for _ in range(2):
        await agent.make_directory(str(path), mode=0o700)
        assert S_IMODE(path.stat().st_mode) == 0o700
    (path / "file").touch()
    with pytest.raises(SystemCallFailed, match="not empty"):
        await agent.remove(str(path))
    await agent.remove(str(path / "file"))
    await agent.remove(str(folder / "a"), recursive=True)
    assert not (folder / "a").exists()
    (folder / "file").touch()
    with pytest.raises(SystemCallFailed, match=r"[Nn]ot a directory"):
        await agent.make_directory(str(folder / "file"))


async def test_a_tar_has_names_modes_links_and_says_what_it_lacks(agent: AgentClient, folder: Path) -> None:
    (folder / "dir/sub").mkdir(parents=True)
    (folder / "dir/run.sh").write_bytes(b"#!/bin/sh\n")
    (folder / "dir/run.sh").chmod(0o755)
    (folder / "dir/sub" / STRANGE).write_bytes(os.urandom(2_000_000))
    (folder / "dir/link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "dir/fifo")
    archive, left_out = await tar_of(agent, folder, "dir", "missing")
    members = {member.name: member for member in archive.getmembers()}
    assert set(members) == {"dir", "dir/run.sh", "dir/sub", f"dir/sub/{STRANGE}", "dir/link", "."}
    assert members["dir/run.sh"].mode == 0o755
    assert members["dir/link"].linkname == "/etc/passwd"
    extracted = archive.extractfile(f"dir/sub/{STRANGE}")
    assert extracted
    assert extracted.read() == (folder / "dir/sub" / STRANGE).read_bytes()
    assert {part.path for part in left_out} == {"dir/fifo", "missing"}
    reported = {member.pax_headers.get("REDBOX.incomplete"): member for member in archive.getmembers()}
    assert (reported["dir/fifo"].name, reported["missing"].name) == ("dir", ".")
    assert reported["missing"].pax_headers["REDBOX.why"] == "it cannot be read: No such file or directory"


async def test_a_file_that_shrinks_under_a_tar_does_not_spoil_the_rest(
    agent: AgentClient, folder: Path
) -> None:
    (folder / "shrinks").write_bytes(b"x" * 8_000_000)
    (folder / "stays").write_bytes(b"whole")
    data, left_out = bytearray(), []
    async with aclosing(agent.tar(str(folder), ["shrinks", "stays"])) as parts:
        async for part in parts:
            os.truncate(folder / "shrinks", 0)
            if isinstance(part, OmittedFile):
                left_out.append(part.path)
            else:
                data += part
    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as archive:
        stays = archive.extractfile("stays")
        assert stays
        assert stays.read() == b"whole"
    assert left_out == ["shrinks"]


async def test_a_write_under_way_leaves_nothing_when_the_server_stops(
    transport: LaunchedTransport, folder: Path, user: UnixUser
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.Event().wait()

    async with AgentPool(transport) as pool:
        agent = await pool.agent(user, "files")
        writing = [
            asyncio.create_task(agent.write(str(folder / f"file{number}"), endless())) for number in range(20)
        ]
        await until(lambda: len(list(folder.iterdir())) == len(writing))
    await asyncio.gather(*writing, return_exceptions=True)
    await transport.started[0].wait()
    assert list(folder.iterdir()) == []


def packed(*files: tuple[str, bytes, int]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content, mode in files:
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


async def test_a_tar_is_unpacked_where_only_the_user_enters(
    agent: AgentClient, folder: Path, user: UnixUser
) -> None:
    private, there = folder / "new" / ".private", folder / "there"
    large = os.urandom(3_000_000)
    archive = packed(("files/a/\u00e4", b"one", 0o640), ("files/large", large, 0o400), ("last", b"", 0o600))
    assert not await agent.unpack(str(private), archive, wanted=str(there))
    there.touch(mode=0o666)
    os.chown(there, user.uid, -1)
    there.chmod(0o666)
    assert not await agent.unpack(str(private), archive, wanted=str(there))  # another may have written it
    there.chmod(0o644)
    assert await agent.unpack(str(private), archive, wanted=str(there))
    found = {str(path.relative_to(private)): path for path in private.rglob("*") if path.is_file()}
    assert {name: path.stat().st_mode & 0o7777 for name, path in found.items()} == {
        "files/a/\u00e4": 0o640,
        "files/large": 0o400,
        "last": 0o600,
    }
    assert found["files/large"].read_bytes() == large
    assert private.stat().st_mode & 0o7777 == 0o700


async def test_unpacking_again_replaces_files_and_leaves_others(agent: AgentClient, folder: Path) -> None:
    private = folder / "private"
    await agent.unpack(str(private), packed(("kept", b"k", 0o600), ("a", b"old", 0o400)), wanted="/")
    private.chmod(0o755)
    await agent.unpack(str(private), packed(("a", b"new", 0o400)), wanted="/")
    assert {path.name: path.read_bytes() for path in private.iterdir()} == {"kept": b"k", "a": b"new"}
    assert private.stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/out"])
async def test_no_tar_writes_outside_its_directory(agent: AgentClient, folder: Path, path: str) -> None:
    with pytest.raises(RequestFailed):
        await agent.unpack(str(folder / "private"), packed((path, b"x", 0o600)), wanted="/")
    assert [found.name for found in folder.rglob("*")] == ["private"]


async def test_bytes_that_are_no_tar_are_refused(agent: AgentClient, folder: Path) -> None:
    with pytest.raises(RequestFailed, match="not a tar"):
        await agent.unpack(str(folder / "private"), b"x" * 2048, wanted="/")


async def test_nothing_is_unpacked_through_a_link(agent: AgentClient, folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "private").symlink_to("elsewhere")
    with pytest.raises(SystemCallFailed):
        await agent.unpack(str(folder / "private"), packed(("secret", b"x", 0o600)), wanted="/")
    assert list((folder / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to own a directory as another user")
async def test_nothing_is_unpacked_into_a_strangers_directory(agent: AgentClient, folder: Path) -> None:
    (folder / "private").mkdir(mode=0o777)
    (folder / "private").chmod(0o777)
    with pytest.raises(SystemCallFailed, match="another user"):
        await agent.unpack(str(folder / "private"), packed(("secret", b"x", 0o600)), wanted="/")
    assert list((folder / "private").iterdir()) == []
