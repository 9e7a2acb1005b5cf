"""The parts of a manifest that are a pod's: daemons' containers, and the template.

Slinky's images are built for its own entry, accounts and privileges; those of hosted Slurm are not.
"""

from __future__ import annotations

from kubectl_slurm.slinky.edited import OLD_GROUP, EditedObject, Fields, Outcome, list_at, mapping_at
from redbox_shared.hosted_settings.plain_profile import BASELINE_CAPABILITIES, RESTRICTED_VOLUMES

DAEMONS = {
    "Controller": "slurmctld",
    "NodeSet": "slurmd",
    "LoginSet": "login",
    "RestApi": "slurmrestd",
    "Accounting": "slurmdbd",
}
OLD_SLURM_UID = 401
NEW_ANNOTATIONS = {
    f"nodeset.{OLD_GROUP}/{name}": f"slurm.redbox.dev/{name}"
    for name in ("pod-cordon", "pod-deadline", "pod-deletion-cost")
}
NEW_LABELS = {
    f"{OLD_GROUP}/cluster": "slurm.redbox.dev/cluster",
    f"nodeset.{OLD_GROUP}/pod-name": "statefulset.kubernetes.io/pod-name",
}
NOT_OF_SLURMD = ("lifecycle", "livenessProbe", "restartPolicy", "restartPolicyRules", "startupProbe")
OF_PRIVILEGED = (
    "the profile Plain does not allow it; --profile Privileged, for a namespace that may, keeps it"
)


def convert_pod(edited: EditedObject) -> None:
    """The container of the kind's daemon, the template, and the volumes of both."""
    daemon = DAEMONS.get(edited.kind)
    if daemon is None:
        return
    if container := mapping_at(edited.spec, daemon):
        _container(edited, f"spec.{daemon}", container)
    if daemon in edited.spec and not container:
        del edited.spec[daemon]
    _template(edited, daemon)


def _container(edited: EditedObject, path: str, container: Fields) -> None:
    if edited.image:
        container["image"] = edited.image
        edited.note(f"{path}.image", Outcome.CHANGED, f"to {edited.image}")
    else:
        why = "the operator's image of Slurm is used; --image names another"
        edited.drop(path, why, container, "image", "imagePullPolicy")
    why = "it belongs to the entry of Slinky's image; settings have fields, options of a node are extraConf"
    edited.drop(path, why, container, "command", "args")
    if edited.kind == "NodeSet":
        edited.drop(path, "it would end jobs, or the wait for their end", container, *NOT_OF_SLURMD)
    _security(edited, f"{path}.securityContext", mapping_at(container, "securityContext"))


def _security(edited: EditedObject, path: str, security: Fields) -> None:
    own = [key for key in ("runAsUser", "runAsGroup", "fsGroup") if security.get(key) == OLD_SLURM_UID]
    edited.drop(path, "SlurmUser has the uid and gid 64030 here", security, *own)
    if edited.allows_privileges:
        return
    if security.get("privileged"):
        edited.drop(path, OF_PRIVILEGED, security, "privileged")
    if security.get("allowPrivilegeEscalation"):
        edited.drop(path, OF_PRIVILEGED, security, "allowPrivilegeEscalation")
    capabilities = mapping_at(security, "capabilities")
    added = capabilities.get("add") or []
    if beyond := sorted(set(map(str, added)) - BASELINE_CAPABILITIES):
        capabilities["add"] = [each for each in added if each not in beyond]
        edited.note(f"{path}.capabilities.add", Outcome.DROPPED, f"{', '.join(beyond)}: {OF_PRIVILEGED}")
    if mapping_at(security, "seccompProfile").get("type") == "Unconfined":
        edited.drop(path, OF_PRIVILEGED, security, "seccompProfile")


