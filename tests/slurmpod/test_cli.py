"""The program as pods start it."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.slurmpod.certificates import SERVER, Authority
from tests.slurmpod.harness import wait_for

PROGRAM = (sys.executable, "-m", "redbox_slurmpod")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_a_sack_without_keys_ends_with_a_sentence(tmp_path: Path) -> None:
    ended = run("sack", "--cluster", "lab", "--keys", str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        f"redbox-slurmpod: sack: {tmp_path} has neither slurm.jwks nor a slurm.key"
    )
    assert len(ended.stderr.splitlines()) == 1


def test_a_front_without_a_certificate_ends_with_a_sentence(tmp_path: Path) -> None:
    ended = run("front", "--port", "0", "--target", "/absent", "--tls", str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"redbox-slurmpod: the certificate in {tmp_path} cannot be used")
    assert len(ended.stderr.splitlines()) == 1


def test_a_poke_succeeds_even_where_nothing_listens() -> None:
    assert run("poke").returncode == 0


def test_sigterm_ends_a_front_and_a_sack_well(tmp_path: Path) -> None:
    (tmp_path / "slurm.key").write_bytes(b"k" * 32)
    Authority.make("cluster").issue(tmp_path, "localhost", SERVER)
    socket = tmp_path / "run" / "sack.socket"
    sack = ["sack", "--cluster", "lab", "--keys", str(tmp_path), "--socket", str(socket)]
    front = ["front", "--address", "127.0.0.1", "--port", "0", "--target", "/absent", "--tls", str(tmp_path)]
    for arguments in (sack, front):
        with subprocess.Popen([*PROGRAM, *arguments], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert wait_for(process.stderr.readline).startswith("redbox-slurmpod: listening")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0


def test_a_role_that_does_not_exist_is_refused_with_those_that_do() -> None:
    ended = run("slurmweb")
    assert ended.returncode == 2
    assert "slurmctld" in ended.stderr
