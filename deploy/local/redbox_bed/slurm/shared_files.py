"""The files that all hosts of a cluster share, written once into its overlay, and the keys that are in them.

The ssh key and the login hosts' own keys are made once for each bed and kept with its state, so that a client
outside knows whom it speaks to. Accounts are part of the root (users.py).
"""

from __future__ import annotations

import io
import os
import secrets
import tarfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from redbox_bed.core.places import Places
from redbox_bed.core.plan import USERS, Plan, SlurmCluster
from redbox_bed.core.whole_files import write_whole
from redbox_bed.hosts.network import hosts_file
from redbox_bed.hosts.overlay_keeper import Keeper
from redbox_bed.slurm import conf

SSH_PORT = 22


@dataclass(frozen=True)
class File:
    """A file to be written; its group has the owner's name."""

    path: str
    content: str | bytes
    mode: int = 0o644
    owner: str = "root"


def common_files(plan: Plan) -> list[File]:
    return [File("/etc/hosts", hosts_file(plan)), File("/etc/resolv.conf", "")]


def cluster_files(cluster: SlurmCluster, cgroup_plugin: str, host_key: bytes) -> list[File]:
    """Slurm's configuration and secrets; one munge and one JWT key for each cluster."""
    files = [
        File("/etc/slurm/slurm.conf", conf.slurm_conf(cluster)),
        File("/etc/slurm/gres.conf", conf.gres_conf(cluster)),
        File("/etc/slurm/mpi.conf", conf.mpi_conf()),
        File("/etc/slurm/cgroup.conf", conf.cgroup_conf(cgroup_plugin)),
        File(conf.JWT_KEY, secrets.token_bytes(32), 0o600, "slurm"),
        File("/etc/munge/munge.key", secrets.token_bytes(1024), 0o400, "munge"),
        File("/etc/ssh/ssh_host_ed25519_key", host_key, 0o600),
    ]
    if cluster.accounting:
        files.append(File("/etc/slurm/slurmdbd.conf", conf.slurmdbd_conf(cluster), 0o600, "slurm"))
    return files


def archive(files: list[File]) -> bytes:
    """The files as a tar whose owners are names, so that the tree's own /etc/passwd decides their numbers."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for file in files:
            content = file.content.encode() if isinstance(file.content, str) else file.content
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.size, entry.mode, entry.uname, entry.gname = len(content), file.mode, file.owner, file.owner
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def ensure_tree(plan: Plan, places: Places, keeper: Keeper, tree: str, cgroup_plugin: str) -> None:
    """Write a tree's files, unless that was done: later changes to them are the user's, and stay."""
    done = places.tree(tree) / "configured"
    if done.exists():
        return
    files = common_files(plan)
    for cluster in plan.clusters:
        if cluster.name == tree:
            key, _ = host_key(places, cluster.login)
            files += cluster_files(cluster, cgroup_plugin, key)
            make_homes(places, cluster.name)
    keeper.in_tree(tree, "tar", "-xp", "-C", "/", stdin=archive(files))
    done.touch()


def make_homes(places: Places, cluster: str) -> None:
    """Home folders, which accept the bed's ssh key."""
    _, public = user_key(places)
    for user in USERS:
        home = places.home(cluster) / user.name
        ssh = home / ".ssh"
        ssh.mkdir(parents=True, exist_ok=True)
        (ssh / "authorized_keys").write_text(public + "\n")
        for path, mode in ((home, 0o700), (ssh, 0o700), (ssh / "authorized_keys", 0o600)):
            os.chown(path, user.uid, user.uid)
            path.chmod(mode)


def user_key(places: Places) -> tuple[bytes, str]:
    """The key that logs in as any user."""
    return _key(places.ssh / "id_ed25519")


def host_key(places: Places, login: str) -> tuple[bytes, str]:
    return _key(places.ssh / f"host_{login}_ed25519")


def write_known_hosts(plan: Plan, places: Places) -> None:
    """Each login host under the loopback port that leads to it, and under its own name and address."""
    lines = []
    for cluster in plan.clusters:
        _, public = host_key(places, cluster.login)
        names = [cluster.login, plan.host(cluster.login).address]
        names += [
            f"[127.0.0.1]:{forward.port}"
            for forward in plan.forwards
            if forward.host == cluster.login and forward.target_port == SSH_PORT
        ]
        lines.append(f"{','.join(names)} {public}\n")
    places.ssh.mkdir(parents=True, exist_ok=True)
    (places.ssh / "known_hosts").write_text("".join(lines))


def _key(path: Path) -> tuple[bytes, str]:
    """The private key in OpenSSH's form and the public one as a line; made when missing."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        write_whole(path, made, 0o600)
    private = path.read_bytes()
    public = (
        load_ssh_private_key(private, None).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    )
    path.with_suffix(".pub").write_bytes(public + b"\n")
    return private, public.decode()
