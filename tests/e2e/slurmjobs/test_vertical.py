"""The thinnest true path through all parts: kubectl apply -> sbatch as alice -> kubectl logs, and back."""

from __future__ import annotations

from redbox_bed import login_node
from redbox_bed.hosts.host import Host
from tests.e2e.harness.slurmjobs import SlurmJobs
from tests.e2e.harness.waiting import eventually

SCRIPT = """\
echo "user $(id -un) on $(hostname)"
echo "apart" >&2
for line in 1 2 3; do echo "line $line"; sleep 0.3; done
exit 3
"""


def test_a_job_runs_as_its_owner_and_its_output_is_in_kubectl_logs(jobs: SlurmJobs, login: Host) -> None:
    job = jobs.apply(SCRIPT)
    status = job.finishes()
    assert (status["phase"], status["exitCode"], status["user"]) == ("Failed", 3, "alice")
    lines = job.log().splitlines()
    assert [line for line in lines if line.startswith("line")] == ["line 1", "line 2", "line 3"]
    assert any(line.startswith("user alice on n") for line in lines)
    assert "apart" in lines
    job("wait", f"pod/{job.pod}", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")
    (container,) = job.get("pod", job.pod)["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 3
    row = ("sacct", "-XnP", "-o", "User,State,ExitCode", "-j", status["jobID"])
    assert login.run(*row).stdout.strip() == "alice|FAILED|3:0"


def test_bobs_namespace_is_bobs_account(jobs: SlurmJobs) -> None:
    assert jobs.apply("id -un", namespace="bob").finishes()["user"] == "bob"


def test_deleting_the_slurmjob_cancels_the_job_and_waits_for_its_end(jobs: SlurmJobs) -> None:
    job = jobs.apply("sleep 600")
    job_id = job.starts()["jobID"]
    job.delete()
    assert eventually(lambda: job.in_slurm() == [(job_id, "CANCELLED")])


def test_a_killed_red_box_comes_back_to_the_same_job(jobs: SlurmJobs, login: Host) -> None:
    half = "for i in {}; do echo tick $i; sleep 0.5; done"
    job = jobs.apply(
        f"{half.format('1 2 3 4')}; until [ -e go ]; do sleep 0.2; done; {half.format('5 6 7 8')}"
    )
    directory = job.starts()["workingDirectory"]
    login.kill(login_node.SERVICE)
    login_node.start(login)
    login.run("touch", f"{directory}/go", user="alice")
    status = job.finishes()
    assert eventually(lambda: job.in_slurm() == [(status["jobID"], "COMPLETED")])
    written = [line for line in job.log().splitlines() if not line.startswith("redbox: ")]
    assert written == [f"tick {i}" for i in range(1, 9)]


def test_a_script_that_slurm_refuses_says_so_and_is_not_retried(jobs: SlurmJobs) -> None:
    status = jobs.apply("#SBATCH --partition=nowhere\ntrue").finishes()
    assert status["phase"] == "Failed"
    assert "partition" in status["message"].lower()
    assert "jobID" not in status
