"""The whole life of a SlurmJob on the bed: each way in which it can run and end, as its user sees it."""

from __future__ import annotations

import pytest

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.slurm_release import launcher
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, follow, new_name
from tests.e2e.harness.waiting import eventually

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("delivery"),
    pytest.mark.nightly(delivery="Virtual"),  # test_virtual.py is the short form
]


def is_in_sacct(login: Host, job_id: str, row: str) -> None:
    """Accounting shows it so, once it has caught up with slurmctld."""
    ask = ("sacct", "-X", "-n", "-P", "-o", "User,State,ExitCode", "-j", job_id)
    eventually(lambda: login.run(*ask).stdout.strip().startswith(row), what=row)


def left_of(job: Applied) -> str:
    """States in the queue and in the accounting, which is a moment later."""
    queued = job.login.run("squeue", "-h", "-o", "%T", f"--name={job.name}").stdout.split()
    return " ".join([*(f"queued {state}" for state in queued), *(state for _, state in job.in_slurm())])


def exit_code(job: Applied) -> str:
    """The pod's, once its container has ended."""

    def look() -> str | None:
        for one in job.get("pod", job.pod)["status"].get("containerStatuses", []):
            if ended := one["state"].get("terminated"):
                return str(ended["exitCode"])
        return None

    return eventually(look)


def test_a_success(jobs: SlurmJobs, login: Host) -> None:
    job = jobs.apply("echo moo; id -un")
    status = job.wait("condition=Complete")
    assert (status["phase"], status["status"], status["exitCode"]) == ("Succeeded", "Succeeded", 0)
    assert (status["user"], status["partition"], status["cluster"]) == ("alice", "debug", "hpc1")
    assert job.conditions["Finished"] == ("True", "Succeeded")
    is_in_sacct(login, status["jobID"], "alice|COMPLETED|0:0")
    assert job.log() == "moo\nalice\n"
    row = job("get", "slurmjob", job.name, "--no-headers").split()
    assert row[:4] == [job.name, "Succeeded", status["jobID"], "hpc1"]


def test_a_failure(jobs: SlurmJobs, login: Host) -> None:
    job = jobs.apply("exit 3")
    status = job.wait("condition=Failed")
    assert (status["phase"], status["exitCode"]) == ("Failed", 3)
    assert exit_code(job) == "3"
    is_in_sacct(login, status["jobID"], "alice|FAILED|3:0")


def test_a_signal(jobs: SlurmJobs) -> None:
    job = jobs.apply("kill -SEGV $$")
    status = job.finishes()
    assert (status["phase"], status["signal"]) == ("Failed", 11)
    assert exit_code(job) == str(128 + 11)
    assert job.log() == "redbox: It was ended by SIGSEGV (11).\n"


def test_a_time_limit(jobs: SlurmJobs) -> None:
    job = jobs.apply("echo begun; sleep 600", resources={"time": "1"})
    status = job.wait("condition=Finished")
    assert (status["phase"], status["state"]) == ("Failed", "TIMEOUT")
    assert "begun" in job.log()


def test_a_cancel_from_slurms_side(jobs: SlurmJobs, login: Host) -> None:
    job = jobs.apply("sleep 600")
    login.run("scancel", job.starts()["jobID"], user="alice")
    status = job.finishes()
    assert status["phase"] == "Cancelled"
    assert job.conditions["Finished"] == ("True", "Cancelled")


def test_a_cancel_that_the_slurmjob_requests_keeps_it_with_its_log_and_is_not_retried(
    jobs: SlurmJobs, login: Host
) -> None:
    runs = jobs.apply("trap 'exit 1' TERM; echo begun; while :; do sleep 1; done", backoffLimit=2)
    array = jobs.apply("sleep 600", array="0-2")
    held = jobs.apply("sleep 600", hold=True)
    waits = jobs.apply("sleep 600", dependsOn=[{"name": new_name()}])
    runs.starts()
    array.starts()
    held.comes_to(phase="Submitted", reason="JobHeldUser")
    waits.comes_to(reason="DependencyMissing")
    for job in (runs, array, held, waits):
        job.cancel()
    for job in (runs, array, held, waits):
        assert job.finishes()["phase"] == "Cancelled"
    assert "begun" in runs.log()
    assert runs.status["attempts"] == 1
    runs.has_in_slurm("CANCELLED")
    is_in_sacct(login, held.status["jobID"], "alice|CANCELLED")
    assert waits.in_slurm() == []
    for job in (runs, array, held):
        job.pod_ends()


def test_a_cancel_at_any_moment_of_a_submit_leaves_nothing_in_slurm(jobs: SlurmJobs) -> None:
    made = [jobs.apply("sleep 600") for _ in range(5)]
    for job in reversed(made):  # the first has had the longest time
        job.cancel()
    for job in made:
        assert job.finishes()["phase"] == "Cancelled"
        eventually(lambda one=job: left_of(one) in ("", "CANCELLED"), what="nothing left of it")  # type: ignore[misc]
        job.pod_ends()


