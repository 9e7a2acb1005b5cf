"""A bed by its plan, up or not: its places, its hosts, and what runs beside them.

Bringing it up and taking it down is lifecycle.py's.
"""

from __future__ import annotations

from functools import cached_property

from redbox_bed.core.errors import NotPossibleError
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Options, Plan, make_plan
from redbox_bed.hosts.cgroups import Cgroups
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.overlay_keeper import Keeper
from redbox_bed.slurm.slurm_cluster import Slurm


class Bed:
    """Cheap to make; looks at the machine only when asked."""

    def __init__(self, plan: Plan, places: Places) -> None:
        self.plan = plan
        self.places = places
        self.cgroups = Cgroups.of_machine(places.name)
        self.keeper = Keeper(places, self.cgroups)

    @classmethod
    def open(cls, places: Places | None = None) -> Bed:
        """The bed that `up` made."""
        places = places or Places.of()
        options = saved_options(places)
        if options is None:
            raise NotPossibleError(f"there is no bed in {places.state}; make one with `deploy/local/bed up`")
        return cls(make_plan(options), places)

    @cached_property
    def hosts(self) -> dict[str, Host]:
        return {spec.name: Host(self.plan, self.places, spec.name, self.cgroups) for spec in self.plan.hosts}

    def host(self, name: str) -> Host:
        self.plan.host(name)
        return self.hosts[name]

    @property
    def switch(self) -> Host:
        return self.hosts[self.plan.switch.name]

    @cached_property
    def slurms(self) -> tuple[Slurm, ...]:
        """The Slurm clusters of the bed's own."""
        return tuple(Slurm(cluster, self.hosts) for cluster in self.plan.clusters)


def saved_options(places: Places) -> Options | None:
    """What the bed in this place was made with, if there is one."""
    try:
        return Options.from_json(places.plan.read_text())
    except FileNotFoundError:
        return None
