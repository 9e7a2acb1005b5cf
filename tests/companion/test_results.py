"""What comes into a volume: files as they were, nothing outside of it, and the job's outcome untouched."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.companion.fakes import ScriptedServer
from tests.companion.harness import COMMAND, Pod

DONE = {"phase": "Succeeded", "exitCode": 0, "jobID": "7", "state": "COMPLETED"}
FAILED = DONE | {"phase": "Failed", "exitCode": 3, "state": "FAILED"}
MODIFIED_AT = 1_700_000_000


def entry(name: str, content: bytes | None = None, **made: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A file, or what `type` says."""
    member = tarfile.TarInfo(name)
    member.mode, member.mtime, member.uid, member.gid = 0o644, MODIFIED_AT, 2001, 2001
    member.size = len(content or b"")
    for attribute, value in made.items():
        setattr(member, attribute, value)
    return member, content or b""


def folder(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in entries:
            archive.addfile(member, io.BytesIO(content))
    return raw.getvalue()


@pytest.fixture
def redbox(redbox: ScriptedServer) -> ScriptedServer:
    redbox.job, redbox.piece = DONE, 5000
    return redbox


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_folders_and_links_come_as_they_were(redbox: ScriptedServer, pod: Pod) -> None:
    results = pod.want_results("out")
    redbox.tars["out"] = tar(
        folder("out", 0o750),
        entry("out/data", b"\x00\xff" * 5000, mode=0o664),
        entry("out/run.sh", b"#!/bin/sh\n", mode=0o755),
        entry("out/private", b"", mode=0o600),
        entry("out/n\u00e4me \udcff\n.txt", b"odd"),
        link("out/latest", "data"),
        link("out/up", "../out/run.sh"),
        folder("out/empty", 0o700),
    )
    assert pod.run().returncode == 0
    assert pod.termination_message["results"] == {
        "outcome": "Collected",
        "files": 6,
        "bytes": 10013,
        "message": "",
    }
    out = results / "out"
    assert (out / "data").read_bytes() == b"\x00\xff" * 5000
    assert [mode_of(out / name) for name in (".", "data", "run.sh", "private", "empty")] == [
        0o750,
        0o664,
        0o755,
        0o600,
        0o700,
    ]
    assert (out / "latest").readlink() == Path("data")
    assert (out / "up").read_bytes() == b"#!/bin/sh\n"
    assert (out / "n\u00e4me \udcff\n.txt").read_bytes() == b"odd"
    assert {(out / name).stat().st_mtime for name in (".", "data", "empty")} == {MODIFIED_AT}


@pytest.mark.parametrize(
    "outside",
    [
        entry("../outside", b"x"),
        entry("/absolute/../../outside", b"x"),
        entry("out/../../outside", b"x"),
        link("out/link", "/etc/passwd"),
        link("out/link", "../../outside"),
        entry("out/link", type=tarfile.LNKTYPE, linkname="../outside"),
        entry("out/link", type=tarfile.LNKTYPE, linkname="out/kept"),
        entry("out/pipe", type=tarfile.FIFOTYPE),
        entry("out/device", type=tarfile.BLKTYPE, devmajor=8),
    ],
)
def test_what_lies_or_leads_outside_is_left_out_and_told_and_the_rest_comes(
    redbox: ScriptedServer, pod: Pod, outside: tuple[tarfile.TarInfo, bytes]
) -> None:
    results = pod.want_results("out")
    before = sorted(pod.folder.iterdir())
    redbox.tars["out"] = tar(folder("out"), outside, entry("out/kept", b"kept"))
    assert pod.run().returncode == 0
    message = pod.termination_message["results"]
    assert (message["outcome"], message["files"]) == ("Failed", 1)
    assert message["message"].startswith("out: 1 left out: ")
    assert (results / "out/kept").read_bytes() == b"kept"
    assert [path.name for path in (results / "out").iterdir()] == ["kept"]
    assert sorted({*pod.folder.iterdir()} - {pod.folder / "termination"}) == before


def test_a_file_does_not_come_through_a_link_that_came_before_it(redbox: ScriptedServer, pod: Pod) -> None:
    results = pod.want_results("out")
    redbox.tars["out"] = tar(
        folder("out"), entry("out/kept", b"kept"), link("out/link", "kept"), entry("out/link", b"changed")
    )
    pod.run()
    assert ((results / "out/kept").read_bytes(), (results / "out/link").read_bytes()) == (b"kept", b"changed")


def test_a_link_beyond_the_longest_path_leads_nowhere(redbox: ScriptedServer, pod: Pod) -> None:
    """A path may have no more than 4096 bytes; followed through short links it may lead further."""
    pod.want_results("out")
    deep, short, members = "", "", []
    for _ in range(16):
        members += [folder(f"{deep}{'d' * 247}"), link(f"{deep}s", "d" * 247)]
        deep, short = f"{deep}{'d' * 247}/", f"{short}s/"
    beyond = f"{short}{'l' * 254}"
    members += [link(beyond, "../" * 16), link("up", f"{beyond}/.."), entry("up/outside", b"x")]
    redbox.tars["out"] = tar(*members)
    pod.run()
    assert pod.termination_message["results"]["outcome"] == "Failed"
    assert not (pod.folder / "outside").exists()


def test_what_is_there_and_cannot_be_read_fails_the_results(redbox: ScriptedServer, pod: Pod) -> None:
    pod.want_results("secret", "a")
    redbox.tars["secret"], redbox.tars["a"] = tar(), tar(entry("a", b"a"))
    assert pod.run().returncode == 0
    message = pod.termination_message["results"]
    assert (message["outcome"], message["files"]) == ("Failed", 1)
    assert message["message"] == "secret: it exists, but the job's user may not read it"


@pytest.mark.parametrize(("name", "shown"), [("n\u00e4me", "n\u00e4me"), ("n\udce4me", "n\\udce4me")])
def test_what_is_not_in_the_tar_is_named_and_the_rest_comes(
    redbox: ScriptedServer, pod: Pod, name: str, shown: str
) -> None:
    results = pod.want_results("out")
    record = {"REDBOX.incomplete": f"out/{name}", "REDBOX.why": "it cannot be read: Permission denied"}
    message = entry("out", type=tarfile.DIRTYPE, mode=0o700, pax_headers=record)
    redbox.tars["out"] = tar(folder("out", 0o750), message, entry("out/kept", b"kept"))
    assert pod.run().returncode == 0
    assert pod.termination_message["results"] == {
        "outcome": "Failed",
        "files": 1,
        "bytes": 4,
        "message": f"out: 1 left out: out/{shown}: it cannot be read: Permission denied",
    }
    assert (mode_of(results / "out"), (results / "out/kept").read_bytes()) == (0o750, b"kept")


def test_setuid_stays_behind(redbox: ScriptedServer, pod: Pod) -> None:
    results = pod.want_results("tool")
    redbox.tars["tool"] = tar(entry("tool", b"", mode=0o6755))
    pod.run()
    assert mode_of(results / "tool") == 0o755


def test_a_glob_that_finds_nothing_is_told_by_its_name_and_does_not_keep_others_away(
    redbox: ScriptedServer, pod: Pod
) -> None:
    results = pod.want_results("none/*", "*.dat")
    redbox.tars["*.dat"] = tar(entry("a.dat", b"a"))
    ended = pod.run()
    message = "none/*: There is no such thing: the globs find nothing"
    assert pod.termination_message["results"] == {
        "outcome": "Failed",
        "files": 1,
        "bytes": 1,
        "message": message,
    }
    assert ended.stderr == f"redbox: results: {message}\n".encode()
    assert (results / "a.dat").read_bytes() == b"a"


@pytest.mark.parametrize(
    ("when", "job", "outcome"),
    [
        ("Succeeded", DONE, "Collected"),
        ("Succeeded", FAILED, "Skipped"),
        ("Failed", DONE, "Skipped"),
        ("Failed", FAILED, "Collected"),
        ("Failed", FAILED | {"phase": "Cancelled"}, "Collected"),
        ("Always", FAILED, "Collected"),
    ],
)
def test_results_come_after_the_ends_that_were_asked_for(
    redbox: ScriptedServer, pod: Pod, when: str, job: dict[str, Any], outcome: str
) -> None:
    results = pod.want_results("a", when=when)
    redbox.job, redbox.tars["a"] = job, tar(entry("a", b"a"))
    pod.run()
    assert pod.termination_message["results"]["outcome"] == outcome
    assert (results / "a").exists() == (outcome == "Collected")


def test_a_tar_that_breaks_off_is_asked_for_again_and_counted_once(redbox: ScriptedServer, pod: Pod) -> None:
    results = pod.want_results("out")
    redbox.tars["out"] = tar(folder("out", 0o555), *(entry(f"out/{i}", bytes(2000)) for i in range(20)))
    redbox.break_after, redbox.breaks = 30_000, 3
    assert pod.run().returncode == 0
    assert pod.termination_message["results"] == {
        "outcome": "Collected",
        "files": 20,
        "bytes": 40_000,
        "message": "",
    }
    assert len(list((results / "out").iterdir())) == 20


@pytest.mark.parametrize("modified_at", [2.0**63, -(2.0**63), 1e300])
def test_a_time_that_no_file_has_ends_neither_companion_nor_results(
    redbox: ScriptedServer, pod: Pod, modified_at: float
) -> None:
    results = pod.want_results("out")
    redbox.tars["out"] = tar(
        entry("out", type=tarfile.DIRTYPE, mode=0o755, mtime=modified_at),
        entry("out/a", b"a", mtime=modified_at),
    )
    assert pod.run().returncode == 0
    assert pod.termination_message["results"]["outcome"] == "Collected"
    assert (results / "out/a").read_bytes() == b"a"


def test_a_header_that_cannot_be_read_fails_the_results_and_not_the_job(
    redbox: ScriptedServer, pod: Pod
) -> None:
    pod.want_results("out")
    sparse = {"GNU.sparse.map": "a,b", "GNU.sparse.size": "9"}
    redbox.tars["out"] = tar(entry("out", b"a", pax_headers=sparse))
    assert pod.run().returncode == 0
    assert "invalid literal" in pod.termination_message["results"]["message"]


def test_a_tar_that_always_breaks_off_fails_the_results_and_not_the_job(
    redbox: ScriptedServer, pod: Pod
) -> None:
    pod.want_results("out")
    redbox.tars["out"] = b"no tar at all" * 1000
    assert pod.run().returncode == 0
    assert "cut off" in pod.termination_message["results"]["message"]


def test_by_a_helper_a_job_that_has_ended_is_collected_and_nothing_relayed(
    redbox: ScriptedServer, pod: Pod
) -> None:
    results = pod.want_results("a")
    redbox.job, redbox.tars["a"], redbox.logs["stdout"] = FAILED, tar(entry("a", b"a")), b"not read here"
    pod.environ["REDBOX_MODE"] = "helper"
    ended = pod.run()
    assert (ended.returncode, ended.stdout, (results / "a").read_bytes()) == (0, b"", b"a")
    assert pod.termination_message["results"]["outcome"] == "Collected"
    redbox.tars.clear()
    assert pod.run().returncode == 74


# ---------------------------------------------------------------------------------------------- as in a pod
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="it mounts a small volume, or drops rights")


