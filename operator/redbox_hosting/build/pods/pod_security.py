"""What the pod of a daemon may not have in the profile Plain. Pure.

A user's fields and template are merged into the pods that the operator makes, so a pod is judged as a whole
before it is created: the author gets a sentence, and not a worker that never comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from redbox_kube.controller.steps import StepFailed
from redbox_shared.hosted_settings.plain_profile import BASELINE_CAPABILITIES, RESTRICTED_VOLUMES

SECCOMP = frozenset({"RuntimeDefault", "Localhost"})
APPARMOR = frozenset({"RuntimeDefault", "Localhost"})
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
KEY_VOLUMES = {
    "slurmctld": ("etc", "run", "tls"),
    "slurmd": ("keys", "run", "munge", "munge-key", "munge-run"),
    "slurmdbd": ("etc", "run"),
    "slurmrestd": ("tls",),
    "control": ("tls",),
    "login": ("keys", "host-key", "run", "sack-run"),
}
"""By role: the operator's volumes with keys, with copies of them, or with the socket that signs with them."""
MOST_NAMED = 5
Pod = dict[str, Any]


class BeyondPlain(StepFailed):
    """The user's fields ask for more than the profile Plain allows."""


def check_plain(role: str, spec: Pod, own: Collection[str]) -> None:
    """Raise BeyondPlain with the names of the fields that the pod of a Plain cluster may not have."""
    if fields := beyond_plain(role, spec, own):
        raise BeyondPlain(
            f"the profile Plain does not allow {', '.join(fields[:MOST_NAMED])}: remove it, or set the "
            "Controller's spec.redbox.profile to Privileged"
        )


def beyond_plain(role: str, spec: Pod, own: Collection[str]) -> list[str]:
    """Fields that the level baseline refuses, the volumes of restricted, and ways to the operator's keys.

    `own`: the places of the containers that the operator has made. A name says nothing: a user may give any.
    """
    return [*_baseline(spec), *_volumes(spec), *_keys(role, spec, own)]


def places_of(spec: Pod) -> frozenset[str]:
    """Its containers, as messages name them."""
    return frozenset(place for place, _, _ in containers_of(spec))


def containers_of(spec: Pod) -> Iterator[tuple[str, Pod, Pod]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for each in spec.get(kind) or []:
            yield f"{kind}[{each.get('name', '')}]", each, each.get("securityContext") or {}


def _baseline(spec: Pod) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield name
    pod = spec.get("securityContext") or {}
    yield from _options("securityContext", pod)
    if pod.get("sysctls"):
        yield "securityContext.sysctls"
    for place, each, security in containers_of(spec):
        yield from _options(f"{place}.securityContext", security)
        if security.get("privileged"):
            yield f"{place}.securityContext.privileged"
        if security.get("procMount", "Default") != "Default":
            yield f"{place}.securityContext.procMount"
        added = set((security.get("capabilities") or {}).get("add") or []) - BASELINE_CAPABILITIES
        if added:
            yield f"{place}.securityContext.capabilities.add {', '.join(sorted(added))}"
        if any(port.get("hostPort") for port in each.get("ports") or []):
            yield f"{place}.ports.hostPort"


def _options(place: str, security: Pod) -> Iterator[str]:
    if (security.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield f"{place}.seccompProfile"
    if (security.get("appArmorProfile") or {}).get("type", "RuntimeDefault") not in APPARMOR:
        yield f"{place}.appArmorProfile"
    selinux = security.get("seLinuxOptions") or {}
    if selinux.get("user") or selinux.get("role") or selinux.get("type", "") not in SELINUX_TYPES:
        yield f"{place}.seLinuxOptions"
    if (security.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{place}.windowsOptions.hostProcess"


def _volumes(spec: Pod) -> Iterator[str]:
    for volume in spec.get("volumes") or []:
        kinds = volume.keys() - {"name"} - RESTRICTED_VOLUMES
        yield from (f"volumes[{volume.get('name', '')}].{kind}" for kind in sorted(kinds))


def _keys(role: str, spec: Pod, own: Collection[str]) -> Iterator[str]:
    """In a shared process namespace the files of one container are open to the others by /proc."""
    if spec.get("shareProcessNamespace"):
        yield "shareProcessNamespace"
    for place, each, security in containers_of(spec):
        escalates = security.get("allowPrivilegeEscalation")
        if escalates or (escalates is None and place in own):
            yield f"{place}.securityContext.allowPrivilegeEscalation"
        if place not in own:
            mounted = {mount.get("name") for mount in each.get("volumeMounts") or []}
            for volume in sorted(mounted.intersection(KEY_VOLUMES.get(role, ()))):
                yield f"{place}.volumeMounts {volume}"
