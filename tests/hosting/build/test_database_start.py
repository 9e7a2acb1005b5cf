"""The start of MariaDB, by a shell with the programs of MariaDB replaced."""

from __future__ import annotations

import hashlib
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redbox_hosting.build.pods.accounting import START_DATABASE
from redbox_slurmpod.backup.copies import DATABASE, MANIFEST, BackupManifest

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
CLIENT = """#!/bin/sh
case "$*" in *--execute*) ;; *) cat >"${0%/bin/*}/imported" ;; esac
"""
ADMIN = "#!/bin/sh\n"
PROGRAMS = {"mariadb-install-db": INSTALL, "mariadbd": SERVER, "mariadb": CLIENT, "mariadb-admin": ADMIN}
PASSWORD = "0123456789abcdef"


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    for name in ("bin", "lib", "run"):
        (tmp_path / name).mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def start(pod: Path, *, fails: bool = False, backup: Path | None = None) -> subprocess.CompletedProcess[str]:
    script = START_DATABASE.replace("/var/lib/mysql", f"{pod}/lib").replace("/run/mysqld", f"{pod}/run")
    path = f"{pod}/bin:{os.environ['PATH']}"
    environment = {"PATH": path, "PASSWORD": PASSWORD, "FAILS": "1" if fails else ""}
    environment |= {"BACKUP": str(backup)} if backup else {}
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


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """As `redbox-slurmpod backup` leaves it."""
    made, dump = tmp_path / "backup", b"CREATE TABLE a (b int);\n"
    made.mkdir()
    (made / DATABASE).write_bytes(dump)
    digests = {DATABASE: hashlib.sha256(dump).hexdigest(), "state/job_state": "0" * 64}
    (made / MANIFEST).write_text(BackupManifest(datetime.now(UTC).isoformat(), 7, digests).text)
    return made


def test_a_dump_is_imported_as_the_backup_has_written_it(pod: Path, backup: Path) -> None:
    done = start(pod, backup=backup)
    assert done.returncode == 0, done.stderr
    assert (pod / "imported").read_bytes() == (backup / DATABASE).read_bytes()


@pytest.mark.parametrize("spoiled", ["dump", "manifest", "no dump", "no manifest"])
def test_any_other_dump_is_not_imported_and_makes_no_database(pod: Path, backup: Path, spoiled: str) -> None:
    """MariaDB's root would run each of its statements."""
    if spoiled == "dump":
        with (backup / DATABASE).open("a") as dump:
            dump.write("DROP TABLE a;\n")
    elif spoiled == "manifest":
        (backup / MANIFEST).write_text("{}")
    else:
        (backup / (DATABASE if spoiled == "no dump" else MANIFEST)).unlink()
    done = start(pod, backup=backup)
    assert done.returncode != 0
    assert "database.sql is not as it was written: use another backup" in done.stderr
    assert not (pod / "imported").exists()
    assert not (pod / "lib/data").exists()
