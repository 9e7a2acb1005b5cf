"""The StatefulSets of slurmdbd and of MariaDB."""

from __future__ import annotations

from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.daemons import AccountingSpec
from redbox_hosting.build.pods.parts import (
    BACKUP,
    BACKUPS,
    MODE_KEYS,
    Manifest,
    SlurmCell,
    backup_volume,
    container,
    daemon_container,
    key_sources,
    labels,
    memory_volume,
    metadata,
    mount,
    owner_reference,
    pod_spec,
    restricted_pod,
    selector,
    tcp_probe,
    users_volume,
    with_user_template,
)

SLURMDBD, MARIADB = "slurmdbd", "mariadb"
SLURMDBD_CONF = "slurmdbd.conf"
PASSWORD_KEY = "password"  # noqa: S105 (the name of a key)
START_DATABASE = """\
umask 077
data=/var/lib/mysql/data
if ! [ -d "$data" ]; then
  if [ -n "$BACKUP" ]; then
    wanted="$(sed -n 's/^ *"database.sql": "\\([0-9a-f]*\\)".*/\\1/p' "$BACKUP/backup.json" || true)"
    found="$(sha256sum "$BACKUP/database.sql" | cut -c -64)"
    if [ -z "$wanted" ] || [ "$wanted" != "$found" ]; then
      echo "$BACKUP/database.sql is not as it was written: use another backup" >&2
      exit 1
    fi
  fi
  rm -rf "$data.new"
  mkdir "$data.new"
  mariadb-install-db --auth-root-authentication-method=socket --auth-root-socket-user="$(id -un)" \
    --skip-test-db --datadir="$data.new" >/dev/null
  if [ -n "$BACKUP" ]; then
    socket=/run/mysqld/restore.sock
    mariadbd --datadir="$data.new" --skip-networking --socket=$socket &
    until mariadb-admin --socket=$socket ping >/dev/null 2>&1; do kill -0 $!; sleep 0.2; done
    mariadb --socket=$socket --execute "CREATE DATABASE slurm_acct_db"
    mariadb --socket=$socket slurm_acct_db <"$BACKUP/database.sql"
    mariadb-admin --socket=$socket shutdown
    wait $!
  fi
  mv "$data.new" "$data"
fi
printf "CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@'%%' IDENTIFIED BY '%s';
ALTER USER slurm@'%%' IDENTIFIED BY '%s';
GRANT ALL ON slurm_acct_db.* TO slurm@'%%';
" "$PASSWORD" "$PASSWORD" >/run/mysqld/init.sql
exec mariadbd --datadir="$data" --init-file=/run/mysqld/init.sql "--bind-address=*" --skip-networking=OFF \
  --innodb-lock-wait-timeout=900 --loose-innodb-snapshot-isolation=OFF
"""
"""A pod that ends in the middle of the installation, or of a restore, leaves no half database. MariaDB's root
imports a dump, so it has to be the one of the backup's manifest. The operator makes the password of letters
and digits; printf is the shell's own, so it is no argument of a process. Debian's configuration listens on
loopback only. slurmdbd asks for the last two: with the isolation that newer releases of MariaDB begin with,
it ends when two writes meet."""


@dataclass(frozen=True, slots=True)
class AccountingCell:
    """An Accounting as its builders see it."""

    name: str
    uid: str
    spec: AccountingSpec
    database_image: str
    config_digest: str = ""
    keys_digest: str = ""
    """Of the slurm.jwks that slurmdbd is to start with."""

    @property
    def owner(self) -> Manifest:
        return owner_reference("Accounting", self.name, self.uid)