@contextmanager
def small_volume(path: Path, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


@as_root
def test_a_full_volume_fails_the_results_and_leaves_no_half_file(redbox: ScriptedServer, pod: Pod) -> None:
    results = pod.want_results("out")
    redbox.job = FAILED
    redbox.tars["out"] = tar(entry("small", b"small"), entry("large", bytes(500_000)))
    with small_volume(results, "256k"):
        assert pod.run().returncode == 3
        assert [path.name for path in results.iterdir()] == ["small"]
    message = pod.termination_message
    assert (message["exitCode"], message["results"]["outcome"]) == (3, "Failed")
    assert "No space left on device" in message["results"]["message"]


def without_rights(pod: Pod) -> subprocess.CompletedProcess[bytes]:
    """Run it as in a pod: what it has made read-only, it cannot write on."""
    drop = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
    return subprocess.run([*drop, *COMMAND], env=pod.environ, capture_output=True, timeout=60, check=False)


@as_root
def test_collecting_anew_what_is_there_already_and_read_only_is_right(
    redbox: ScriptedServer, pod: Pod
) -> None:
    results = pod.want_results("out", "out/deep/*")
    redbox.tars["out"] = tar(
        folder("out", 0o555),
        entry("out/a", b"a", mode=0o444),
        folder("out/deep", 0o500),
        entry("out/deep/b", b"b", mode=0o400),
    )
    redbox.tars["out/deep/*"] = tar(entry("out/deep/b", b"b", mode=0o400))
    for _ in range(2):
        assert without_rights(pod).stderr == b""
        assert pod.termination_message["results"]["outcome"] == "Collected"
        assert [mode_of(results / name) for name in ("out", "out/a", "out/deep", "out/deep/b")] == [
            0o555,
            0o444,
            0o500,
            0o400,
        ]


@as_root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_a_folder_of_the_companions_former_user_keeps_its_mode(redbox: ScriptedServer, pod: Pod) -> None:
    """The volume's group lets the companion write into it, but only its owner changes its mode."""
    results = pod.want_results("out")
    (results / "out").mkdir(mode=0o775)
    (results / "out").chmod(0o775)
    os.chown(results / "out", 65532, 65532)
    redbox.tars["out"] = tar(folder("out", 0o750), entry("out/data", b"new"))
    assert pod.run().returncode == 0
    assert pod.termination_message["results"]["outcome"] == "Collected"
    assert (results / "out/data").read_bytes() == b"new"
    assert mode_of(results / "out") == 0o775


def test_a_volume_that_is_not_writable_is_said_to_be(redbox: ScriptedServer, pod: Pod) -> None:
    results = pod.want_results("a")
    redbox.tars["a"] = tar(entry("a", b"a"))
    with small_volume(results, "256k"):
        results.chmod(0o755)
        subprocess.run(["mount", "-o", "remount,ro", results], check=True)
        pod.run()
    assert pod.termination_message["results"]["message"] == f"{results}/a: Read-only file system"
