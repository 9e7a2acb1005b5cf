"""A slurmctld of one node as scontrol shows it: a program `scontrol` whose answers are files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SCONTROL = """\
#!/bin/sh
cd {folder} || exit 1
echo "$@" >>calls
[ ! -e away ] || {{ echo "Unable to contact slurm controller (connect failure)" >&2; exit 1; }}
case $1 in
--oneliner)
    [ -e record ] || {{ echo "Node w-0 not found"; exit 1; }}
    cat record ;;
update)
    [ ! -e refuses ] || {{ echo "slurm_update error: Access denied" >&2; exit 1; }}
    case $3 in
    state=drain) sed -i 's/State=\\([^ ]*\\)/State=\\1+DRAIN/' record ;;
    instanceid=*) [ -e drops ] || sed -i "s/ InstanceId=[^ ]*//; s/$/ InstanceId=${{3#*=}}/" record
        [ -z "$4" ] || sed -i "s/ Comment=[^ ]*/ Comment=${{4#*=}}/" record ;;
    esac ;;
esac
"""
RECORD = (
    "NodeName=w-0 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 NodeAddr={address} NodeHostName=w-0 "
    "Version=24.11.5 OS=Linux State={state} ThreadsPerCore=1 Comment=State=DOWN "
    "Reason=none [root@now]{instance}\n"
)


class FakeSlurm:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        program = folder / "bin" / "scontrol"
        program.write_text(SCONTROL.format(folder=folder))
        program.chmod(0o755)

    def put_on_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", f"{self.folder / 'bin'}:{os.environ['PATH']}")

    def node(self, state: str, *, instance_id: str = "", address: str = "10.0.0.1") -> None:
        instance = f" InstanceId={instance_id}" if instance_id else ""
        new = self.folder / "record.new"
        new.write_text(RECORD.format(state=state, address=address, instance=instance))
        new.rename(self.folder / "record")

    def set(self, flag: str, *, on: bool = True) -> None:
        """`away`: slurmctld does not answer; `refuses`: updates; `drops`: the instance id, as 26.05 does."""
        (self.folder / flag).touch() if on else (self.folder / flag).unlink()

    @property
    def record(self) -> str:
        return (self.folder / "record").read_text()

    def calls(self, of: str) -> list[str]:
        if not (self.folder / "calls").exists():
            return []
        return [line for line in (self.folder / "calls").read_text().splitlines() if line.startswith(of)]
