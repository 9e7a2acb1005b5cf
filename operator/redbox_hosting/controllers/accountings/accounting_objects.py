"""The objects of an Accounting, as pure builders make them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable
from dataclasses import replace

from redbox_hosting.api import names
from redbox_hosting.api.daemons import AccountingSpec
from redbox_hosting.build.config.releases import release_of
from redbox_hosting.build.pods.accounting import (
    MARIADB,
    PASSWORD_KEY,
    SLURMDBD,
    AccountingCell,
    mariadb_set,
    slurmdbd_set,
)
from redbox_hosting.build.pods.network import (
    daemon_service,
    database_policy,
    service_account,
    shared_slurmdbd_policy,
    updates_policy,
)
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.clusters.cluster_objects import desired
from redbox_kube.api import kinds
from redbox_kube.controller.owned import DesiredObject

OWNED = (kinds.NETWORK_POLICY, kinds.SERVICE, kinds.SERVICE_ACCOUNT, kinds.STATEFUL_SET)
PASSWORD_BYTES = 24


def new_password() -> dict[str, bytes]:
    """Letters and digits: it stands in an SQL statement."""
    return {PASSWORD_KEY: secrets.token_hex(PASSWORD_BYTES).encode()}


def slurmdbd_cell(cell: SlurmCell, spec: AccountingSpec) -> SlurmCell:
    """The cluster that slurmdbd belongs to, with the Accounting's image and keys where it names some."""
    given = {
        "slurm_key_ref": spec.slurm_key_ref,
        "jwt_key_ref": spec.jwt_key,
        "jwks_key_ref": spec.jwks_key_ref,
    }
    keys = {name: ref for name, ref in given.items() if ref is not None}
    image = str(spec.slurmdbd.get("image") or cell.image)
    return replace(cell, spec=cell.spec.model_copy(update=keys), image=image, release=release_of(image))


def digest_of(conf: str, keys: Iterable[bytes]) -> str:
    """Of all that slurmdbd reads at its start. The keys keep it from being a digest of a password alone."""
    made = hashlib.sha256(conf.encode())
    for key in keys:
        made.update(hashlib.sha256(key).digest())
    return made.hexdigest()[:16]


def database_objects(cell: SlurmCell, accounting: AccountingCell) -> list[DesiredObject]:
    """MariaDB."""
    name = names.database_name(accounting.name)
    account = service_account(cell, MARIADB, name)
    service = daemon_service(
        cell, MARIADB, accounting.name, name=name, port=names.PORT_MARIADB, owner=accounting.owner
    )
    policy = database_policy(cell, accounting.name, accounting.owner)
    return [desired(manifest) for manifest in (account, service, policy, mariadb_set(cell, accounting))]


def slurmdbd_objects(
    cell: SlurmCell, accounting: AccountingCell, clusters: Collection[str]
) -> list[DesiredObject]:
    """slurmdbd, which the Controllers `clusters` report to."""
    name = names.accounting_name(accounting.name)
    account = service_account(cell, SLURMDBD, name)
    service = daemon_service(
        cell,
        SLURMDBD,
        accounting.name,
        name=name,
        port=names.PORT_SLURMDBD,
        owner=accounting.owner,
        user=accounting.spec.service,
    )
    manifests = [account, service, slurmdbd_set(cell, accounting)]
    if others := set(clusters) - {cell.name}:
        policies = (shared_slurmdbd_policy, updates_policy)
        manifests += [policy(cell, accounting.name, others, accounting.owner) for policy in policies]
    return [desired(manifest) for manifest in manifests]
