"""What a pod asks for beyond the Pod Security Standards. Pure.

A user's template is merged into the pods that the operator makes, so a pod is judged as a whole before it is
created: the author gets a sentence, and not a worker that never comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

BASELINE_CAPABILITIES = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
RESTRICTED_VOLUMES = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"),
        *("projected", "secret"),
    }
)
SECCOMP = frozenset({"RuntimeDefault", "Localhost"})
APPARMOR = frozenset({"RuntimeDefault", "Localhost"})
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
Pod = dict[str, Any]


def beyond_baseline(spec: Pod) -> list[str]:
    """Fields of a pod's spec that the level baseline refuses."""
    return [*_baseline(spec)]


def beyond_plain(spec: Pod) -> list[str]:
    """The same, with the volumes of the level restricted: workers of the Plain profile."""
    return [*_baseline(spec), *_volumes(spec)]


def beyond_restricted(spec: Pod) -> list[str]:
    """Fields of a pod's spec that the level restricted refuses, or wants and does not find."""
    return [*_baseline(spec), *_volumes(spec), *_restricted(spec)]


def _containers(spec: Pod) -> Iterator[tuple[str, Pod, Pod]]:
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
    for volume in spec.get("volumes") or []:
        if "hostPath" in volume:
            yield f"volumes[{volume.get('name', '')}].hostPath"
    for place, each, security in _containers(spec):
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
        kinds = volume.keys() - {"name"} - RESTRICTED_VOLUMES - {"hostPath"}
        yield from (f"volumes[{volume.get('name', '')}].{kind}" for kind in sorted(kinds))


def _restricted(spec: Pod) -> Iterator[str]:
    pod = spec.get("securityContext") or {}
    if pod.get("runAsUser") == 0:
        yield "securityContext.runAsUser"
    for place, _, security in _containers(spec):
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{place}.securityContext.allowPrivilegeEscalation"
        if not security.get("runAsNonRoot", pod.get("runAsNonRoot")):
            yield f"{place}.securityContext.runAsNonRoot"
        if security.get("runAsUser") == 0:
            yield f"{place}.securityContext.runAsUser"
        profile = security.get("seccompProfile") or pod.get("seccompProfile") or {}
        if profile.get("type") not in SECCOMP:
            yield f"{place}.securityContext.seccompProfile"
        capabilities = security.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or []):
            yield f"{place}.securityContext.capabilities.drop"
        if set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
            yield f"{place}.securityContext.capabilities.add"
