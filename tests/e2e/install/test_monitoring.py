"""What the chart has for monitoring, on a real Prometheus that scrapes the bed.

Each query of each dashboard returns data, and alerts fire when what they describe is made to happen. How long
an alert waits is tried by promtool (tests/deploy/test_alerts.py): here they wait for nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from redbox.agents.transports.sudo import AGENT_PATH
from redbox.server.certificates import SERVER_LIVES, CertificateAndKey, facts_of, issue_server
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.delivery import CHART, NAMESPACE, RELEASE, SLURM_CLUSTER, Helm
from redbox_bed.hosts.host import Host
from redbox_bed.slurm.daemons import SLURMCTLD, SLURMD
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.metrics_adapter import external_metrics, number_of
from tests.e2e.harness.prometheus import Prometheus, access_to_redbox, metrics_allowed, scraping
from tests.e2e.harness.slurm_settings import configured
from tests.e2e.harness.slurmjobs import SlurmJobs
from tests.e2e.harness.virtual_chart import forget_resourced
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(600)
SELECTOR = re.compile(r"\b((?:redbox|slurm)_\w+|up)(\{[^}]*\})?")
EXAMPLES = CHECKOUT / "examples/scaling"
HELPERS = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "helpers"}},
        "template": {
            "metadata": {"labels": {"app": "helpers"}},
            "spec": {"nodeSelector": {"no-such": "node"}, "containers": [{"name": "main", "image": "none"}]},
        },
    },
}
TLS = "/etc/redbox/tls"
SHORTER = {"[10m]": "[30s]", "[15m]": "[45s]", "stale_seconds > 120": "stale_seconds > 15"}
"""For the tests. Backfill runs every 30 s, so that a scheduler of the bed is not silent for 45 s."""
STANDS = "SchedulerParameters=sched_interval=-1,bf_interval=3600"
"""Neither scheduler runs."""
TOGETHER = (
    *("SlurmNodesDown", "SlurmPartitionWithoutNodes", "SlurmSchedulerStands", "RedBoxCertificateEnds"),
    *("RedBoxOperatorFails", "RedBoxNodeProblems", "RedBoxPartitionsWithoutNode"),
)
"""What is made to happen at once."""
WRITES = frozenset({"create", "patch", "delete"})


@pytest.fixture(scope="module")
def rules(bed: Bed) -> dict[str, Any]:
    """The chart's, without the time that each waits, and with shorter times to look back at."""
    SlurmJobs.on(bed)  # which brings helm, too
    set_values = (
        "--set=images.registry=x",
        "--set=resourced.enabled=true",
        "--set=monitoring.prometheusRule=true",
    )
    text = Helm(bed)("template", RELEASE, str(CHART), *set_values, "--show-only=templates/monitoring.yaml")
    spec: dict[str, Any] = yaml.safe_load(text)["spec"]
    for group in spec["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
            for time, shorter in SHORTER.items():
                rule["expr"] = rule["expr"].replace(time, shorter)
    return spec


@pytest.fixture(scope="module")
def prometheus(
    bed: Bed, login: Host, rules: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """With a SlurmJob that has run, and jobs that run and wait."""
    jobs, kubernetes = SlurmJobs.on(bed), Kubernetes(bed)

    def upgrade(*, on: bool) -> None:
        values = (
            f"--set=resourced.enabled={str(on).lower()}",
            f"--set=resourced.virtualNodes={1 if on else 20}",
            f"--set=monitoring.dashboards={str(on).lower()}",
        )
        Helm(bed)("upgrade", RELEASE, str(CHART), "--reuse-values", "--take-ownership", "--wait", *values)

    upgrade(on=True)
    try:
        with (
            metrics_allowed(login),
            scraping(bed, tmp_path_factory.mktemp("prometheus"), rules) as prometheus,
        ):
            for script in ("sleep 60", "sleep 60"):
                options = ("-N3", "--exclusive", "-o/dev/null", "-D/tmp", "-t1")
                login.run("sbatch", *options, user="alice", stdin=f"#!/bin/sh\n{script}\n")
            login.run("scancel", "--user=alice", "--state=PENDING", user="alice", check=False)
            login.run("sbatch", "-H", "-pGPU_big", "-o/dev/null", "-D/tmp", user="alice", stdin="#!/bin/sh\n")
            login.run("scancel", "--user=alice", "--state=RUNNING", user="alice", check=False)
            job = jobs.apply("echo measured")
            job.finishes()
            assert job.log() == "measured\n"
            yield prometheus
    finally:
        login.run("scancel", "--user=alice", user="alice", check=False)
        jobs.clean()
        upgrade(on=False)
        forget_resourced(kubernetes)


def dashboards(bed: Bed) -> list[dict[str, Any]]:
    """As Grafana's sidecar finds them."""
    label = "--selector=grafana_dashboard=1"
    found = json.loads(
        Kubernetes(bed)("get", "configmaps", f"--namespace={NAMESPACE}", label, "--output=json")
    )
    return [json.loads(text) for one in found["items"] for text in one["data"].values()]


def as_grafana_asks(expression: str) -> str:
    """All values of the variables are chosen."""
    for name, value in {"$cluster": ".*", "$username": ".*", "$__rate_interval": "5m"}.items():
        expression = expression.replace(name, value)
    return expression


def test_every_query_of_every_dashboard_returns_data(bed: Bed, prometheus: Prometheus) -> None:
    found = dashboards(bed)
    assert {one["title"] for one in found} == {"Slurm: my jobs", "Slurm: cluster", "Red Box"}
    queries = {
        f"{one['title']}, {panel['title']}: {target['expr']}": as_grafana_asks(target["expr"])
        for one in found
        for panel in one["panels"]
        for target in panel["targets"]
    }
    assert len(queries) > 80
    without: list[str] = []

    def all_have_data() -> bool:
        without[:] = [name for name, expression in queries.items() if not has_data(prometheus, expression)]
        return not without

    try:
        eventually(all_have_data, 60)
    except AssertionError:
        pytest.fail("no data: " + "\n".join(without))
    for one in found:
        for variable in one["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.findall(r"\w+", variable["query"]["query"])[1:3]
                assert any(label in sample["metric"] for sample in prometheus.query(metric)), variable["name"]


def has_data(prometheus: Prometheus, expression: str) -> bool:
    return any(not math.isnan(float(sample["value"][1])) for sample in prometheus.query(expression))


@contextmanager
def certificate_that_ends_in(login: Host, left: timedelta) -> Iterator[None]:
    """red-box's own, issued by its CA long ago."""
    files = (f"{TLS}/server.crt", f"{TLS}/server.key")
    before = [login.read(file) for file in files]
    authority = CertificateAndKey(login.read(f"{TLS}/ca.crt"), login.read(f"{TLS}/ca.key"))
    facts = facts_of(before[0])
    issued = issue_server(authority, facts.names, facts.addresses, datetime.now(UTC) + left - SERVER_LIVES)
    try:
        for file, content in zip(files, (issued.certificate, issued.key), strict=True):
            login.run("tee", file, stdin=content)  # owner and mode stay
        yield
    finally:
        for file, content in zip(files, before, strict=True):
            login.run("tee", file, stdin=content)


@contextmanager
def read_only(kubernetes: Kubernetes, role: str, resource: str) -> Iterator[None]:
    """A ClusterRole whose rules about this resource allow no write."""
    before = kubernetes.get("clusterrole", role)["rules"]
    rules = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb not in WRITES]}
        if resource in rule.get("resources", ())
        else rule
        for rule in before
    ]
    assert rules != before
    kubernetes.patch("clusterrole", role, {"rules": [rule for rule in rules if rule["verbs"]]})
    try:
        yield
    finally:
        kubernetes.patch("clusterrole", role, {"rules": before})


