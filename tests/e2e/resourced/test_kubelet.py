"""kubectl logs of a pod on a virtual node, asked by the real API server; and who else asks gets nothing."""

from __future__ import annotations

import json
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.client_certificate import ClientCertificate, signed
from tests.e2e.harness.virtual_delivery import HOST, PORT, Companion, Stand, virtual_stand
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("bare")]
LINES = "#!/bin/sh\nfor i in 1 2 3 4 5 6; do echo out $i; done\nfor i in a b; do echo err $i >&2; done\n"
SLEEPS = "#!/bin/sh\necho begun\nsleep 600\n"
TICKS = "#!/bin/sh\nsleep 3\nfor i in $(seq 1 40); do echo tick $i; sleep 0.1; done\n"
FOLLOWERS = 100


@pytest.fixture(scope="module")
def stand(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with virtual_stand(bed, tmp_path_factory.mktemp("resourced")) as stand:
        yield stand


@pytest.fixture(scope="module")
def ended(stand: Stand) -> Companion:
    companion = stand.submit(LINES)
    companion.reaches("Succeeded")
    return companion


@pytest.fixture(scope="module")
def running(stand: Stand) -> Companion:
    companion = stand.submit(SLEEPS)
    companion.reaches("Running")
    eventually(companion.logs)
    return companion


def refused(companion: Companion, *options: str) -> str:
    with pytest.raises(BedError) as refusal:
        companion.logs(*options)
    return str(refusal.value)


def test_both_streams_come_whole(ended: Companion) -> None:
    assert sorted(ended.logs().splitlines()) == ["err a", "err b", *(f"out {i}" for i in range(1, 7))]
    assert sorted(ended.logs("--follow").splitlines()) == sorted(ended.logs().splitlines())


@pytest.mark.parametrize(("tail", "wanted"), [(1, 1), (4, 4), (100, 8), (0, 0)])
def test_tail_gives_no_more_lines_than_asked(ended: Companion, tail: int, wanted: int) -> None:
    assert len(ended.logs(f"--tail={tail}").splitlines()) == wanted


def test_limit_bytes_is_a_limit(ended: Companion) -> None:
    assert len(ended.logs("--limit-bytes=9")) == 9


def test_timestamps_are_no_later_than_the_jobs_end(ended: Companion) -> None:
    terminated = ended.pod["status"]["containerStatuses"][0]["state"]["terminated"]
    lines = ended.logs("--timestamps").splitlines()
    assert len(lines) == 8
    assert {line[:19] for line in lines} == {terminated["finishedAt"][:19]}


def test_since_is_honoured_before_the_start_and_after_the_end(ended: Companion) -> None:
    assert len(ended.logs("--since=2h").splitlines()) == 8
    eventually(lambda: ended.logs("--since=1s") == "")


def test_since_is_refused_in_between_and_says_what_to_use(running: Companion) -> None:
    time.sleep(1.1)
    assert "use --tail" in refused(running, "--since=1s")


def test_previous_is_refused_in_words_where_there_is_none(ended: Companion) -> None:
    assert "not requeued" in refused(ended, "--previous")


def test_previous_of_a_requeued_job_says_where_the_run_before_wrote(stand: Stand) -> None:
    companion = stand.submit(SLEEPS)
    companion.reaches("Running")
    [job_id] = eventually(lambda: stand.jobs_in_slurm(companion.name))
    stand.login.run("scontrol", "requeue", job_id, user="alice")
    eventually(lambda: "Slurm requeued this job" in refused(companion, "--previous"))
    assert "--open-mode=append" in refused(companion, "--previous")


def test_the_log_of_a_job_that_waits_is_empty_and_a_follower_waits_with_it(stand: Stand) -> None:
    companion = stand.submit("#!/bin/sh\necho released\n", hold=True)
    companion.has_condition("Submitted")
    assert companion.logs() == ""
    with ThreadPoolExecutor() as pool:
        follower = pool.submit(companion.logs, "--follow")
        stand.login.run("scontrol", "release", f"jobname={companion.name}", user="root")
        assert follower.result(timeout=90) == "released\n"


@pytest.mark.parametrize(
    "command", [("exec", "--", "ls"), ("port-forward", ":80"), ("exec", "-it", "--", "sh")]
)
def test_a_session_that_redbox_does_not_allow_fails_with_its_sentence(
    stand: Stand, running: Companion, command: tuple[str, ...]
) -> None:
    verb, *rest = command
    kubectl = stand.bed.places.state / "bin/kubectl"
    asked = subprocess.Popen(
        [
            str(kubectl),
            f"--kubeconfig={stand.bed.places.kubeconfig}",
            *(verb, "--namespace=alice", running.pod_name, *rest),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if verb == "port-forward":  # it asks only once somebody comes
        assert asked.stdout is not None
        address = asked.stdout.readline().split()[2]
        subprocess.run(["curl", "-s", "-m", "5", f"http://{address}"], check=False, timeout=60)
    said, _ = asked.communicate(timeout=60)
    assert "red-box" in said
    assert asked.returncode != 0


def test_an_arrays_log_is_its_tasks_logs_each_below_its_line(stand: Stand) -> None:
    script = "#!/bin/sh\necho out $SLURM_ARRAY_TASK_ID\necho err $SLURM_ARRAY_TASK_ID >&2\n"
    companion = stand.submit(script, array="1-3")
    companion.has_condition("Submitted")
    tasks = [f"redbox: task {one}: COMPLETED\nout {one}\nerr {one}\n" for one in (1, 2, 3)]
    followed = companion.logs("--follow")
    assert all(followed.count(task) == 1 for task in tasks)
    assert len(followed) == sum(map(len, tasks))
    companion.reaches("Succeeded")
    assert companion.logs() == "".join(tasks)
    assert companion.logs("--tail=4") == "err 2\n" + tasks[2]


def test_a_hundred_followers_each_get_every_line_once(stand: Stand) -> None:
    companion = stand.submit(TICKS)
    companion.has_condition("Submitted")
    with ThreadPoolExecutor(FOLLOWERS) as pool:
        read = list(pool.map(lambda _: companion.logs("--follow"), range(FOLLOWERS)))
    expected = "".join(f"tick {i}\n" for i in range(1, 41))
    assert [text for text in read if text != expected] == []


def test_a_log_of_300_megabytes_comes_whole(stand: Stand) -> None:
    script = "#!/bin/sh\nseq -f '%099.0f' 1 3000000\n"
    companion = stand.submit(script)
    companion.reaches("Succeeded")
    kubectl = stand.bed.places.state / "bin/kubectl"
    command = (
        f"{kubectl} --kubeconfig={stand.bed.places.kubeconfig} logs --namespace=alice {companion.pod_name}"
        " | cmp - <(seq -f '%099.0f' 1 3000000)"
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False, timeout=280
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_reader_of_a_pod_that_is_deleted_is_let_go(stand: Stand) -> None:
    companion = stand.submit(SLEEPS)
    companion.reaches("Running")
    command = stand.kubernetes.command("logs", "--follow", "--namespace=alice", companion.pod_name)
    eventually(companion.logs)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "begun\n"
        stand.kubernetes("delete", "pod", companion.pod_name, "--namespace=alice", "--timeout=60s")
        assert (follower.communicate(timeout=60)[0], follower.returncode) == ("", 0)


def test_a_node_tells_what_jobs_use_as_slurm_measured_it(stand: Stand, running: Companion) -> None:
    def asked(path: str) -> str:
        return stand.kubernetes("get", "--raw", f"/api/v1/nodes/hpc1.debug/proxy/{path}")

    def measured() -> dict[str, Any] | None:
        pods = {pod["podRef"]["name"]: pod for pod in json.loads(asked("stats/summary"))["pods"]}
        return pods[running.pod_name] if "memory" in pods[running.pod_name] else None

    used = eventually(measured)
    assert used["memory"]["workingSetBytes"] > 0
    assert used["cpu"]["usageCoreNanoSeconds"] >= 0
    labels = f'container="companion",namespace="alice",pod="{running.pod_name}"'
    shown = f"container_memory_working_set_bytes{{{labels}}}"
    assert shown in asked("metrics/resource")
    assert shown in asked("metrics/resource/hpc1.debug")
    assert shown not in asked("metrics/resource/hpc1.long")


def test_a_node_lists_its_pods(stand: Stand, running: Companion) -> None:
    listed = stand.kubernetes("get", "--raw", "/api/v1/nodes/hpc1.debug/proxy/pods")
    assert running.pod_name in {pod["metadata"]["name"] for pod in json.loads(listed)["items"]}


# ---------------------------------------------------------------------------------------- who else asks


def curl(stand: Stand, running: Companion, *options: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Ask from within the bed's network, as anybody there could; for the log where no path is given."""
    path = path or f"/containerLogs/alice/{running.pod_name}/companion"
    url = f"https://{stand.resourced.address}:{PORT}{path}"
    command = [*stand.resourced.entering(), "curl", "-sk", "-m", "10", "-w", "%{http_code}", *options, url]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def shown(certificate: ClientCertificate) -> tuple[str, ...]:
    """For curl."""
    return "--cert", str(certificate.file), "--key", str(certificate.key)


def test_without_a_certificate_nobody_gets_an_answer(stand: Stand, running: Companion) -> None:
    asked = curl(stand, running)
    assert asked.returncode != 0
    assert "begun" not in asked.stdout


def test_a_certificate_of_its_own_making_gets_no_answer(
    stand: Stand, running: Companion, tmp_path: Path
) -> None:
    files = (str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem"))
    subject = "/CN=kube-apiserver-kubelet-client/O=system:masters"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", subject),
            *("-keyout", files[0], "-out", files[1]),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    asked = curl(stand, running, "--key", files[0], "--cert", files[1])
    assert asked.returncode != 0
    assert "begun" not in asked.stdout


def test_a_plain_users_certificate_is_forbidden(stand: Stand, running: Companion, tmp_path: Path) -> None:
    asked = curl(stand, running, *shown(signed(stand.kubernetes, tmp_path, "bob", ["developers"])))
    assert asked.stdout.endswith("403")
    assert "Forbidden (user=bob" in asked.stdout


def test_another_kubelets_certificate_is_forbidden(stand: Stand, running: Companion, tmp_path: Path) -> None:
    """The one that the kubelet of a node shows the API server."""
    config = yaml.safe_load(stand.bed.host(HOST).run("cat", "/etc/kubernetes/kubelet.conf").stdout)
    user = config["users"][0]["user"]
    options: list[str] = []
    for option, name in (("--cert", "client-certificate-data"), ("--key", "client-key-data")):
        (tmp_path / name).write_bytes(b64decode(user[name]))
        options += [option, str(tmp_path / name)]
    asked = curl(stand, running, *options)
    assert asked.stdout.endswith("403")
    assert f"system:node:{HOST}" in asked.stdout


def test_who_gathers_metrics_shows_a_certificate_and_gets_them_but_no_log(
    stand: Stand, running: Companion, tmp_path: Path
) -> None:
    """As metrics-server does it with --kubelet-client-certificate."""
    role = "e2e-gatherer"
    stand.kubernetes("create", "clusterrole", role, "--verb=get", "--resource=nodes/metrics")
    try:
        stand.kubernetes("create", "clusterrolebinding", role, f"--clusterrole={role}", "--user=gatherer")
        options = shown(signed(stand.kubernetes, tmp_path, "gatherer", ["gatherers"]))
        told = curl(stand, running, *options, path="/metrics/resource").stdout
        assert "resource_scrape_error 0" in told
        assert told.endswith("200")
        assert curl(stand, running, *options).stdout.endswith("403")
    finally:
        stand.kubernetes("delete", "clusterrole,clusterrolebinding", role, "--ignore-not-found")
