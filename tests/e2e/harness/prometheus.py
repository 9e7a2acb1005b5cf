"""A real Prometheus (Debian's package) on this machine, which scrapes both sides of the bed.

It reads red-box as docs/administrators/metrics.md has it, with a token of a service account whose rule has
the role metrics, and the controllers through the API server, with the labels that a PodMonitor gives them.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.plan import SERVICE_PORT
from redbox_bed.delivery import KUBERNETES_NAME, NAMESPACE, SLURM_CLUSTER
from redbox_bed.hosts.host import Host
from tests.deploy.debian_programs import unpacked
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_settings import put_rule_first, settings_changed
from tests.e2e.harness.waiting import eventually
from tests.ports import free_port

MONITORING = "monitoring"
FAMILIES = ("jobs", "nodes", "partitions", "scheduler", "users-accounts")
RULE = {
    "cluster": KUBERNETES_NAME,
    "namespaces": [MONITORING],
    "service_accounts": ["prometheus"],
    "roles": ["metrics"],
}
EVERY = "5s"
"""Also how long a scrape may take: on a busy machine squeue and scontrol take a second."""


@dataclass(frozen=True)
class Prometheus:
    """One that runs; asked as Grafana asks it."""

    address: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of this moment; raises where the expression is wrong."""
        asked = urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = self._get(f"/api/v1/query?{asked}")["result"]
        return found

    def firing(self) -> set[str]:
        alerts = self._get("/api/v1/alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def failing_targets(self) -> dict[str, str]:
        """The last error of each that is not well."""
        active = self._get("/api/v1/targets")["activeTargets"]
        return {target["scrapeUrl"]: target["lastError"] for target in active if target["health"] != "up"}

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
            return found


@contextmanager
def metrics_allowed(login: Host) -> Iterator[None]:
    """red-box serves Slurm's metrics to Prometheus, names of users included, and looks each second."""

    def change(settings: dict[str, Any]) -> None:
        put_rule_first(settings, RULE)
        metrics = {"users_accounts": True, "every_s": 1}
        settings["slurm"] = {**(settings.get("slurm") or {}), "metrics": metrics}

    with settings_changed(login, change):
        yield


@contextmanager
def scraping(bed: Bed, folder: Path, rules: dict[str, Any]) -> Iterator[Prometheus]:
    """Prometheus, once it has scraped everything."""
    kubernetes = Kubernetes(bed)
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(_settings(bed, kubernetes, folder)))
    address = f"127.0.0.1:{free_port()}"
    program = unpacked("prometheus") / "usr/bin/prometheus"
    options = ("--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address={address}")
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([program, *options], cwd=folder, stdout=log, stderr=log)
    prometheus = Prometheus(address)
    try:
        eventually(lambda: _is_ready(prometheus, process, folder), what="a Prometheus that answers")
        try:
            eventually(lambda: prometheus.query("up") and not prometheus.failing_targets())
        except AssertionError as error:
            raise AssertionError(f"not scraped: {prometheus.failing_targets()}") from error
        yield prometheus
    finally:
        process.terminate()
        process.wait(timeout=60)


def _is_ready(prometheus: Prometheus, process: subprocess.Popen[bytes], folder: Path) -> bool:
    assert process.poll() is None, (folder / "prometheus.log").read_text()
    try:
        prometheus.query("vector(1)")
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Access:
    """What a Prometheus in Kubernetes is given to read red-box."""

    token: str
    authority: bytes
    server: str
    """The name in red-box's certificate."""


def access_to_redbox(kubernetes: Kubernetes) -> Access:
    """A token of a service account of its own, for red-box's audience."""
    cluster = json.loads(kubernetes("get", "slurmcluster", SLURM_CLUSTER, "--output=json"))["spec"]
    account = {"name": "prometheus", "namespace": MONITORING}
    kubernetes.apply(
        yaml.safe_dump_all(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MONITORING}},
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
            ]
        )
    )
    asked = (
        "create",
        "token",
        "prometheus",
        f"--namespace={MONITORING}",
        f"--audience={cluster['audience']}",
    )
    server = urllib.parse.urlsplit(cluster["endpoint"]).hostname
    assert server is not None
    return Access(kubernetes(*asked).strip(), base64.b64decode(cluster["caBundle"]), server)


def _settings(bed: Bed, kubernetes: Kubernetes, folder: Path) -> dict[str, Any]:
    access = access_to_redbox(kubernetes)
    (folder / "redbox.token").write_text(access.token)
    (folder / "redbox-ca.crt").write_bytes(access.authority)
    forward = next(one for one in bed.plan.forwards if (one.host, one.target_port) == ("login", SERVICE_PORT))
    redbox = f"127.0.0.1:{forward.port}"
    return {
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                **_redbox("slurm", access),
                "static_configs": [{"targets": list(FAMILIES), "labels": {"cluster": SLURM_CLUSTER}}],
                "relabel_configs": [
                    {
                        "source_labels": ["__address__"],
                        "target_label": "__metrics_path__",
                        "replacement": "/metrics/slurm/$1",
                    },
                    {"source_labels": ["__address__"], "target_label": "family"},
                    {"target_label": "__address__", "replacement": redbox},
                ],
            },
            {
                **_redbox("redbox", access),
                "static_configs": [{"targets": [redbox], "labels": {"cluster": SLURM_CLUSTER}}],
            },
            *(_controller(kubernetes, folder, name) for name in ("operator", "resourced")),
        ],
    }


def _redbox(job: str, access: Access) -> dict[str, Any]:
    return {
        "job_name": job,
        "scheme": "https",
        "authorization": {"credentials_file": "redbox.token"},
        "tls_config": {"ca_file": "redbox-ca.crt", "server_name": access.server},
    }


def _controller(kubernetes: Kubernetes, folder: Path, name: str) -> dict[str, Any]:
    """The active replica's pod, by the API server's proxy, as the cluster's administrator."""
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    user, server = config["users"][0]["user"], config["clusters"][0]["cluster"]
    for file, content in {
        "ca.crt": server["certificate-authority-data"],
        "admin.crt": user["client-certificate-data"],
        "admin.key": user["client-key-data"],
    }.items():
        (folder / file).write_bytes(base64.b64decode(content))
        (folder / file).chmod(0o600)
    selector = f"--selector=app.kubernetes.io/name=redbox-{name}"
    pods = kubernetes(
        "get", "pods", f"--namespace={NAMESPACE}", selector, "--output=jsonpath={.items[*].metadata.name}"
    )
    return {
        "job_name": name,
        "scheme": "https",
        "metrics_path": f"/api/v1/namespaces/{NAMESPACE}/pods/{pods.split()[0]}:8080/proxy/metrics",
        "tls_config": {"ca_file": "ca.crt", "cert_file": "admin.crt", "key_file": "admin.key"},
        "static_configs": [
            {
                "targets": [server["server"].removeprefix("https://")],
                "labels": {"namespace": NAMESPACE, "container": name},
            }
        ],
    }
