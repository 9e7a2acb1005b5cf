"""The whole bed: brings its parts up in order, takes them down, says how they are.

Order of `up`: roots -> keeper and overlays -> hosts and cables -> Slurm, Kubernetes (side by side) -> forwarder.
Every step looks first and does only what is missing, so that `up` is also the repair. `down` needs no knowledge of
what was started: whatever is in the bed's control groups is killed, and mounts and namespaces end with it.

A part of the bed is a module with two functions; Kubernetes' and the forwarder's are found in `kube` and `forward`:
    up(bed: Bed, progress: Progress) -> None          make it right; BedError if that cannot be
    status(bed: Bed) -> list[PartStatus]
Both are called only for a plan that has the part. A process that a part starts outside all hosts must be started
by `bed.start_outside`, so that `down` finds it.
"""

from __future__ import annotations

import fcntl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from redbox_bed import roots
from redbox_bed.cgroups import Cgroups
from redbox_bed.errors import NotPossibleError
from redbox_bed.host import Host
from redbox_bed.keeper import MACHINE, Keeper
from redbox_bed.places import Places
from redbox_bed.plan import Options, Plan, make_plan
from redbox_bed.processes import Process
from redbox_bed.slurm import Slurm
from redbox_bed.trees import ensure_tree, write_known_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from redbox_bed.progress import Progress

_START_OUTSIDE = 'log=$1; shift; while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec setsid -f sh -c \'echo $$; exec "$@" >>"$0" 2>&1 </dev/null\' "$log" "$@"'


class Bed:
    """A bed by its plan, up or not."""

    def __init__(self, plan: Plan, places: Places) -> None:
        self.plan = plan
        self.places = places
        self.cgroups = Cgroups.of_machine(places.name)
        self.keeper = Keeper(places, self.cgroups)

    @classmethod
    def open(cls, places: Places | None = None) -> Bed:
        """The bed that `up` made."""
        places = places or Places.of()
        if not places.plan.exists():
            raise NotPossibleError(f"there is no bed in {places.state}; make one with `deploy/local/bed up`")
        return cls(make_plan(Options.from_json(places.plan.read_text())), places)

    @cached_property
    def hosts(self) -> dict[str, Host]:
        return {spec.name: Host(self.plan, self.places, spec.name, self.cgroups) for spec in self.plan.hosts}

    def host(self, name: str) -> Host:
        self.plan.host(name)
        return self.hosts[name]

    def start_outside(self, argv: Sequence[str], log: Path) -> Process | None:
        """Start a process of the bed in the machine's own namespaces; none if it ended at once."""
        self.cgroups.create(MACHINE)
        files = self.cgroups.entry_files(MACHINE)
        done = subprocess.run(
            ["sh", "-c", _START_OUTSIDE, "sh", str(log), *files, "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            timeout=30,
            cwd="/",
        )
        return Process.of(int(done.stdout))

    # ------------------------------------------------------------------------------------------ up
    def up(self, progress: Progress) -> None:
        with locked(self.places, progress):
            self.places.state.mkdir(parents=True, exist_ok=True)
            self.places.plan.write_text(self.plan.options.to_json())
            self._build_roots(progress)
            with progress.step("hosts"):
                self._boot_hosts()
            for cluster in self.plan.clusters:
                with progress.step(f"Slurm {cluster.name}"):
                    Slurm(cluster, self.hosts).up()

    def _build_roots(self, progress: Progress) -> None:
        for name in self.plan.roots:
            if not roots.is_built(self.places, name):
                with progress.step(f"building the root {name}, once: one or two minutes"):
                    roots.ensure_root(self.places, name)

    def _boot_hosts(self) -> None:
        if self.keeper.ensure():
            for host in self.hosts.values():
                host.power_off()
        for tree, root in self.plan.trees.items():
            self.keeper.mount(tree, roots.root_path(self.places, root))
            ensure_tree(self.plan, self.places, self.keeper, tree, self.cgroups.slurm_plugin)
        write_known_hosts(self.plan, self.places)
        switch = self.hosts[self.plan.switch.name]
        switch.boot()
        switch.plug_in()
        with ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(_boot, self.hosts.values()))

    # ------------------------------------------------------------------------------------------ down
    def down(self, progress: Progress) -> None:
        take_down(self.places, self.cgroups, progress)


def _boot(host: Host) -> None:
    host.boot()
    host.plug_in()


def take_down(places: Places, cgroups: Cgroups, progress: Progress) -> None:
    """Remove whatever there is of a bed, whole or half-built."""
    with locked(places, progress):
        cgroups.kill()
        cgroups.remove()
        if places.state.exists():
            subprocess.run(["rm", "-rf", "--one-file-system", str(places.state)], check=True, timeout=300)


@contextmanager
def locked(places: Places, progress: Progress) -> Iterator[None]:
    """One `up` or `down` at a time; a second one waits for the first and says so."""
    places.cache.mkdir(parents=True, exist_ok=True)
    with (places.cache / f"{places.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another `up` or `down` of this bed is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
