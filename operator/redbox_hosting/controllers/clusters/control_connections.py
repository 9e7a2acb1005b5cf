"""The operator's clients of `<controller>-control`, replaced when their address or keys change."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from redbox_hosting.api import names
from redbox_hosting.build.pods.parts import OPERATOR_IN_TLS
from redbox_hosting.controllers.clusters.certificates import (
    CERTIFICATE_LIFE,
    RENEWED_AT,
    ClusterAuthority,
    client_context,
)
from redbox_hosting.controllers.clusters.keys import signed_token
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.supervisor_feed import SupervisorAddress
from redbox_kube.api.informer import Place

SLURM_USER = "slurm"


@dataclass
class _Connection:
    """One cluster's client: from what it was made, and until when its certificate serves."""

    made_from: tuple[object, ...]
    ends: datetime
    client: SlurmrestdClient
    tls: ssl.SSLContext
    keys: list[bytes]
    """The first signs. While slurmctld reads another one, either may be the right one."""


@dataclass
class ControlConnections:
    """By the place of the Controller."""

    context: HostingContext
    _connections: dict[Place, _Connection] = field(default_factory=dict)

    def client_of(self, place: Place) -> SlurmrestdClient | None:
        connection = self._connections.get(place)
        return connection.client if connection else None

    def tls_of(self, place: Place) -> ssl.SSLContext | None:
        """For the other endpoints of the cluster."""
        connection = self._connections.get(place)
        return connection.tls if connection else None

    def supervise(self, place: Place, address: str) -> None:
        """The supervisor in slurmctld's pod at this address; none while the pod has none."""
        tls, supervisor = self.tls_of(place), None
        if address and tls:
            endpoint = f"https://{host_of(address)}:{names.PORT_SUPERVISOR}"
            supervisor = SupervisorAddress(endpoint, tls, f"{names.controller_name(place[1])}.{place[0]}.svc")
        self.context.connections.supervise(place, supervisor)

    def connect(
        self, place: Place, address: str, authority: ClusterAuthority, keys: tuple[bytes, ...]
    ) -> None:
        """With a certificate of its own, and a new token for each request, signed with one of `keys`."""
        now = self.context.clock()
        made_from = (address, authority.trusted, keys)
        before = self._connections.get(place)
        if not address or (before and before.made_from == made_from and now < before.ends):
            return
        in_turn = list(keys)
        if before and before.keys[0] in in_turn:
            _prefer(in_turn, before.keys[0])

        async def token() -> str:
            return signed_token(in_turn[0], SLURM_USER, self.context.clock())

        tls = client_context(authority.issue(OPERATOR_IN_TLS, (), now))
        # By address: the operator's own pod may have no names of Services.
        client = SlurmrestdClient(
            f"https://{host_of(address)}:{names.PORT_CONTROL}",
            token=token,
            tls=tls,
            server_name=f"{names.control_name(place[1])}.{place[0]}.svc",
        )
        ends = now + timedelta(seconds=CERTIFICATE_LIFE.total_seconds() * RENEWED_AT)
        self._connections[place] = _Connection(made_from, ends, client, tls, in_turn)
        self.context.connections.connect(place, client)

    def token_refused(self, place: Place) -> None:
        """The next token is signed with another key, if there is one."""
        if (connection := self._connections.get(place)) is not None:
            _prefer(connection.keys, connection.keys[-1])

    def disconnect(self, place: Place, why: str) -> None:
        if self._connections.pop(place, None) is not None:
            self.context.connections.disconnect(place, why)
            self.context.connections.supervise(place, None)


def _prefer(keys: list[bytes], key: bytes) -> None:
    keys.remove(key)
    keys.insert(0, key)


def host_of(address: str) -> str:
    """In a URL."""
    return f"[{address}]" if ":" in address else address