@contextmanager
def virtual_nodes_wanted(kubernetes: Kubernetes) -> Iterator[None]:
    """By another SlurmCluster: one for each partition, of which the chart's value allows one."""
    cluster = kubernetes.get("slurmcluster", SLURM_CLUSTER)
    wanted = {
        "apiVersion": cluster["apiVersion"],
        "kind": cluster["kind"],
        "metadata": {"name": "virtual"},
        "spec": {**cluster["spec"], "delivery": "Virtual"},
    }
    kubernetes.apply(json.dumps(wanted))
    try:
        yield
    finally:
        kubernetes.delete("slurmcluster", "virtual")


@contextmanager
def without_its_metadata(login: Host) -> Iterator[None]:
    """A red-box from whose installation a part is removed while it runs: its version is a defect then."""
    folder = login.run("sh", "-c", f"echo {login_node.LIBRARY}/red_box-*.dist-info").stdout.strip()
    login.run("mv", folder, "/root/dist-info")
    try:
        yield
    finally:
        login.run("mv", "/root/dist-info", folder)


def version_asked(login: Host) -> str:
    """What red-box answers to a user of its host."""
    ask = ("curl", "--silent", "--unix-socket", "/run/redbox/redbox.sock", "http://localhost/v1/cluster")
    return login.run(*ask, user="alice").stdout


