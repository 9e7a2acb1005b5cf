"""The clusters' slurmrestd, as the controllers ask it: made by the controller of Controllers, used by all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_hosting.slurm.supervisor_feed import SupervisorAddress
from redbox_kube.api.informer import Place

NOT_YET = "its Controller has not been reconciled yet"


@dataclass
class SlurmConnections:
    """By the place of the Controller."""

    _clients: dict[Place, SlurmrestdClient] = field(default_factory=dict)
    _why_not: dict[Place, str] = field(default_factory=dict)
    _supervisors: dict[Place, SupervisorAddress] = field(default_factory=dict)
    _followers: list[Callable[[Place], None]] = field(default_factory=list)

    def slurm_of(self, namespace: str, controller: str) -> SlurmrestdClient:
        """The client of this cluster; SlurmUnknown with the reason if there is none."""
        place = (namespace, controller)
        client = self._clients.get(place)
        if client is None:
            raise SlurmUnknown(
                f"the Slurm of {controller} cannot be asked: {self._why_not.get(place, NOT_YET)}"
            )
        return client

    def connect(self, place: Place, client: SlurmrestdClient) -> None:
        """Replace the client of a cluster, as after its certificates were renewed."""
        self._why_not.pop(place, None)
        self._clients[place] = client
        self.wake(place)

    def disconnect(self, place: Place, why: str) -> None:
        self._why_not[place] = why
        if self._clients.pop(place, None) is not None:
            self.wake(place)

    def supervise(self, place: Place, supervisor: SupervisorAddress | None) -> None:
        """Where slurmctld's pod tells that Slurm has changed; None where there is no such pod."""
        if supervisor is None:
            self._supervisors.pop(place, None)
        else:
            self._supervisors[place] = supervisor

    def supervisor_of(self, place: Place) -> SupervisorAddress | None:
        return self._supervisors.get(place)

    def follow(self, notify: Callable[[Place], None]) -> None:
        """`notify` is called with a Controller's place when its Slurm can be asked, or has something new."""
        self._followers.append(notify)

    def wake(self, place: Place) -> None:
        for notify in self._followers:
            notify(place)
