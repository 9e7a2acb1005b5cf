"""A user with nothing but the role `edit` in a namespace, and a red-box of that user's own in it.

The bed has no DNS for pods, so Service, API server and login node are named by their addresses. The volume of
the journal is what a StorageClass would make.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.delivery import Helm, chart_values
from redbox_bed.hosts.host import Host
from redbox_bed.slurm.daemons import SSHD
from tests.e2e.harness.kubernetes import Kubernetes

NAMESPACE = "own"
ACCOUNT = "alice"
NAME = "hpc1"
POD = f"redbox-{NAME}-0"
KEY = "hpc1-key"
VOLUME = "/srv/redbox-own"
KUBE_NODE = "k1"


@dataclass(frozen=True)
class PersonalUser:
    """That user's shell, and the bed beside it."""

    bed: Bed
    folder: Path
    admin: Kubernetes

    @property
    def login(self) -> Host:
        return self.bed.host("login")

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.bed.places.state / 'bin'}:{os.environ['PATH']}"
        return os.environ | {
            "PATH": path,
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "HOME": str(self.folder),
        }

    def types(self, text: str, *, within_s: float = 200) -> str:
        """Type it into a shell in a folder with the checkout's `deploy`; returns what is printed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def endpoint(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.types(f"kubectl get slurmendpoint {NAME} --output=json"))
        return found

    def condition(self, kind: str) -> tuple[str, str]:
        for one in self.endpoint().get("status", {}).get("conditions", []):
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "", ""

    def values(self) -> dict[str, Any]:
        """What the bed needs beside the page's values."""
        api = json.loads(self.admin("get", "service", "kubernetes", "--namespace=default", "--output=json"))
        address: str = api["spec"]["clusterIP"]
        own = f"{address.rpartition('.')[0]}.178"
        images = chart_values({"metadata": {"name": "x"}, "spec": {}}, registry_of(self.bed), "")["images"]
        return {
            "images": images,
            "ssh": {"host": self.login.spec.address, "user": ACCOUNT, "secret": KEY},
            "apiServer": f"https://{address}",
            "service": {"clusterIP": own},
            "endpoint": f"https://{own}:8443",
            "journal": {"storageClass": NAMESPACE},
            "settings": {"exec": {"enabled": True}},
        }

    def kill_redbox(self) -> None:
        """Kill -9 in the middle of whatever it does; the kubelet starts it again."""
        for node in ("k1", "k2"):
            self.bed.host(node).run("sh", "-c", "kill -9 $(pgrep -f '[r]edbox serve')", check=False)

    def kill_agents(self) -> None:
        self.login.run("sh", "-c", "pkill -9 -f '[r]edbox-agent'", check=False)

    def power_off_login_node(self) -> None:
        """As a reboot begins: sshd and the users' processes end at once, and what only memory had is gone."""
        self.login.kill(SSHD.name)
        ends = f"pkill -9 sshd; pkill -9 -u {ACCOUNT}; rm -rf /run/user/* /tmp/* /tmp/.[!.]*"
        self.login.run("sh", "-c", ends, check=False)

    def power_on_login_node(self) -> None:
        self.login.ensure(SSHD)

    def log(self) -> str:
        return self.types(f"kubectl logs {POD}")

    def delete_pod(self) -> None:
        self.types(f"kubectl delete pod {POD} --wait=false --ignore-not-found")


def registry_of(bed: Bed) -> str:
    values: dict[str, Any] = json.loads(Helm(bed)("get", "values", "red-box", "--output=json"))
    return str(values["images"]["registry"])


def private_key(folder: Path, login: Host) -> None:
    """The page's first step: a key that the account accepts, and the host's key."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "red-box", "-f", str(folder / "red-box.key")],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    public = (folder / "red-box.key.pub").read_text()
    login.run(
        "sh",
        "-c",
        "mkdir -p ~/.ssh && chmod 700 ~/.ssh && cat >>~/.ssh/authorized_keys",
        stdin=public,
        user=ACCOUNT,
    )
    host_key = login.run("ssh-keygen", "-y", "-f", "/etc/ssh/ssh_host_ed25519_key").stdout.strip()
    (folder / "known_hosts").write_text(f"{login.spec.address} {host_key}\n")


@contextmanager
def personal_user(bed: Bed, folder: Path) -> Iterator[PersonalUser]:
    """The namespace, the role in it and a volume; in the end all of it is gone."""
    admin = Kubernetes(bed)
    user = PersonalUser(bed, folder, admin)
    (folder / "deploy").symlink_to(CHECKOUT / "deploy")
    bed.host(KUBE_NODE).run("rm", "-rf", VOLUME)
    bed.host(KUBE_NODE).run("install", "-d", "-m", "0777", VOLUME)
    admin.apply(yaml.safe_dump_all(prepared()))
    token = admin("create", "token", "person", f"--namespace={NAMESPACE}", "--duration=2h").strip()
    config = yaml.safe_load(bed.places.kubeconfig.read_text())
    config["users"] = [{"name": "person", "user": {"token": token}}]
    for context in config["contexts"]:
        context["context"] |= {"user": "person", "namespace": NAMESPACE}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    (folder / "kubeconfig").chmod(0o600)
    private_key(folder, user.login)
    try:
        yield user
    finally:
        admin("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
        admin("delete", "persistentvolume", f"journal-{NAMESPACE}", "--ignore-not-found", "--timeout=60s")
        user.login.run("sed", "-i", "/ red-box$/d", f"/home/{ACCOUNT}/.ssh/authorized_keys")


def prepared() -> list[dict[str, Any]]:
    subject = {"kind": "ServiceAccount", "name": "person", "namespace": NAMESPACE}
    here = {"namespace": NAMESPACE}
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "person", **here}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "person", **here},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [subject],
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"journal-{NAMESPACE}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOncePod"],
                "storageClassName": NAMESPACE,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": VOLUME, "type": "Directory"},
            },
        },
    ]