def test_what_alerts_are_made_of_is_there_and_none_of_them_fires_for_nothing(
    prometheus: Prometheus, rules: dict[str, Any]
) -> None:
    selectors = {
        (name, labels)
        for group in rules["groups"]
        for rule in group["rules"]
        for name, labels in SELECTOR.findall(rule["expr"])
    }
    assert len(selectors) > 15
    assert [name + labels for name, labels in selectors if not prometheus.query(name + labels)] == []
    eventually(lambda: not prometheus.firing(), 30, what="no alert")


@pytest.mark.nightly
def test_alerts_fire_for_what_they_describe_and_end_with_it(
    bed: Bed, login: Host, prometheus: Prometheus
) -> None:
    controller, kubernetes, jobs = bed.host("ctl"), Kubernetes(bed), SlurmJobs.on(bed)

    def fires(*alerts: str) -> None:
        eventually(lambda: prometheus.firing() >= set(alerts), 90, what=f"{alerts} firing")

    def ends(*alerts: str) -> None:
        eventually(lambda: not prometheus.firing() & set(alerts), 90, what=f"no {alerts}")

    node = bed.host("n3")
    node.kill(SLURMD.name)  # else its next registration brings it back
    controller.run("scontrol", "update", "nodename=n3", "state=down", "reason=test")
    login.run("sbatch", "-pGPU_big", "-o/dev/null", "-D/tmp", user="alice", stdin="#!/bin/sh\n")
    try:
        with (
            certificate_that_ends_in(login, timedelta(days=13)),
            configured(bed, STANDS),
            read_only(kubernetes, "redbox-operator-jobs", "slurmjobs/status"),
            read_only(kubernetes, "redbox-resourced", "nodes"),
            virtual_nodes_wanted(kubernetes),
        ):
            waiting = [jobs.apply("true") for _ in range(3)]
            # GPU_big has this node alone, and a job.
            fires(*TOGETHER)
    finally:
        node.ensure(SLURMD)
    fires("RedBoxStatusLate")  # what could not be written is written now
    ends(*TOGETHER)

    controller.kill(SLURMCTLD.name)
    try:
        fires("SlurmMetricsUnavailable", "RedBoxSlurmDoesNotAnswer")
        assert not prometheus.query("slurm_jobs"), "an old number would pass for a new one"
    finally:
        controller.ensure(SLURMCTLD)
    ends("SlurmMetricsUnavailable", "RedBoxSlurmDoesNotAnswer", "RedBoxStatusLate")

    agent = login.read(AGENT_PATH)
    login.kill(login_node.SERVICE)  # and the agents with it
    try:
        fires("RedBoxUnreachable")
        login.write(AGENT_PATH, "#!/bin/sh\nexit 1\n", mode=0o755)
        login_node.start(login)
        with without_its_metadata(login):
            job = jobs.apply("true")
            defect = 'redbox_requests_total{status="500"} > 0'
            eventually(lambda: version_asked(login) and prometheus.query(defect), 60, what="a defect")
            fires("RedBoxAgentsFail", "RedBoxDefect")
    finally:
        login.write(AGENT_PATH, agent, mode=0o755)
        login_node.start(login)
    ends("RedBoxUnreachable")

    controllers = ("deployment/redbox-operator", "deployment/redbox-resourced")
    kubernetes("scale", *controllers, f"--namespace={NAMESPACE}", "--replicas=0")
    try:
        fires("RedBoxOperatorAway", "RedBoxResourcedAway")
    finally:
        kubernetes("scale", *controllers, f"--namespace={NAMESPACE}", "--replicas=1")
    for each in (*waiting, job):
        each.finishes()


