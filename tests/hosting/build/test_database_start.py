"""The start of MariaDB, by a shell with the programs of MariaDB replaced."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from redbox_hosting.build.pods.accounting import START_DATABASE

INSTALL = """#!/bin/sh
for each; do case $each in --datadir=*) data=${each#--datadir=} ;; esac; done
[ -z "$(ls -A "$data")" ] || exit 3
touch "$data/half"
[ -z "$FAILS" ] || kill -9 $PPID
touch "$data/whole"
"""
SERVER = """#!/bin/sh
printf '%s\\n' "$@"
"""
PASSWORD = "0123456789abcdef"


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    for name in ("bin", "lib", "run"):
        (tmp_path / name).mkdir()
    for name, text in (("mariadb-install-db", INSTALL), ("mariadbd", SERVER)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def start(pod: Path, *, fails: bool = False) -> subprocess.CompletedProcess[str]:
    script = START_DATABASE.replace("/var/lib/mysql", f"{pod}/lib").replace("/run/mysqld", f"{pod}/run")
    path = f"{pod}/bin:{os.environ['PATH']}"
    environment = {"PATH": path, "PASSWORD": PASSWORD, "FAILS": "1" if fails else ""}
    return subprocess.run(
        ["/bin/sh", "-ec", script], env=environment, capture_output=True, text=True, check=False
    )


def test_a_database_is_installed_once(pod: Path) -> None:
    for _ in range(2):
        assert start(pod).stdout.splitlines() == [
            f"--datadir={pod}/lib/data",
            f"--init-file={pod}/run/init.sql",
            "--bind-address=*",
            "--skip-networking=OFF",
            "--innodb-lock-wait-timeout=900",
            "--loose-innodb-snapshot-isolation=OFF",
        ]
    assert (pod / "lib/data/whole").exists()


def test_an_installation_that_ended_half_way_is_begun_again(pod: Path) -> None:
    (pod / "lib/lost+found").mkdir()
    assert start(pod, fails=True).returncode != 0
    assert not (pod / "lib/data").exists()
    assert start(pod).returncode == 0
    assert (pod / "lib/data/whole").exists()


def test_the_password_is_set_at_each_start_and_is_no_argument(pod: Path) -> None:
    done = start(pod)
    assert PASSWORD not in done.stdout + done.stderr
    file = pod / "run/init.sql"
    assert file.stat().st_mode & 0o077 == 0
    lines = file.read_text().splitlines()
    assert f"ALTER USER slurm@'%' IDENTIFIED BY '{PASSWORD}';" in lines
    assert lines[0] == "CREATE DATABASE IF NOT EXISTS slurm_acct_db;"