def test_a_requeue_runs_under_the_same_id_and_its_log_goes_on(jobs: SlurmJobs, login: Host) -> None:
    job = jobs.apply('echo run $SLURM_RESTART_COUNT; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600')
    job_id = job.starts()["jobID"]
    login.run("scontrol", "requeue", job_id, user="alice")
    # Slurm would wait two minutes before it starts the job again.
    job.comes_to(phase="Submitted", reason="BeginTime")
    login.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")
    status = job.finishes()
    assert (status["phase"], status["jobID"], status["run"]) == ("Succeeded", job_id, 2)
    assert "run 1" in job.log()


def test_a_job_that_is_held_runs_when_it_is_let_go(jobs: SlurmJobs) -> None:
    job = jobs.apply("echo moo", hold=True)
    job.comes_to(phase="Submitted", reason="JobHeldUser")
    job.change(hold=False)
    assert job.finishes()["phase"] == "Succeeded"


def test_an_array_of_20(jobs: SlurmJobs) -> None:
    job = jobs.apply("echo task $SLURM_ARRAY_TASK_ID", array="0-19")
    status = job.finishes()
    assert status["array"]["total"] == status["array"]["succeeded"] == 20
    lines = job.log().splitlines()
    headings = [f"redbox: task {index}: COMPLETED" for index in range(20)]
    assert sorted(line for line in lines if line.startswith("redbox: ")) == sorted(headings)
    assert sorted(set(lines) - set(headings)) == sorted(f"task {index}" for index in range(20))


def test_a_chain_of_three_runs_in_its_order_in_whichever_order_it_is_applied(jobs: SlurmJobs) -> None:
    first, second, third = new_name(), new_name(), new_name()
    say = "echo %s >> ~/chain-" + first
    last = jobs.apply(say % 3 + f"; cat ~/chain-{first}", name=third, dependsOn=[{"name": second}])
    jobs.apply(say % 2, name=second, dependsOn=[{"name": first, "type": "afterok"}])
    jobs.apply("sleep 1; " + say % 1, name=first)
    assert last.finishes()["phase"] == "Succeeded"
    assert last.log().split() == ["1", "2", "3"]


def test_two_namespaces_are_two_users(jobs: SlurmJobs) -> None:
    ours, theirs = jobs.apply("id -un"), jobs.apply("id -un", namespace="bob")
    assert (ours.finishes()["user"], theirs.finishes()["user"]) == ("alice", "bob")
    assert (ours.log(), theirs.log()) == ("alice\n", "bob\n")


def test_what_was_deleted_is_applied_again_under_its_name(jobs: SlurmJobs) -> None:
    before = jobs.apply("echo moo")
    first = before.finishes()["jobID"]
    before.delete()
    again = jobs.apply("echo moo", name=before.name)
    assert again.finishes()["jobID"] != first
    assert again.log() == "moo\n"


def test_mpi_over_three_hosts(jobs: SlurmJobs, bed: Bed) -> None:
    job = jobs.apply(f"{launcher(bed)} pingpong", resources={"nodes": 3, "tasksPerNode": 1})
    status = job.finishes()
    assert (status["phase"], status["nodes"]) == ("Succeeded", ["n1", "n2", "n3"])
    assert [line.split()[0] for line in job.log().splitlines() if "round trip" in line] == ["0<->1", "0<->2"]


def test_a_log_is_followed_from_the_first_line_to_the_last(jobs: SlurmJobs, bed: Bed) -> None:
    job = jobs.apply('for i in $(seq 40); do echo "out $i"; echo "err $i" >&2; sleep 0.05; done')
    job.has_a_log()
    with follow(job, bed) as following:
        said, _ = following.communicate(timeout=100)
    lines = said.splitlines()
    assert [line for line in lines if line.startswith("out")] == [f"out {i}" for i in range(1, 41)]
    assert [line for line in lines if line.startswith("err")] == [f"err {i}" for i in range(1, 41)]
    assert len(lines) == 80


def test_a_node_keeps_stdout_and_stderr_apart(jobs: SlurmJobs, bed: Bed, delivery: str) -> None:
    if delivery == "Virtual":
        pytest.skip("a virtual node keeps nothing: who reads is given what Slurm wrote")
    job = jobs.apply("echo out; echo err >&2")
    job.finishes()
    job.log()
    pod = job.get("pod", job.pod)
    folder = f"/var/log/pods/{job.namespace}_{job.pod}_{pod['metadata']['uid']}"
    kept = bed.host(pod["spec"]["nodeName"]).read(f"{folder}/companion/0.log").decode()
    streams = {(line.split()[1], line.split()[3]) for line in kept.splitlines()}
    assert streams == {("stdout", "out"), ("stderr", "err")}
