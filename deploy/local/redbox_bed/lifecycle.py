"""Up and down: the order in which the bed's parts come, and that nothing of them stays.

Up: what is built (roots, programs) -> overlays -> hosts and cables -> slow /home -> Slurm and Kubernetes side
by side -> forwarded ports. Every step looks first and does only what is missing, so `up` is also the repair.

Down needs no knowledge of what was started: whatever is in the bed's control groups is killed, and its mounts
and namespaces end with it.
"""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from redbox_bed import port_forwards, slow_home
from redbox_bed.bed import Bed, saved_options
from redbox_bed.core.errors import BedError, NotPossibleError
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Source
from redbox_bed.core.progress import Progress
from redbox_bed.hosts import roots
from redbox_bed.hosts.cgroups import Cgroups
from redbox_bed.hosts.host import Host
from redbox_bed.kube import existing, kube_cluster
from redbox_bed.preflight import check_machine
from redbox_bed.programs import helm, kubernetes
from redbox_bed.slurm.shared_files import ensure_tree, write_known_hosts
from redbox_bed.slurm.slurm_cluster import Slurm

_REMOVAL_SECONDS = 300
_STILL_WRITTEN_SECONDS = 30


def up(bed: Bed, progress: Progress) -> None:
    """Make the bed what its plan says, from nothing or from any state that a crash has left."""
    with locked(bed.places, progress):
        if saved_options(bed.places) not in {None, bed.plan.options}:
            raise NotPossibleError("another `up` has just made a bed with other options: take it down")
        check_machine(bed, progress)
        if bed.plan.options.kube is Source.EXISTING:
            existing.find_cluster(bed.places, progress)
        bed.places.state.mkdir(parents=True, exist_ok=True)
        bed.places.plan.write_text(bed.plan.options.to_json())
        _build(bed, progress)
        for name in bed.plan.roots:
            if age := roots.age_in_words(bed.places, name):
                progress(age)
        with progress.step("hosts"):
            _boot_hosts(bed)
        if bed.plan.options.slow_home:
            with progress.step("slow /home"):
                side_by_side(
                    partial(slow_home.ensure, bed, host)
                    for host in bed.hosts.values()
                    if bed.plan.has_slow_home(host.spec)
                )
        side_by_side(_part_starts(bed, progress))
        port_forwards.up(bed, progress)


def _part_starts(bed: Bed, progress: Progress) -> Iterator[Callable[[], object]]:
    for slurm in bed.slurms:
        yield partial(_start_slurm, slurm, progress)
    if bed.plan.options.kube is not Source.NONE:
        yield partial(kube_cluster.up, bed, progress)


def _start_slurm(slurm: Slurm, progress: Progress) -> None:
    with progress.step(f"Slurm {slurm.cluster.name}"):
        slurm.up()


def _build(bed: Bed, progress: Progress) -> None:
    """What is not in the cache yet: minutes the first time, nothing afterwards."""
    side_by_side(_missing_builds(bed, progress), progress)


def _missing_builds(bed: Bed, progress: Progress) -> Iterator[Callable[[], object]]:
    for name in bed.plan.roots:
        if not roots.is_built(bed.places, name):
            yield partial(_build_root, bed.places, name, progress)
    if bed.plan.options.kube is Source.OWN:
        yield partial(_build_kube_and_helm, bed.places, progress)
    if bed.plan.options.slow_home:
        yield partial(slow_home.ensure_slowfs, bed.places, progress)


def _build_kube_and_helm(places: Places, progress: Progress) -> None:
    """One after the other: what both need is compiled once."""
    kubernetes.ensure_programs(places, progress)
    helm.ensure_helm(places, progress)


def _build_root(places: Places, name: str, progress: Progress) -> None:
    with progress.step(f"building the root {name} (once, one to three minutes)"):
        roots.ensure_root(places, name)


def _boot_hosts(bed: Bed) -> None:
    if bed.keeper.ensure():
        for host in bed.hosts.values():
            host.power_off()
    for tree, root in bed.plan.trees.items():
        bed.keeper.mount(tree, roots.root_path(bed.places, root))
        ensure_tree(bed.plan, bed.places, bed.keeper, tree, bed.cgroups.slurm_plugin)
    write_known_hosts(bed.plan, bed.places)
    _boot(bed.switch)
    side_by_side(partial(_boot, host) for host in bed.hosts.values() if host is not bed.switch)


def _boot(host: Host) -> None:
    host.boot()
    host.plug_in()


def start_host(bed: Bed, host: Host, progress: Progress) -> None:
    """Boot one host and start what runs on it; the rest of the bed stays as it is."""
    _boot(host)
    if bed.plan.has_slow_home(host.spec):
        slow_home.ensure(bed, host)
    for slurm in bed.slurms:
        if host.name in slurm.cluster.hosts:
            slurm.start_host(host)
    if host in {bed.hosts[spec.name] for spec in bed.plan.kube_hosts}:
        kube_cluster.up(bed, progress)
    if host is bed.switch:
        for other in bed.hosts.values():
            if other.pid():
                other.plug_in()
        port_forwards.up(bed, progress)


def down(places: Places, progress: Progress) -> None:
    """Remove whatever there is of a bed, whole or half-built."""
    cgroups = Cgroups.of_machine(places.name)
    with locked(places, progress), progress.step("taking the bed down"):
        port_forwards.stop_forwarder(places)
        cgroups.kill()
        cgroups.remove()
        _remove(places.state)


def _remove(folder: Path) -> None:
    """Once more where an interrupted `up` still has a program write there, such as cp."""
    deadline = time.monotonic() + _STILL_WRITTEN_SECONDS
    while folder.exists():
        command = ["rm", "-rf", "--one-file-system", str(folder)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_REMOVAL_SECONDS)
        if done.returncode and time.monotonic() > deadline:
            raise BedError(f"{folder} cannot be removed: {done.stderr.strip()[-300:]}")
        if done.returncode:
            time.sleep(0.1)


@contextmanager
def locked(places: Places, progress: Progress) -> Iterator[None]:
    """One `up` or `down` at a time; a second one waits for the first and says so."""
    folder = places.cache / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / places.name).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another `up` or `down` of this bed is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def side_by_side(
    actions: Iterable[Callable[[], object]], tell: Callable[[str], object] = lambda _: None
) -> None:
    """Run them all at once. A failure is printed while the others go on, and raised when all have ended."""
    waiting = list(actions)
    if not waiting:
        return
    with ThreadPoolExecutor(max_workers=len(waiting)) as pool:
        results = [pool.submit(action) for action in waiting]
        for ended in as_completed(results):
            if ended.exception() and not all(result.done() for result in results):
                tell(f"{ended.exception()}; what has begun beside it goes on to its end")
    for result in results:
        result.result()
