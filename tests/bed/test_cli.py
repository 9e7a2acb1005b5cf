"""Words on the command line become what is meant, or a sentence."""

from pathlib import Path

import pytest

from redbox_bed import cli
from redbox_bed.core.errors import BedError, NotPossibleError
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Release, Source


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["login", "hostname"], ("login", "root", ["hostname"])),
        (["login", "--user", "bob", "--", "id"], ("login", "bob", ["id"])),
        (["-u", "bob", "login", "id", "-u"], ("login", "bob", ["id", "-u"])),
        (["login", "--user=bob", "sh", "-c", "exit 7"], ("login", "bob", ["sh", "-c", "exit 7"])),
        (["login", "--", "--user"], ("login", "root", ["--user"])),
    ],
)
def test_exec_tells_the_host_the_user_and_the_command_apart(
    words: list[str], expected: tuple[str, str, list[str]]
) -> None:
    assert cli.parse_exec(words) == expected


@pytest.mark.parametrize("words", [[], ["login"], ["login", "--"], ["login", "--user", "bob"], ["--user"]])
def test_exec_without_a_command_is_told_how_it_is_used(words: list[str]) -> None:
    with pytest.raises(NotPossibleError, match="needs a host and a command"):
        cli.parse_exec(words)


def test_the_environment_chooses_what_exists_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BED_SLURM", "existing")
    monkeypatch.delenv("BED_KUBE", raising=False)
    monkeypatch.setenv("BED_PORT_OFFSET", "1000")
    monkeypatch.setenv("BED_ADDRESS", "192.0.2.7")
    monkeypatch.setenv("BED_RELEASE", "26.05")
    asked = {
        "slurm": Source.EXISTING,
        "port_offset": 1000,
        "address": "192.0.2.7",
        "release": Release.V26_05,
    }
    assert cli.asked_by_environment() == asked


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BED_SLURM", "exisitng"),
        ("BED_PORT_OFFSET", "x"),
        ("BED_PORT_OFFSET", "99999"),
        ("BED_ADDRESS", "a.host"),
    ],
)
def test_a_value_of_the_environment_that_is_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(NotPossibleError, match=f"{variable}={value}"):
        cli.asked_by_environment()


def test_a_release_of_the_environment_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BED_RELEASE", "27.05")
    with pytest.raises(NotPossibleError, match=r"no Slurm 27\.05"):
        cli.asked_by_environment()


def log_of(places: Places, host: str, daemon: str) -> Path:
    file = places.state / "hosts" / host / "own/var/log/bed" / f"{daemon}.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


def test_logs_are_found_by_daemon_or_by_host_and_daemon(tmp_path: Path) -> None:
    places = Places(state=tmp_path, cache=tmp_path / "cache")
    first, second = log_of(places, "n1", "slurmd"), log_of(places, "n2", "slurmd")
    assert cli.find_logs(places, "slurmd") == [first, second]
    assert cli.find_logs(places, "n2/slurmd") == [second]
    with pytest.raises(NotPossibleError, match="'etcd'; there are logs of: slurmd"):
        cli.find_logs(places, "etcd")


def test_a_failure_is_one_sentence_with_the_logs_path(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise BedError("slurmctld did not start", log=Path("/x/slurmctld.log"))

    with pytest.raises(SystemExit) as ended:
        cli.main(fail)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "bed: slurmctld did not start (log: /x/slurmctld.log)\n"
