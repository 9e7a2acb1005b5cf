"""The six kinds: the fields of each that hosted Slurm does not have, or that mean something else there."""

from __future__ import annotations

import re
from collections.abc import Callable

from kubectl_slurm.slinky.conf import convert_lines, convert_node_options, convert_partition
from kubectl_slurm.slinky.edited import EditedObject, Fields, Outcome, list_at, mapping_at
from kubectl_slurm.slinky.pods import convert_metadata, convert_pod

LONGEST_NAME = 40
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
NODE_SET_NAME = re.compile(r".*-([0-9]+|controller|accounting|database)")
CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
OF_SLURM_CONF = (
    *("extraConf", "configFileRefs", "prologScriptRefs", "epilogScriptRefs", "prologSlurmctldScriptRefs"),
    "epilogSlurmctldScriptRefs",
)
NO_SIDECAR = "daemons log to stderr, and `kubectl logs` shows it"


def convert_kind(edited: EditedObject) -> None:
    """Every field of the object."""
    convert_metadata(edited)
    _name(edited)
    RULES[edited.kind](edited)
    convert_pod(edited)
    service = mapping_at(edited.spec, "service", "spec")
    why = "a Service with these takes the traffic of other addresses"
    edited.drop("spec.service.spec", why, service, "externalIPs")


def _name(edited: EditedObject) -> None:
    name = str(edited.manifest["metadata"].get("name") or "")
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        why = f"rename it, and what refers to it: at most {LONGEST_NAME} characters of a-z, 0-9 and -"
        edited.note("metadata.name", Outcome.OPEN, why)
    elif edited.kind == "NodeSet" and NODE_SET_NAME.fullmatch(name):
        why = "rename it: its end is that of a pod's name (a number, -controller, -accounting, -database)"
        edited.note("metadata.name", Outcome.OPEN, why)


def _controller(edited: EditedObject) -> None:
    spec = edited.spec
    if mapping_at(spec, "ha").get("enabled"):
        edited.drop("spec", "not built; Kubernetes starts slurmctld again elsewhere", spec, "ha")
    edited.drop("spec", "the operator applies changes itself, without a restart", spec, "reconfigure")
    edited.drop("spec", NO_SIDECAR, spec, "logfile")
    _one_jwt_key(edited)
    if mapping_at(spec, "metrics", "serviceMonitor").get("enabled"):
        why = "not built: make a ServiceMonitor of your own for the port 6817 of the Service NAME-slurmctld"
        edited.drop("spec.metrics", why, spec["metrics"], "serviceMonitor")
    if mapping_at(spec, "persistence").get("existingClaim"):
        why = "a second slurmctld on the state of a running one destroys it: stop the old one first"
        edited.note("spec.persistence.existingClaim", Outcome.DIFFERS, why)
    cluster = spec.get("clusterName")
    if cluster is not None and not CLUSTER_NAME.fullmatch(str(cluster)):
        edited.note("spec.clusterName", Outcome.OPEN, "write it with a-z, 0-9, _ and -")
    if spec.get("external"):
        for name, others in (("slurmKeyRef", ()), ("jwtKeyRef", ("jwtHs256KeyRef",))):
            if not any(key in spec for key in (name, *others)):
                edited.note(f"spec.{name}", Outcome.OPEN, "an external Controller needs it: name the Secret")
        why = "an external Controller has the slurm.conf of its slurmctld"
        edited.drop("spec", why, spec, *(key for key in OF_SLURM_CONF if spec.get(key)))
    if edited.allows_privileges:
        edited.redbox["profile"] = "Privileged"
        edited.note("spec.redbox.profile", Outcome.ADDED, "Privileged, as --profile asks")
    convert_lines(edited)


def _node_set(edited: EditedObject) -> None:
    spec = edited.spec
    if spec.get("replicas") is None and spec.get("scalingMode") != "DaemonSet":
        spec["replicas"] = 1
        edited.note("spec.replicas", Outcome.ADDED, "1, Slinky's default; here there is none")
    edited.drop("spec", NO_SIDECAR, spec, "logfile")
    if mapping_at(spec, "ssh").get("enabled"):
        edited.drop("spec", "not built: users log in to a LoginSet", spec, "ssh")
    if spec.get("pinToNode"):
        edited.drop("spec", "not built: select Kubernetes nodes by the template", spec, "pinToNode")
    _update_strategy(edited)
    retention = mapping_at(spec, "persistentVolumeClaimRetentionPolicy")
    for key in [key for key, value in retention.items() if value == "Delete"]:
        why = "Delete is not built: claims are retained, delete them yourself"
        edited.drop("spec.persistentVolumeClaimRetentionPolicy", why, retention, key)
    if spec.get("scalingMode") == "DaemonSet":
        why = "it needs hosting.nodes: read in the operator's chart"
        edited.note("spec.scalingMode", Outcome.DIFFERS, why)
    partition = mapping_at(spec, "partition")
    convert_partition(edited, partition)
    convert_node_options(edited)