def _template(edited: EditedObject, daemon: str) -> None:
    _annotations(edited, "spec.template.metadata", mapping_at(edited.spec, "template", "metadata"))
    pod = mapping_at(edited.spec, "template", "spec")
    path = "spec.template.spec"
    for container in list_at(pod, "containers"):
        if container.get("name") == daemon:
            _container(edited, f"{path}.containers[{daemon}]", container)
    if pod.get("containers") == []:
        del pod["containers"]
    _security(edited, f"{path}.securityContext", mapping_at(pod, "securityContext"))
    if edited.kind == "NodeSet":
        why = "spec.redbox.drainTimeout bounds the wait for jobs"
        edited.drop(path, why, pod, "terminationGracePeriodSeconds")
        edited.drop(path, "workers end after their jobs", pod, "activeDeadlineSeconds", "restartPolicy")
        edited.drop(path, "the operator sets it", pod, "subdomain", "nodeName")
        _hostname(edited, pod)
    tolerations = [
        each
        for each in list_at(pod, "tolerations")
        if not str(each.get("key")).endswith(f".{OLD_GROUP}/worker")
    ]
    if "tolerations" in pod and tolerations != pod["tolerations"]:
        pod["tolerations"] = tolerations
        edited.note(f"{path}.tolerations", Outcome.DROPPED, "nothing sets the taint of Slinky's workers")
    if not edited.allows_privileges:
        _beyond_plain(edited, path, pod)
    _selectors(edited, path, pod)


def _hostname(edited: EditedObject, pod: Fields) -> None:
    prefix = str(pod.get("hostname") or "")
    if prefix and not prefix.endswith("-"):
        edited.note(
            "spec.template.spec.hostname",
            Outcome.DIFFERS,
            f"nodes are {prefix}-0, {prefix}-1, not {prefix}0, {prefix}1",
        )


def _beyond_plain(edited: EditedObject, path: str, pod: Fields) -> None:
    """What the profile Plain refuses and no rule can replace: the author decides."""
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace") if pod.get(name)]
    for volume in list_at(pod, "volumes"):
        kinds = sorted(volume.keys() - {"name"} - RESTRICTED_VOLUMES)
        found += [f"volumes[{volume.get('name')}].{kind}" for kind in kinds]
    for each in found:
        edited.note(
            f"{path}.{each}",
            Outcome.OPEN,
            "the profile Plain refuses it: use a claim in place of a folder of the machine, or convert with "
            "--profile Privileged",
        )


def _annotations(edited: EditedObject, path: str, metadata: Fields) -> None:
    for part, new in (("annotations", NEW_ANNOTATIONS), ("labels", NEW_LABELS)):
        values = mapping_at(metadata, part)
        for name in [name for name in values if _is_old(name)]:
            value = values.pop(name)
            if name in new and part == "annotations":
                values[new[name]] = value
                edited.note(f"{path}.{part}[{name}]", Outcome.CHANGED, f"to {new[name]}")
            else:
                edited.note(f"{path}.{part}[{name}]", Outcome.DROPPED, "nothing reads it here")


def convert_metadata(edited: EditedObject) -> None:
    """The object's own labels and annotations."""
    _annotations(edited, "metadata", mapping_at(edited.manifest, "metadata"))


def _selectors(edited: EditedObject, path: str, pod: Fields) -> None:
    """Affinities and spreads may select pods by labels that only Slinky sets."""
    for key in ("affinity", "topologySpreadConstraints"):
        for label in sorted(_old_names(pod.get(key))):
            cure = f"use {NEW_LABELS[label]}" if label in NEW_LABELS else "see the labels of our pods"
            edited.note(f"{path}.{key}", Outcome.OPEN, f"no pod has the label {label}: {cure}")


def _old_names(value: object) -> set[str]:
    if isinstance(value, dict):
        own = {str(key) for key in value if _is_old(str(key))}
        return own.union(*(_old_names(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(_old_names(each) for each in value))
    return {value} if isinstance(value, str) and _is_old(value) else set()


def _is_old(name: str) -> bool:
    group = name.partition("/")[0]
    return group == OLD_GROUP or group.endswith(f".{OLD_GROUP}")
