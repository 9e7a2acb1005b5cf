"""What a bed consists of: hosts, clusters, partitions, users, ports. Pure: options in, description out.

Nothing here looks at the machine or starts anything; every other module reads the plan and acts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from redbox_bed.core.errors import NotPossibleError

NETWORK = "10.77.0"
LOOPBACK = "127.0.0.1"
SLURMRESTD_PORT = 6820
SERVICE_PORT = 8443
"""Where red-box listens on a login host."""


class Release(StrEnum):
    """A Slurm release; the Debian that ships it is named in roots.py."""

    V22_05 = "22.05"
    V24_11 = "24.11"
    V26_05 = "26.05"

    @classmethod
    def read(cls, text: str) -> Release:
        if text not in set(cls):
            raise NotPossibleError(f"the bed has no Slurm {text}; its releases are: {', '.join(cls)}")
        return cls(text)

    @property
    def has_pmix(self) -> bool:
        """Whether Debian built it with PMIx, by which srun starts MPI's ranks; mpirun needs none."""
        return self is not Release.V26_05

    @property
    def has_metrics(self) -> bool:
        """Whether slurmctld serves metrics itself, which it does since 25.11."""
        return self is Release.V26_05


class Source(StrEnum):
    """Whether the bed makes this half itself, uses one that the user has, or goes without."""

    OWN = "own"
    EXISTING = "existing"
    NONE = "none"


@dataclass(frozen=True)
class Options:
    """What the user chose on the command line."""

    slurm: Source = Source.OWN
    release: Release = Release.V24_11
    accounting: bool = True
    slow_home: bool = False
    hpc2: bool = False
    kube: Source = Source.OWN
    fast: bool = False
    mutating_policies: bool = False
    """Whether the API server has MutatingAdmissionPolicies, which are beta and off by default in 1.34."""
    port_offset: int = 0
    address: str = LOOPBACK
    """Of this machine, where its own port of red-box is: the pods of an existing cluster must reach it."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Options:
        saved = json.loads(text)
        return cls(
            **{
                **saved,
                "slurm": Source(saved["slurm"]),
                "release": Release(saved["release"]),
                "kube": Source(saved["kube"]),
            }
        )


def choose_options(saved: Options | None, asked: Mapping[str, object]) -> Options:
    """Of the bed that is there, else those asked for: a bed keeps its options for life."""
    if saved is None:
        return replace(Options(), **asked)  # type: ignore[arg-type]
    changed = [name for name, value in asked.items() if getattr(saved, name) != value]
    if changed:
        made = ", ".join(_in_words(name, getattr(saved, name)) for name in changed)
        raise NotPossibleError(
            f"there is a bed already, made {made}; to make one with other options take it down first "
            "(`deploy/local/bed down`)"
        )
    return saved


def _in_words(option: str, value: object) -> str:
    name = option.replace("_", " ")
    if isinstance(value, bool):
        return f"{'with' if value else 'without'} {name}"
    return f"with {name} {value}"


class Role(StrEnum):
    """What a host is for; decides its daemons and its own folders."""

    SWITCH = "switch"
    LOGIN = "login"
    CONTROLLER = "controller"
    COMPUTE = "compute"
    CONTROL_PLANE = "control plane"
    NODE = "node"


@dataclass(frozen=True)
class HostSpec:
    """One host. `cluster` names the overlay and the /home that it shares with others."""

    name: str
    address: str
    cluster: str
    root: str
    role: Role
    pod_network: str | None = None


@dataclass(frozen=True)
class User:
    """A person with a Unix account on every Slurm host, and Slurm accounts (the first is the default)."""

    name: str
    uid: int
    accounts: tuple[str, ...]


@dataclass(frozen=True)
class Partition:
    """A queue; a node may be in several."""

    name: str
    nodes: tuple[str, ...]
    max_minutes: int | None
    default_minutes: int
    default: bool = False


@dataclass(frozen=True)
class Node:
    """A compute node as Slurm sees it."""

    name: str
    features: tuple[str, ...]
    gpus: int = 0


@dataclass(frozen=True)
class SlurmCluster:
    """One slurmctld's realm."""

    name: str
    release: Release
    login: str
    controller: str
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    accounting: bool
    fast: bool

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.login, self.controller, *(node.name for node in self.nodes))


@dataclass(frozen=True)
class Forward:
    """A port of the machine, on loopback unless it is another's to reach, that leads to a port of a host."""

    port: int
    host: str
    target_port: int
    address: str = LOOPBACK


