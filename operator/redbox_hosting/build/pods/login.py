"""The StatefulSet of a LoginSet: sshd, and beside it the daemon that alone has the cluster's key.

A Deployment's pods could not run srun, which is called back by a host name that is its pod's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.daemons import LoginSetSpec
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.pods.parts import (
    MODE_KEYS,
    MODE_OWNER,
    SECURE,
    Manifest,
    SlurmCell,
    config_source,
    container,
    daemon_container,
    dns,
    homes_volume,
    key_sources,
    labels,
    memory_volume,
    metadata,
    mount,
    owner_reference,
    pod_spec,
    selector,
    tcp_probe,
    users_volume,
    with_user_template,
)

ROLE = "login"
HOST_KEY = "ssh_host_ed25519_key"
SSHD_CONFIG, TRUSTED_CA, KNOWN_HOSTS = "sshd_config", "trusted_user_ca_keys", "known_hosts"
FOLDER, KEYS_OF_USERS, KEYS_OF_ROOT = "/etc/redbox/ssh", "/etc/redbox/authorized-keys", "root"
AUTHORITIES = "/etc/redbox/user-ca"
CAPABILITIES = ("AUDIT_WRITE", "CHOWN", "SETGID", "SETUID", "SYS_CHROOT")
"""To become the user who logs in, and to give it a terminal."""
SSHD = f"""\
Port {names.PORT_SSHD}
HostKey /run/redbox/ssh/{HOST_KEY}
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile .ssh/authorized_keys
AuthorizedKeysCommand /bin/cat {KEYS_OF_USERS}/%u
AuthorizedKeysCommandUser nobody
AcceptEnv LANG LC_*
X11Forwarding no
PrintMotd no
PerSourcePenalties no
Subsystem sftp internal-sftp"""
"""Without penalties: behind a load balancer all users may come from one address, and one who fails to log in
would keep the others out."""


@dataclass(frozen=True, slots=True)
class LoginCell:
    """A LoginSet as its builders see it."""

    name: str
    uid: str
    spec: LoginSetSpec

    @property
    def owner(self) -> Manifest:
        return owner_reference("LoginSet", self.name, self.uid)


def login_files(spec: LoginSetSpec) -> dict[str, str]:
    """Of the ConfigMap. The first value of a keyword stands: the operator's are before the user's."""
    given = {
        KEYS_OF_ROOT: spec.root_ssh_authorized_keys,
        TRUSTED_CA: spec.redbox.trusted_user_ca_keys,
    }
    files = {name: text for name, text in given.items() if text}
    lines = [SSHD, f"PermitRootLogin {'prohibit-password' if KEYS_OF_ROOT in files else 'no'}"]
    if TRUSTED_CA in files:
        lines.append(f"TrustedUserCAKeys {FOLDER}/{TRUSTED_CA}")
    if spec.extra_sshd_config:
        lines.append(spec.extra_sshd_config)
    if KEYS_OF_ROOT in files:
        lines += ["Match User root", f"AuthorizedKeysCommand /bin/cat {FOLDER}/{KEYS_OF_ROOT}"]
        lines.append("TrustedUserCAKeys none")
    if authorities := spec.redbox.trusted_user_ca_keys_ref:
        lines.append(f"Match Group {authorities.group}" if authorities.group else "Match All")
        lines.append(f"TrustedUserCAKeys {AUTHORITIES}/{TRUSTED_CA}")
    return {SSHD_CONFIG: "\n".join(lines) + "\n", **files}


def known_hosts(login: str, namespace: str, public_key: bytes) -> str:
    """The line for its Service, for the known_hosts of clients."""
    host = f"{names.login_name(login)}.{namespace}"
    return f"{host}.svc,{host}.svc.cluster.local,{host} {public_key.decode().strip()}\n"


def sshd_set(cell: SlurmCell, login: LoginCell, digest: str) -> Manifest:
    """`digest`: of sshd's configuration, which it reads when it starts."""
    name, spec = names.login_name(login.name), login.spec
    own = labels(cell.name, ROLE, login.name)
    users, users_mount = users_volume(cell)
    homes, homes_mount = homes_volume(cell)
    run, slurm = mount("run", "/run"), mount("slurm", "/run/slurm")
    etc = mount("etc", "/etc/slurm", read_only=True)
    sshd = container(
        ROLE,
        cell.image,
        args=[ROLE],
        ports=[{"name": "ssh", "containerPort": names.PORT_SSHD}],
        readinessProbe=tcp_probe(names.PORT_SSHD),
        volumeMounts=[
            etc,
            run,
            slurm,
            mount("tmp", "/tmp"),  # noqa: S108 (a path in the pod)
            mount("ssh", FOLDER, read_only=True),
            mount("host-key", "/etc/redbox/host-key", read_only=True),
            *([mount("authorized-keys", KEYS_OF_USERS, read_only=True)] if _keys_of_users(spec) else []),
            *([mount("user-ca", AUTHORITIES, read_only=True)] if _authorities(spec) else []),
            *users_mount,
            *homes_mount,
        ],
    )
    sshd["securityContext"] = {**SECURE, "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)}}
    sshd["terminationMessagePolicy"] = "FallbackToLogsOnError"
    made = pod_spec(
        [daemon_container(sshd, spec.login), _sack(cell, [slurm, *users_mount])],
        [
            {"name": "etc", "projected": {"defaultMode": 0o444, "sources": [config_source(cell)]}},
            {
                "name": "keys",
                "projected": {
                    "defaultMode": MODE_KEYS,
                    "sources": [config_source(cell), *key_sources(cell, jwt=False)],
                },
            },
            {"name": "host-key", "secret": {"secretName": name, "defaultMode": MODE_OWNER}},
            {"name": "ssh", "configMap": {"name": name}},
            memory_volume("run"),
            memory_volume("slurm"),
            memory_volume("sack-run"),
            {"name": "tmp", "emptyDir": {}},
            *_keys_of_users(spec),
            *_authorities(spec),
            *users,
            *homes,
        ],
        # No fsGroup: by it the kubelet gives all files of a claim, such as users' homes, to that group.
        security={"seccompProfile": {"type": "RuntimeDefault"}},
        serviceAccountName=name,
        dnsConfig=dns(cell),
    )
    about = {"labels": own, "annotations": {names.ANNOTATION_CONFIG_HASH: digest}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(name, cell.namespace, own, login.owner),
        "spec": {
            "replicas": 1 if spec.replicas is None else spec.replicas,
            "podManagementPolicy": "Parallel",
            "serviceName": names.logins_name(cell.name),
            "selector": {"matchLabels": selector(cell.name, ROLE, login.name)},
            "template": with_user_template(cell, {"metadata": about, "spec": made}, spec.template),
        },
    }


def _keys_of_users(spec: LoginSetSpec) -> list[Manifest]:
    given = spec.redbox.authorized_keys_ref
    return [{"name": "authorized-keys", "configMap": {"name": given.name, "optional": True}}] if given else []


def _authorities(spec: LoginSetSpec) -> list[Manifest]:
    given = spec.redbox.trusted_user_ca_keys_ref
    return [{"name": "user-ca", "configMap": {"name": given.name}}] if given else []


def _sack(cell: SlurmCell, mounts: list[Manifest]) -> Manifest:
    """It signs for each process that asks, as the user that the kernel says it is of.

    By group 0, which no user has, it reads the keys and makes its socket where sshd's container lets it.
    """
    keys = mount("keys", "/etc/slurm", read_only=True)
    security = {"runAsNonRoot": True, "runAsUser": names.SLURM_UID, "runAsGroup": 0}
    own: Manifest = (
        {"args": ["sack", "--cluster", cell.spec.name_in_slurm(cell.namespace, cell.name)]}
        if cell.release is SlurmRelease.R24_11
        else {
            "args": ["sackd", "--", "-f", "/etc/slurm/slurm.conf"],
            "env": [{"name": "RUNTIME_DIRECTORY", "value": "/run/slurm"}],
        }
    )
    run = mount("sack-run", "/run")
    made = container("sack", cell.image, volumeMounts=[keys, run, *mounts], **own)
    return {**made, "securityContext": {**SECURE, **security}}
