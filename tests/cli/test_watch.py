"""A job that is waited for, across a connection that breaks in the middle of an event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs import access
from kubectl_slurm.slurmjobs.following import until_finished
from kubectl_slurm.slurmjobs.job import SlurmJobView
from tests.cli.factories import slurmjob

BROKEN = """\
#!/bin/sh
cd {folder} || exit
if [ -e begun ]; then
    cat rest
    exec sleep 60
fi
touch begun
cat first
echo 'error: http2: client connection lost' >&2
exit 1
"""


def test_half_an_event_is_none_and_the_job_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PAUSES_S", (0.0,))
    running, ended = slurmjob(state="RUNNING"), slurmjob(phase="Succeeded", state="COMPLETED")
    events = [json.dumps({"type": "MODIFIED", "object": obj}) for obj in (running, ended)]
    (tmp_path / "first").write_text(f"{events[0]}\n{events[1][:100]}")
    (tmp_path / "rest").write_text(f"{events[1]}\n")
    program = tmp_path / "kubectl"
    program.write_text(BROKEN.format(folder=tmp_path))
    program.chmod(0o755)
    job = until_finished(Kubectl(str(program)), SlurmJobView(running))
    assert job.phase == "Succeeded"