@pytest.mark.usefixtures("prometheus")
@pytest.mark.nightly
def test_a_horizontal_pod_autoscaler_follows_the_jobs_that_wait_in_a_partition(login: Host, bed: Bed) -> None:
    """The example, with a Deployment whose pods fit on no node: only their number is of interest."""
    kubernetes = Kubernetes(bed)
    access = access_to_redbox(kubernetes)
    target = ("deployment", "helpers", "alice")
    kubernetes.apply(yaml.safe_dump({**HELPERS, "metadata": {"name": "helpers", "namespace": "alice"}}))
    submit = ("sbatch", "-o/dev/null", "-D/tmp", "-N3", "--exclusive", "--array=1-13", "-t5")
    login.run(*submit, user="alice", stdin="#!/bin/sh\nsleep 300\n")
    login.run(*submit, "-H", user="alice", stdin="#!/bin/sh\n")  # held: no helper gets these to start
    try:
        with external_metrics(login, kubernetes, access.token, access.authority):
            kubernetes("apply", "--namespace=alice", f"--filename={EXAMPLES / 'hpa.yaml'}")
            labels = "cluster%3Dhpc1%2Cpartition%3Ddebug"
            eventually(lambda: number_of(kubernetes, "alice", labels) in {12, 13})
            eventually(
                lambda: kubernetes.get(*target)["spec"]["replicas"] == 3,
                120,
                what="three replicas for 12 jobs",
            )
    finally:
        login.run("scancel", "--user=alice", user="alice", check=False)
        kubernetes("delete", "hpa,deployment", "helpers", "--namespace=alice", "--ignore-not-found")


@pytest.mark.usefixtures("prometheus")
def test_the_status_of_a_slurmcluster_shows_what_is_free_in_each_partition(bed: Bed, login: Host) -> None:
    controller, kubernetes = bed.host("ctl"), Kubernetes(bed)

    def partition(name: str) -> dict[str, Any]:
        status = kubernetes.get("slurmcluster", "hpc1")["status"]
        found: dict[str, Any] = {one["name"]: one for one in status["partitions"]}[name]
        return found

    total = partition("debug")["total"]
    assert total == {"nodes": 3, "cpus": 12, "memMb": 12000, "gpus": 2}
    eventually(lambda: partition("debug")["free"] == total)
    assert partition("long")["limits"].get("maxTimeS") is None
    assert partition("debug")["limits"]["maxTimeS"] == 1800
    controller.run("scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    try:
        drained = eventually(lambda: (seen := partition("GPU_big"))["nodes"] == {"drained": 1} and seen)
        assert drained["free"] == {"nodes": 0, "cpus": 0, "memMb": 0, "gpus": 0}
        assert "test" in drained["reason"]
    finally:
        controller.run("scontrol", "update", "nodename=n3", "state=resume")
    eventually(lambda: partition("GPU_big")["free"]["gpus"] == 2)
    options = ("-o/dev/null", "-D/tmp", "-n2", "--mem=100")
    login.run("sbatch", *options, user="alice", stdin="#!/bin/sh\nexec sleep 300\n")
    eventually(lambda: partition("debug")["free"]["cpus"] == total["cpus"] - 2)
    login.run("scancel", "--user=alice", user="alice")
