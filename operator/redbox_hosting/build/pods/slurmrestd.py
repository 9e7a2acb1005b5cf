"""Deployments of slurmrestd behind its TLS front: the operator's own, and those for users.

slurmrestd runs as nobody, has no key of Slurm and serves a Unix socket. It asks slurmctld as the user of the
token in each request.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from redbox_hosting.api import names
from redbox_hosting.build.pods.parts import (
    MODE_KEYS,
    OPERATOR_IN_TLS,
    Manifest,
    SlurmCell,
    config_source,
    container,
    daemon_container,
    labels,
    memory_volume,
    metadata,
    mount,
    pod_spec,
    restricted_pod,
    selector,
    tcp_probe,
    with_user_template,
)
from redbox_shared.hosted_settings.lines import pairs_of

SOCKET = "/run/slurmrestd/slurmrestd.sock"
ENVIRONMENT = {
    "SLURM_JWT": "daemon",
    "SLURMRESTD_SECURITY": "disable_unshare_sysv,disable_unshare_files",
    "MALLOC_ARENA_MAX": "1",
}
READ_AT_START = ("cluster", "slurmctld", "auth", "accountingstorage")
STORES = "AccountingStorageType=accounting_storage/slurmdbd"


@dataclass(frozen=True, slots=True)
class RestDeployment:
    """One Deployment of slurmrestd; `asks_clients`: only for the operator's certificate."""

    name: str
    role: str
    instance: str
    owner: Manifest
    port: int
    replicas: int = 1
    asks_clients: bool = False
    has_accounting: bool = False
    connection: str = ""
    """The digest of what slurmrestd reads of slurm.conf when it starts: another one replaces the pod."""
    account: str = ""
    """Its ServiceAccount; empty: that of the role."""
    tls_secret: str = ""
    """Of the user; empty: the operator's."""
    container: Manifest = field(default_factory=dict)
    template: Manifest = field(default_factory=dict)


def control(cell: SlurmCell, slurm_conf: str) -> RestDeployment:
    """The operator's own, of a Controller. slurmrestd ends if it is to serve accounting without slurmdbd."""
    return RestDeployment(
        name=names.control_name(cell.name),
        role="control",
        instance=cell.name,
        owner=cell.owner,
        port=names.PORT_CONTROL,
        asks_clients=True,
        has_accounting=STORES in slurm_conf,
        connection=connection_digest(slurm_conf),
    )


def connection_digest(slurm_conf: str) -> str:
    """Of the lines that say how slurmctld and slurmdbd are reached."""
    lines = [line for line in slurm_conf.splitlines() if _is_read_at_start(line)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _is_read_at_start(line: str) -> bool:
    pairs = pairs_of(line)
    return bool(pairs) and pairs[0][0].lower().startswith(READ_AT_START)


def rest_deployment(cell: SlurmCell, asked: RestDeployment) -> Manifest:
    """Slurmrestd and the TLS front in one pod."""
    own = labels(cell.name, asked.role, asked.instance)
    plugins = "slurmctld,slurmdbd" if asked.has_accounting else "slurmctld"
    run = mount("run", "/run/slurmrestd")
    slurmrestd = container(
        "slurmrestd",
        cell.image,
        command=["/usr/sbin/slurmrestd"],
        args=["-a", "rest_auth/jwt", "-s", plugins, f"unix:{SOCKET}"],
        env=[{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        volumeMounts=[mount("etc", "/etc/slurm", read_only=True), run, mount("tmp", "/tmp")],  # noqa: S108
    )
    asks = ["--ask-clients", "--client", OPERATOR_IN_TLS] if asked.asks_clients else []
    front = container(
        "front",
        cell.image,
        args=["front", "--port", str(asked.port), "--target", SOCKET, *asks],
        ports=[{"name": "https", "containerPort": asked.port}],
        readinessProbe=tcp_probe(asked.port),
        volumeMounts=[run, mount("tls", "/etc/redbox/tls", read_only=True)],
    )
    spec = pod_spec(
        [daemon_container(slurmrestd, asked.container), front],
        [
            {"name": "etc", "projected": {"defaultMode": 0o444, "sources": [config_source(cell)]}},
            memory_volume("run"),
            {"name": "tmp", "emptyDir": {}},
            {
                "name": "tls",
                "secret": {
                    "secretName": asked.tls_secret or names.tls_name(asked.name),
                    "defaultMode": MODE_KEYS,
                },
            },
        ],
        security=restricted_pod(names.NOBODY_UID),
        serviceAccountName=asked.account or names.account_name(cell.name, asked.role),
    )
    about: Manifest = {"labels": own}
    if asked.connection:
        about["annotations"] = {names.ANNOTATION_CONNECTION: asked.connection}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(asked.name, cell.namespace, own, asked.owner),
        "spec": {
            "replicas": asked.replicas,
            "selector": {"matchLabels": selector(cell.name, asked.role, asked.instance)},
            "template": with_user_template(cell, {"metadata": about, "spec": spec}, asked.template),
        },
    }
