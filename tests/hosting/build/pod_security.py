"""What a pod asks for beyond the level restricted of the Pod Security Standards. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from redbox_hosting.build.pods.pod_security import SECCOMP, Pod, beyond_plain, containers_of, places_of


def beyond_restricted(role: str, spec: Pod) -> list[str]:
    """Fields of a pod's spec that the level restricted refuses, or wants and does not find."""
    return [*beyond_plain(role, spec, places_of(spec)), *_restricted(spec)]


def _restricted(spec: Pod) -> Iterator[str]:
    pod = spec.get("securityContext") or {}
    if pod.get("runAsUser") == 0:
        yield "securityContext.runAsUser"
    for place, _, security in containers_of(spec):
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