def slurmdbd_set(cell: SlurmCell, accounting: AccountingCell) -> Manifest:
    """A StatefulSet of one. It is replaced when its configuration changes: slurmdbd re-reads no keys."""
    name = names.accounting_name(accounting.name)
    own = labels(cell.name, SLURMDBD, accounting.name)
    users, users_mount = users_volume(cell)
    daemon = container(
        SLURMDBD,
        cell.image,
        args=[SLURMDBD],
        ports=[{"name": SLURMDBD, "containerPort": names.PORT_SLURMDBD}],
        # slurmdbd has no HTTP, in no release.
        readinessProbe=tcp_probe(names.PORT_SLURMDBD),
        volumeMounts=[
            mount("etc", "/etc/slurm", read_only=True),
            mount("run", "/run"),
            mount("tmp", "/tmp"),  # noqa: S108 (ArchiveDir's default must be writable)
            *users_mount,
        ],
    )
    conf = {"name": name, "items": [{"key": SLURMDBD_CONF, "path": SLURMDBD_CONF}]}
    sources = [{"secret": conf}, *key_sources(cell, jwt=True)]
    spec = pod_spec(
        [daemon_container(daemon, accounting.spec.slurmdbd)],
        [
            {"name": "etc", "projected": {"defaultMode": MODE_KEYS, "sources": sources}},
            memory_volume("run"),
            {"name": "tmp", "emptyDir": {}},
            *users,
        ],
        security=restricted_pod(names.SLURM_UID),
        serviceAccountName=name,
    )
    own_template = {
        "metadata": {"labels": own, "annotations": {names.ANNOTATION_CONFIG_HASH: accounting.config_digest}},
        "spec": spec,
    }
    about = metadata(name, cell.namespace, own, accounting.owner)
    if accounting.keys_digest:
        about["annotations"] = {names.ANNOTATION_KEYS: accounting.keys_digest}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": about,
        "spec": {
            "replicas": 1,
            # In order, a pod that never became ready would not be replaced by a corrected one.
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": selector(cell.name, SLURMDBD, accounting.name)},
            "template": with_user_template(cell, own_template, accounting.spec.template),
        },
    }


def mariadb_set(cell: SlurmCell, accounting: AccountingCell) -> Manifest:
    """A StatefulSet of one, whose claim is kept."""
    name = names.database_name(accounting.name)
    own = labels(cell.name, MARIADB, accounting.name)
    password = {"secretKeyRef": {"name": name, "key": PASSWORD_KEY}}
    source, volumes = cell.spec.redbox.restore, backup_volume(cell)
    daemon = container(
        MARIADB,
        accounting.spec.redbox.database.image or accounting.database_image,
        command=["/bin/sh", "-ec", START_DATABASE],
        env=[
            {"name": "PASSWORD", "valueFrom": password},
            *([{"name": "BACKUP", "value": f"{BACKUPS}/{source.path}"}] if source else []),
        ],
        ports=[{"name": "mysql", "containerPort": names.PORT_MARIADB}],
        readinessProbe=tcp_probe(names.PORT_MARIADB),
        volumeMounts=[
            mount("data", "/var/lib/mysql"),
            mount("run", "/run/mysqld"),
            mount("tmp", "/tmp"),  # noqa: S108 (a path in the pod)
            *(mount(BACKUP, BACKUPS, read_only=True) for _ in volumes),
        ],
    )
    spec = pod_spec(
        [daemon],
        [memory_volume("run"), {"name": "tmp", "emptyDir": {}}, *volumes],
        security=restricted_pod(names.MARIADB_UID, names.MARIADB_GID)
        | ({"supplementalGroups": [names.SLURM_UID]} if source else {}),
        serviceAccountName=name,
        terminationGracePeriodSeconds=120,
    )
    asked = accounting.spec.redbox.database
    claim: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": asked.size}},
    }
    if asked.storage_class_name is not None:
        claim["storageClassName"] = asked.storage_class_name
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(name, cell.namespace, own, accounting.owner),
        "spec": {
            "replicas": 1,
            # In order, a pod that never became ready would not be replaced by a corrected one.
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": selector(cell.name, MARIADB, accounting.name)},
            "template": {"metadata": {"labels": own}, "spec": spec},
            "volumeClaimTemplates": [
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "data"},
                    "spec": claim,
                }
            ],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        },
    }
