"""What a machine lacks is said in one sentence with its cure."""

import subprocess
from pathlib import Path

import pytest

from redbox_bed import preflight
from redbox_bed.core.errors import NotPossibleError
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Options, Source, make_plan
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.roots import root_path
from redbox_bed.preflight import (
    PACKAGES,
    check_disk,
    check_distribution,
    check_path,
    check_root,
    install_missing,
    needed_space,
)

GB = 10**9


def test_another_user_than_root_is_told_to_use_sudo() -> None:
    check_root(0)
    with pytest.raises(NotPossibleError, match="sudo"):
        check_root(1000)


@pytest.mark.parametrize(
    "text", ["ID=debian\n", "ID=ubuntu\nID_LIKE=debian\n", 'ID=linuxmint\nID_LIKE="ubuntu debian"\n']
)
def test_debian_and_what_descends_from_it_will_do(text: str) -> None:
    check_distribution(text)


@pytest.mark.parametrize("text", ['ID=fedora\nPRETTY_NAME="Fedora Linux 43"\n', "", "ID=debianish\n"])
def test_another_distribution_is_named_and_refused(text: str) -> None:
    with pytest.raises(NotPossibleError, match=r"Fedora Linux 43|unknown"):
        check_distribution(text)


def test_a_full_disk_is_said_with_what_is_needed_and_where() -> None:
    check_disk(Path("/cache"), 4 * GB, 5 * GB)
    with pytest.raises(NotPossibleError, match=r"4 GB in /cache and 1\.5 GB are free.*REDBOX_CACHE"):
        check_disk(Path("/cache"), 4 * GB, 3 * GB // 2)


@pytest.mark.parametrize("path", ["/a,b/.bed", "/a:b/.bed", "/my checkout/.bed"])
def test_a_path_that_mount_cannot_take_is_refused(path: str) -> None:
    check_path(Path("/plain/.bed"))
    with pytest.raises(NotPossibleError, match="nothing can be mounted"):
        check_path(Path(path))


def test_space_is_asked_for_only_what_is_yet_to_be_built(tmp_path: Path) -> None:
    places = Places(state=tmp_path / "state", cache=tmp_path / "cache")
    plan = make_plan(Options(kube=Source.NONE))
    everything = needed_space(places, plan)
    root_path(places, "node").mkdir(parents=True)
    assert 0 < needed_space(places, plan) < everything


def test_nothing_is_installed_on_a_machine_that_has_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_more: pytest.fail("something was run"))
    install_missing(Progress.silent(), exists=lambda _file: True)


def test_what_is_missing_is_installed_by_its_packages_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str], **_more: object) -> subprocess.CompletedProcess[str]:
        ran.append(argv)
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    install_missing(Progress.silent(), exists=lambda _file: False)
    assert ran[0][-1] == "update"
    assert [word for word in ran[1] if word in PACKAGES.values()] == sorted(set(PACKAGES.values()))


def test_packages_that_cannot_be_installed_are_named_with_apts_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = subprocess.CompletedProcess(["apt-get"], 100, "", "E: Unable to locate package mmdebstrap\n")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_more: failed)
    with pytest.raises(NotPossibleError, match=r"mmdebstrap could not be installed.*Unable to locate"):
        install_missing(Progress.silent(), exists=lambda file: not file.endswith("mmdebstrap"))


def test_an_existing_slurm_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotPossibleError, match="no sbatch in PATH"):
        preflight.check_existing_slurm()


def test_a_kernel_that_refuses_is_said_with_its_words() -> None:
    with pytest.raises(NotPossibleError, match="this machine cannot do it: no namespaces today"):
        preflight._try(["sh", "-c", "echo no namespaces today >&2; exit 1"], "cannot do it")