def _update_strategy(edited: EditedObject) -> None:
    strategy = mapping_at(edited.spec, "updateStrategy")
    if strategy.get("type") == "ScheduledUpdate":
        strategy["type"] = "OnDelete"
        why = (
            "ScheduledUpdate is not built: OnDelete, set slurm.redbox.dev/condemned on workers in the window"
        )
        edited.note("spec.updateStrategy.type", Outcome.CHANGED, why)
    edited.drop("spec.updateStrategy", "no reservation is made", strategy, "scheduledUpdate")


def _login_set(edited: EditedObject) -> None:
    spec = edited.spec
    edited.drop("spec", "the operator prepares each container's files", spec, "initconf")
    why = "not built: name users in the Controller's spec.redbox.users"
    edited.drop("spec", why, spec, "sssdConfRef")
    strategy = mapping_at(spec, "strategy")
    if strategy.get("type") == "Recreate":
        strategy["type"] = "RollingUpdate"
        edited.note("spec.strategy.type", Outcome.CHANGED, "to RollingUpdate: pods are replaced in turn")
    name = edited.manifest["metadata"].get("name")
    edited.note("spec.service", Outcome.DIFFERS, f"the Service is {name}-login, and its host key is new")


def _rest_api(edited: EditedObject) -> None:
    why = "it answers by https only: its authority is ca.crt in the Secret NAME-restapi-tls"
    edited.note("spec.service", Outcome.DIFFERS, why)


def _accounting(edited: EditedObject) -> None:
    _one_jwt_key(edited)
    if not edited.spec.get("external") and not mapping_at(edited.spec, "storageConfig"):
        why = "name the database, or let the operator run one: redbox: {database: {enabled: true}}"
        edited.note("spec.storageConfig", Outcome.OPEN, why)
    convert_lines(edited)


def _token(edited: EditedObject) -> None:
    _one_jwt_key(edited)


def _one_jwt_key(edited: EditedObject) -> None:
    if edited.spec.get("jwtKeyRef") and "jwtHs256KeyRef" in edited.spec:
        edited.drop("spec", "it is the former name of jwtKeyRef, which is set", edited.spec, "jwtHs256KeyRef")


RULES: dict[str, Callable[[EditedObject], None]] = {
    "Controller": _controller,
    "NodeSet": _node_set,
    "LoginSet": _login_set,
    "RestApi": _rest_api,
    "Accounting": _accounting,
    "Token": _token,
}


def controllers_of(objects: list[EditedObject], token: EditedObject) -> list[EditedObject]:
    """The Controllers that a Token may be of: those of its namespace."""
    namespace = token.manifest["metadata"].get("namespace")
    return [
        each
        for each in objects
        if each.kind == "Controller" and each.manifest["metadata"].get("namespace") == namespace
    ]


def list_users_of_tokens(objects: list[EditedObject]) -> None:
    """Here a Token is made only for a user whom its Controller lists."""
    for token in [each for each in objects if each.kind == "Token"]:
        user = str(token.spec.get("username") or "")
        found = controllers_of(objects, token)
        if len(found) == 1 and user and user not in {"root", "slurm"}:
            users = found[0].redbox.setdefault("tokens", {}).setdefault("users", [])
            if user not in users:
                users.append(user)
                why = f"{user}, for {token.place}; anybody else's token is refused"
                found[0].note("spec.redbox.tokens.users", Outcome.ADDED, why)
        else:
            why = f"list {user} in spec.redbox.tokens.users of its Controller, or it gets no token"
            token.note("spec.username", Outcome.OPEN, why)


def check_config_maps(
    objects: list[EditedObject], config_maps: dict[str, Fields], refused: dict[str, str]
) -> None:
    """Files for /etc/slurm that hosted Slurm refuses, in ConfigMaps that came with the objects."""
    for each in objects:
        for reference in list_at(each.spec, "configFileRefs"):
            name = str(reference.get("name"))
            for file in mapping_at(config_maps.get(name), "data"):
                if why := refused.get(file):
                    text = f"remove {file} from ConfigMap {name}: {why}"
                    each.note("spec.configFileRefs", Outcome.OPEN, text)
