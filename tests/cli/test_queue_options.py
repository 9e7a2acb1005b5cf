"""squeue's options of `queue`."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kubectl_slurm.kubectl.program import Kubectl as Program
from kubectl_slurm.slurmjobs.pods import REFRESH_S, PodsOnSlurm
from kubectl_slurm.slurmjobs.redbox import expected_start
from kubectl_slurm.slurmjobs.redbox.answers import Answer, read_answer
from kubectl_slurm.slurmjobs.redbox.requests import RedboxAccess, RedboxNotReached, RedboxRefused
from tests.cli.factories import slurmcluster, slurmjob, view
from tests.cli.harness import PROGRAM, WITHIN_S, Kubectl, run, terminal
from tests.cli.redbox import redbox_in_place

RUNNING = slurmjob("runs", state="RUNNING", jobID="11", user="alice", nodeList="n1")
WAITING = slurmjob(
    "waits",
    "Submitted",
    state="PENDING",
    jobID="12",
    user="bob",
    reason="Priority",
    spec={"resources": {"time": "10"}},
)


@pytest.fixture
def queue(kubectl: Kubectl) -> Kubectl:
    kubectl.answers("jobs", [RUNNING, WAITING])
    return kubectl


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["-u", "bob"], ["waits"]),
        (["-u", "alice,bob"], ["runs", "waits"]),
        (["-j", "11"], ["runs"]),
        (["-j", "11,12", "-u", "bob"], ["waits"]),
    ],
)
def test_jobs_are_chosen_by_user_and_id(queue: Kubectl, options: list[str], names: list[str]) -> None:
    ended = run(queue, "queue", *options, "--noheader", "-o", "%j")
    assert (ended.returncode, ended.stdout.split()) == (0, names)


def test_a_job_id_that_is_not_there_is_named(queue: Kubectl) -> None:
    ended = run(queue, "queue", "-j", "99")
    assert ended.returncode == 1
    assert "there is no SlurmJob 99" in ended.stderr


def test_the_long_form_has_states_in_full_and_time_limits(queue: Kubectl) -> None:
    headings, first, second = run(queue, "queue", "-l").stdout.splitlines()
    assert headings.split() == [
        "JOBID", "PARTITION", "NAME", "USER", "STATE", "TIME", "TIME_LIMIT", "NODES", "NODELIST(REASON)",
    ]  # fmt: skip
    assert "RUNNING" in first.split()
    assert {"PENDING", "10"} <= {*second.split()}


def test_fields_are_laid_out_as_squeue_does(queue: Kubectl) -> None:
    ended = run(queue, "queue", "-o", "%.6i|%-5j|%3T|%R 100%%")
    assert ended.stdout.splitlines() == [
        " JOBID|NAME |STA|NODELIST(REASON) 100%",
        "    11|runs |RUN|n1 100%",
        "    12|waits|PEN|(Priority) 100%",
    ]


@pytest.mark.parametrize("form", ["%i %w", "table"])
def test_a_form_that_there_is_not_is_refused_before_anything_is_asked(queue: Kubectl, form: str) -> None:
    ended = run(queue, "queue", "-o", form)
    assert (ended.returncode, ended.stdout, queue.calls) == (2, "", [])
    assert "--output: " in ended.stderr


@pytest.mark.parametrize("options", [["--watch"], ["-o", "json"]])
def test_starts_are_a_table_of_their_own(queue: Kubectl, options: list[str]) -> None:
    ended = run(queue, "queue", "--start", *options)
    assert (ended.returncode, ended.stdout, queue.calls) == (2, "", [])


def test_waiting_jobs_have_the_start_that_slurm_expects(queue: Kubectl, tmp_path: Path) -> None:
    with redbox_in_place(tmp_path) as redbox:
        serve(queue, redbox.endpoint, redbox.authority)
        redbox.body = json.dumps({
            "reason": "Priority", "startsAt": "2026-11-25T14:05:00Z", "nodes": "n[1-2]",
        }).encode()  # fmt: skip
        headings, *rows = run(queue, "queue", "--start").stdout.splitlines()
    assert headings.split() == [
        *("JOBID", "PARTITION", "NAME", "USER", "ST", "START_TIME", "NODES", "SCHEDNODES"),
        "NODELIST(REASON)",
    ]
    assert [row.split() for row in rows] == [
        ["12", "debug", "waits", "bob", "PD", "2026-11-25T14:05:00", "n[1-2]", "(Priority)"]
    ]


def serve(queue: Kubectl, endpoint: str, authority: bytes) -> None:
    cluster = slurmcluster()
    authority_text = base64.b64encode(authority).decode()
    cluster["spec"] = {"endpoint": endpoint, "audience": "x", "caBundle": authority_text}
    only_cluster(queue, cluster)
    queue.answers("token", {})


def only_cluster(queue: Kubectl, cluster: dict[str, Any]) -> None:
    queue.answers("clusters", [cluster])
    queue.answers("cluster", cluster)
    queue.when('*get*slurmclusters*" -- "*', 'cat "$ANSWERS/cluster"')


def test_without_a_way_to_red_box_waiting_jobs_are_shown_without_a_start(queue: Kubectl) -> None:
    cluster = slurmcluster()
    cluster["spec"] = {"endpoint": "https://x", "audience": "x"}
    only_cluster(queue, cluster)
    ended = run(queue, "queue", "--start", "--noheader")
    assert ended.returncode == 0
    assert "N/A" in ended.stdout.split()
    assert ended.stderr.startswith("waits: Slurm's estimate is not known: ")


class ManyJobs(RedboxAccess):
    """A red-box that knows every second job, until it is away."""

    asked = 0

    def get(self, wanted: type[Answer], path: str) -> Answer:
        ManyJobs.asked += 1
        if "odd" in path:
            raise RedboxRefused("it does not wait any more", 409)
        if "away" in path:
            raise RedboxNotReached("no route")
        return read_answer(wanted, {"reason": "", "startsAt": "2026-11-25T14:05:00Z"})


def test_slurm_is_asked_about_a_bounded_number_of_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(expected_start, "access_of_job", lambda *_: ManyJobs("https://x", "", "token"))
    jobs = [view(f"{'odd' if number % 2 else 'even'}-{number}", "Submitted") for number in range(50)]
    starts = expected_start.expected_starts(None, jobs)  # type: ignore[arg-type]
    assert (ManyJobs.asked, len(starts)) == (expected_start.MOST_ASKED, expected_start.MOST_ASKED / 2)
    assert "30 others do not" in capsys.readouterr().err
    assert expected_start.expected_starts(None, [view("away", "Submitted")]) == {}  # type: ignore[arg-type]
    assert "away: Slurm's estimate is not known: no route" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- pods


def pod(name: str, phase: str, message: str, *, submitted: str = "True", **status: Any) -> dict[str, Any]:
    condition = {"type": "redbox.dev/Submitted", "status": submitted, "message": message, "reason": "Waits"}
    return {
        "metadata": {"name": name, "namespace": "alice", "creationTimestamp": "2026-11-24T13:00:00Z"},
        "spec": {"nodeName": "hpc1.debug", "serviceAccountName": "default"},
        "status": {"phase": phase, "conditions": [condition], **status},
    }


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "state": state}]


PODS = [
    pod(
        *("hello", "Running", "Slurm job 21 of alice"),
        hostIP="10.0.0.1",
        containerStatuses=container(running={"startedAt": "2026-11-24T12:00:00Z"}),
    ),
    pod(
        *("patient", "Pending", "Slurm job 22 of alice"),
        containerStatuses=container(waiting={"reason": "Priority"}),
    ),
    pod("new", "Pending", "red-box is away", submitted="False"),
    pod("done", "Succeeded", "Slurm job 20 of alice"),
    {"metadata": {"name": "elsewhere", "namespace": "alice"}, "spec": {}, "status": {"phase": "Running"}},
]


@pytest.fixture
def with_pods(queue: Kubectl) -> Kubectl:
    queue.answers("pods", PODS)
    cluster = slurmcluster()
    cluster["spec"] = {"pods": {"enabled": True}}
    queue.answers("clusters", [slurmcluster(), cluster])
    return queue


def of_pods(kubectl: Kubectl) -> list[str]:
    return [call for call in kubectl.calls if " pods " in call]


def test_pods_on_slurm_stand_beside_the_slurmjobs(with_pods: Kubectl) -> None:
    rows = [row.split() for row in run(with_pods, "queue").stdout.splitlines()[1:]]
    assert [row[:6] for row in rows if "pod/" in " ".join(row)] == [
        ["21", "debug", "pod/hello", "alice", "R", rows[2][5]],
        ["-", "debug", "pod/new", "-", "0:00", "1"],
        ["22", "debug", "pod/patient", "alice", "PD", "0:00"],
    ]
    assert rows[2][-1] == "10.0.0.1"
    assert rows[-1][-1] == "(Priority)"
    assert len(run(with_pods, "queue", "-t", "all", "-u", "alice").stdout.splitlines()) == 5
    assert run(with_pods, "queue", "-j", "22").stdout.splitlines()[1].split()[2] == "pod/patient"


@pytest.mark.parametrize(
    ("words", "are_ended_wanted"),
    [([], False), (["-t", "PD,R"], False), (["-t", "all"], True), (["x"], True)],
)
def test_ended_pods_are_asked_for_where_they_are_wanted(
    with_pods: Kubectl, words: list[str], *, are_ended_wanted: bool
) -> None:
    run(with_pods, "queue", *words)
    (call,) = of_pods(with_pods)
    assert ("--field-selector=status.phase!=Succeeded,status.phase!=Failed" in call) is not are_ended_wanted


def test_pods_are_not_asked_for_where_no_cluster_runs_them(with_pods: Kubectl) -> None:
    with_pods.answers("clusters", [slurmcluster()])
    assert len(run(with_pods, "queue").stdout.splitlines()) == 3
    assert of_pods(with_pods) == []


def test_who_may_not_see_slurmclusters_sees_pods(with_pods: Kubectl) -> None:
    """A RoleBinding to redbox-editor shows none, and edit shows pods."""
    with_pods.forgets("clusters")
    assert "pod/hello" in run(with_pods, "queue").stdout


@pytest.mark.parametrize(
    "words", [["-o", "json"], ["-o", "name"], ["-o", "%i %j"], ["--noheader"]], ids=" ".join
)
def test_what_scripts_read_is_slurmjobs_alone(with_pods: Kubectl, words: list[str]) -> None:
    """They pass it to `cancel`, which takes no pods."""
    ended = run(with_pods, "queue", *words)
    assert (ended.returncode, "pod" in ended.stdout, of_pods(with_pods)) == (0, False, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("Error from server (Forbidden): pods is forbidden", ""),
        (
            "The connection to the server x was refused",
            "kubectl slurm: pods on Slurm are not listed: the cluster does not answer: {0}\n",
        ),
    ],
)
def test_without_a_list_of_pods_the_queue_has_the_slurmjobs(
    with_pods: Kubectl, words: str, said: str
) -> None:
    with_pods.when('*"get --output=json pods"*', f"echo '{words}' >&2; exit 1")
    ended = run(with_pods, "queue")
    assert (ended.returncode, len(ended.stdout.splitlines()), ended.stderr) == (0, 3, said.format(words))


def test_a_watched_queue_asks_for_pods_rarely(with_pods: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSWERS", str(with_pods.folder))
    now = 100.0
    program = Program(str(with_pods.program))
    pods = PodsOnSlurm(program, everywhere=True, with_ended=False, clock=lambda: now)
    shown = [job.name for job in pods.current()]
    with_pods.answers("pods", [])
    now += REFRESH_S - 1
    assert [job.name for job in pods.current()] == shown
    (call,) = of_pods(with_pods)
    assert "--all-namespaces" in call
    now += 1
    assert (pods.current(), pods.trouble) == ([], "")


def test_a_watched_queue_keeps_pods_that_cannot_be_listed_again(
    with_pods: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSWERS", str(with_pods.folder))
    now = 100.0
    program = Program(str(with_pods.program))
    pods = PodsOnSlurm(program, everywhere=False, with_ended=True, clock=lambda: now)
    shown = pods.current()
    with_pods.when('*"get --output=json pods"*', "echo 'error: too many' >&2; exit 1")
    now += REFRESH_S
    assert shown
    assert (pods.current(), pods.trouble) == (shown, "pods on Slurm are not listed: too many")


def test_a_pod_is_described_by_kubectl_itself(queue: Kubectl) -> None:
    ended = run(queue, "explain", "pod/hello")
    assert (ended.returncode, "kubectl describe pod/hello" in ended.stderr) == (2, True)


def test_a_watched_queue_says_why_pods_are_missing(with_pods: Kubectl) -> None:
    with_pods.when('*"get --output=json pods"*', "echo 'error: too many' >&2; exit 1")
    with terminal("queue", "--watch=0.5", env=with_pods.environment()) as shown:
        lines = shown.until(lambda lines: any("waits" in line for line in lines))
        assert "pods on Slurm are not listed: too many" in lines[0]
        shown.press(b"\x03")
        assert shown.end() == 130


def test_without_a_terminal_a_watched_queue_says_it_once(with_pods: Kubectl) -> None:
    with_pods.when('*"get --output=json pods"*', "echo 'error: too many' >&2; exit 1")
    with subprocess.Popen(
        [PROGRAM, "queue", "--watch=0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=with_pods.environment(),
    ) as watching:
        deadline = time.monotonic() + WITHIN_S
        while len([call for call in with_pods.calls if " slurmjobs" in call]) < 4:
            assert time.monotonic() < deadline, with_pods.calls
            time.sleep(0.05)
        watching.terminate()
        shown, said = watching.communicate(timeout=WITHIN_S)
    assert len(shown.splitlines()) == 3
    assert said == "kubectl slurm: pods on Slurm are not listed: too many\n"
