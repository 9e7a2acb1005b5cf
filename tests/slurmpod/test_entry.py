"""What each role prepares, and the commands of its daemon."""

import sys
from pathlib import Path

from redbox_slurmpod import entry
from redbox_slurmpod.pod import ThisPod
from redbox_slurmpod.supervision.processes import has_steps
from tests.slurmpod.kubelet import project


def test_a_job_can_answer_no_look_up_of_users_and_replace_no_file_of_others(tmp_path: Path) -> None:
    run, shared = tmp_path / "run", tmp_path / "tmp"
    (run / "nscd").mkdir(parents=True)
    (run / "nscd/socket").touch()
    shared.mkdir()
    for folder in (run, shared):
        folder.chmod(0o777)
    entry.slurmd(ThisPod("w-0"), [], started=0, run=run, shared=[shared])
    assert not (run / "nscd").exists()
    assert (run.stat().st_mode & 0o7777, shared.stat().st_mode & 0o7777) == (0o755, 0o1777)


def test_sshd_gets_its_host_key_and_users_cannot_replace_the_socket_that_signs_for_them(
    tmp_path: Path,
) -> None:
    run, shared = tmp_path / "run", tmp_path / "tmp"
    for folder in (run, run / "slurm", shared):
        folder.mkdir()
        folder.chmod(0o777)
    project(tmp_path / "host-key", {"ssh_host_ed25519_key": b"k", "ssh_host_ed25519_key.pub": b"p"})
    command = entry.login(
        run=run, host_key=tmp_path / "host-key", configuration=tmp_path / "ssh", shared=[shared]
    )
    assert command == ("/usr/sbin/sshd", "-D", "-e", "-f", str(tmp_path / "ssh/sshd_config"))
    assert (run / "redbox/ssh/ssh_host_ed25519_key").stat().st_mode & 0o777 == 0o600
    modes = [folder.stat().st_mode & 0o7777 for folder in (run, run / "slurm", shared)]
    assert modes == [0o755, 0o775, 0o1777]


def test_slurmctld_ends_its_container_when_it_ends(tmp_path: Path) -> None:
    (tmp_path / "clustername").touch()
    daemon = entry.slurmctld(["-v"], run=tmp_path, state=tmp_path)
    assert daemon.command == ("/usr/sbin/slurmctld", "--systemd", "-v")
    assert not daemon.restarts
    assert daemon.keys == Path("/etc/slurm")
    assert (tmp_path / "slurmctld").stat().st_mode & 0o777 == 0o755


def test_a_slurmctld_that_has_not_saved_all_once_starts_without_what_is_missing(tmp_path: Path) -> None:
    """26.05 with accounting, killed in its first minutes, never started again."""

    def ignores() -> bool:
        return "-i" in entry.slurmctld([], run=tmp_path / "run", state=tmp_path).command

    assert ignores()
    (tmp_path / "clustername").touch()
    assert ignores()
    (tmp_path / "fed_mgr_state").touch()
    assert not ignores()
    (tmp_path / "fed_mgr_state").unlink()
    assert not ignores()  # it is not the beginning any more: something is wrong


def test_every_slurmd_of_a_container_reports_the_containers_start_as_its_boot(tmp_path: Path) -> None:
    pod = ThisPod("w-0", "uid-1", "10.0.0.1")
    daemon = entry.slurmd(
        pod, ["--conf-server", "ctl:6817"], started=1_700_000_000.9, run=tmp_path, shared=[]
    )
    assert daemon.command == (
        *("/usr/sbin/slurmd", "--systemd", "-Z", "-b", "--instance-id=uid-1"),
        *("--conf-server", "ctl:6817"),
    )
    assert daemon.environment == {"SLURMD_BOOT_TIME": "1700000000"}
    assert daemon.restarts
    assert daemon.holds is has_steps
    assert daemon.keys == Path("/etc/slurm")
    assert daemon.when_ready == (sys.executable, "-I", "-m", "redbox_slurmpod", "instance-id")


def test_a_pod_that_does_not_know_its_uid_sets_none(tmp_path: Path) -> None:
    daemon = entry.slurmd(ThisPod("w-0"), [], started=0, run=tmp_path, shared=[])
    assert daemon.command == ("/usr/sbin/slurmd", "--systemd", "-Z", "-b")
    assert daemon.when_ready == ()


def test_the_socket_of_the_container_before_makes_no_slurmd_ready(tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "sack.socket").touch()
    (tmp_path / "slurm" / "conf").symlink_to("/var/spool/slurmd/conf-cache")
    entry.slurmd(ThisPod("w-0"), [], started=0, run=tmp_path, shared=[])
    assert list((tmp_path / "slurm").iterdir()) == []


def test_munged_has_a_copy_of_the_key_that_is_its_own(tmp_path: Path) -> None:
    project(tmp_path / "key", {"munge.key": b"k" * 32})
    command = entry.munged(Path("/run/m.socket"), key=tmp_path / "key", run=tmp_path)
    assert command[:4] == ("/usr/sbin/munged", "--foreground", "--force", "--socket=/run/m.socket")
    key = tmp_path / "munge" / "munge.key"
    assert f"--key-file={key}" in command
    assert (key.read_bytes(), key.stat().st_mode & 0o777) == (b"k" * 32, 0o600)


def test_sackd_is_started_again_and_reads_keys_that_have_changed() -> None:
    daemon = entry.sackd(["-f", "/etc/slurm/slurm.conf"])
    assert daemon.command == ("/usr/sbin/sackd", "--systemd", "-f", "/etc/slurm/slurm.conf")
    assert (daemon.restarts, daemon.keys) == (True, Path("/etc/slurm"))


def test_slurmdbd_reads_copies_that_are_its_own(tmp_path: Path) -> None:
    project(tmp_path / "etc", {"slurmdbd.conf": b"StoragePass=x", "slurm.key": b"k"})
    command, environment = entry.slurmdbd(["-v"], configuration=tmp_path / "etc", run=tmp_path / "run")
    assert command == ("/usr/sbin/slurmdbd", "-D", "-v")
    own = Path(environment["SLURM_CONF"]).parent
    assert {path.name: path.stat().st_mode & 0o777 for path in own.iterdir()} == {
        "slurmdbd.conf": 0o600,
        "slurm.key": 0o600,
    }