@dataclass(frozen=True)
class Plan:
    """Everything that a bed consists of."""

    options: Options
    hosts: tuple[HostSpec, ...]
    clusters: tuple[SlurmCluster, ...]
    forwards: tuple[Forward, ...]

    def host(self, name: str) -> HostSpec:
        for spec in self.hosts:
            if spec.name == name:
                return spec
        names = ", ".join(spec.name for spec in self.hosts)
        raise NotPossibleError(f"there is no host {name!r} in this bed; its hosts are: {names}")

    def of_role(self, *roles: Role) -> tuple[HostSpec, ...]:
        return tuple(spec for spec in self.hosts if spec.role in roles)

    def slurm_cluster(self, name: str) -> SlurmCluster:
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        raise NotPossibleError(f"there is no Slurm cluster {name!r} in this bed")

    @property
    def switch(self) -> HostSpec:
        return self.of_role(Role.SWITCH)[0]

    @property
    def trees(self) -> dict[str, str]:
        """Each overlay's name and the root below it."""
        return {spec.cluster: spec.root for spec in self.hosts}

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.trees.values())))

    def has_slow_home(self, spec: HostSpec) -> bool:
        return self.options.slow_home and any(spec.name in cluster.hosts for cluster in self.clusters)

    @property
    def kube_hosts(self) -> tuple[HostSpec, ...]:
        return self.of_role(Role.CONTROL_PLANE, Role.NODE)


USERS = (
    User("alice", 2001, ("physics", "biology")),
    User("bob", 2002, ("biology",)),
    User("carol", 2003, ()),
)
"""carol has a Unix account but no Slurm account, so that Slurm's own refusal can be seen."""

MEMBERS_GROUP = "redbox-users"
SERVICE_ACCOUNT = "redbox"

GPU_FEATURES = ("gpu", "a100", "nvlink")
CPU_FEATURES = ("cpu", "intel")


def _hpc1(options: Options) -> SlurmCluster:
    nodes = (Node("n1", CPU_FEATURES), Node("n2", CPU_FEATURES), Node("n3", GPU_FEATURES, gpus=2))
    every = tuple(node.name for node in nodes)
    return SlurmCluster(
        name="hpc1",
        release=options.release,
        login="login",
        controller="ctl",
        nodes=nodes,
        partitions=(
            Partition("debug", every, max_minutes=30, default_minutes=10, default=True),
            Partition("long", every, max_minutes=None, default_minutes=60),
            Partition("GPU_big", ("n3",), max_minutes=24 * 60, default_minutes=60),
        ),
        accounting=options.accounting,
        fast=options.fast,
    )


def _hpc2(options: Options) -> SlurmCluster:
    """A second cluster whose partition has a name that the first one uses too."""
    return SlurmCluster(
        name="hpc2",
        release=options.release,
        login="login2",
        controller="ctl2",
        nodes=(Node("m1", CPU_FEATURES),),
        partitions=(Partition("debug", ("m1",), max_minutes=60, default_minutes=10, default=True),),
        accounting=options.accounting,
        fast=options.fast,
    )


_ADDRESSES = {
    "gw": 1, "login": 10, "ctl": 11, "n1": 21, "n2": 22, "n3": 23,
    "k0": 40, "k1": 41, "k2": 42, "login2": 110, "ctl2": 111, "m1": 121,
}  # fmt: skip


def _address(name: str) -> str:
    return f"{NETWORK}.{_ADDRESSES[name]}"


def _slurm_hosts(cluster: SlurmCluster) -> tuple[HostSpec, ...]:
    root = f"slurm-{cluster.release}"
    roles = {cluster.login: Role.LOGIN, cluster.controller: Role.CONTROLLER}
    return tuple(
        HostSpec(name, _address(name), cluster.name, root, roles.get(name, Role.COMPUTE))
        for name in cluster.hosts
    )


def _kube_hosts() -> tuple[HostSpec, ...]:
    return (
        HostSpec("k0", _address("k0"), "kube", "node", Role.CONTROL_PLANE),
        HostSpec("k1", _address("k1"), "kube", "node", Role.NODE, pod_network="10.244.1.0/24"),
        HostSpec("k2", _address("k2"), "kube", "node", Role.NODE, pod_network="10.244.2.0/24"),
    )


_FORWARDS = (
    Forward(16443, "k0", 6443),
    Forward(12222, "login", 22),
    Forward(18443, "login", SERVICE_PORT),
    Forward(12322, "login2", 22),
    Forward(18543, "login2", SERVICE_PORT),
)


def make_plan(options: Options) -> Plan:
    """The whole bed for these options."""
    clusters: tuple[SlurmCluster, ...] = ()
    if options.slurm is Source.OWN:
        clusters = (_hpc1(options), _hpc2(options)) if options.hpc2 else (_hpc1(options),)
    hosts: tuple[HostSpec, ...] = (HostSpec("gw", _address("gw"), "gw", "node", Role.SWITCH),)
    for cluster in clusters:
        hosts += _slurm_hosts(cluster)
    if options.kube is Source.OWN:
        hosts += _kube_hosts()
    names = {spec.name for spec in hosts}
    forwards = tuple(
        replace(
            forward,
            port=forward.port + options.port_offset,
            address=options.address if forward.target_port == SERVICE_PORT else LOOPBACK,
        )
        for forward in _FORWARDS
        if forward.host in names
    )
    return Plan(options, hosts, clusters, forwards)
