"""CustomResourceDefinitions of hosted Slurm, from the models, with rules in CEL."""

from __future__ import annotations

from pydantic import BaseModel

from redbox_hosting.api import names
from redbox_hosting.api.controller import ControllerSpec
from redbox_hosting.api.daemons import AccountingSpec, LoginSetSpec, RestApiSpec, TokenSpec
from redbox_hosting.api.nodeset import NodeSetSpec
from redbox_hosting.api.status import (
    AccountingStatus,
    ControllerStatus,
    LoginSetStatus,
    NodeSetStatus,
    RestApiStatus,
    TokenStatus,
)
from redbox_kube.api.kinds import Kind
from redbox_kube.schemas.crd import crd, object_schema
from redbox_kube.schemas.openapi import Schema, rule, structural

LONGEST_NAME = 40
"""Suffixes of objects of a cluster follow, and each name is one label of a DNS name."""
AGE: Schema = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
READY: Schema = {
    "name": "Ready",
    "type": "string",
    "jsonPath": ".status.conditions[?(@.type=='Ready')].status",
}
DEGRADED: Schema = {
    "name": "Degraded",
    "type": "string",
    "jsonPath": ".status.conditions[?(@.type=='Degraded')].status",
}
MESSAGE: Schema = {
    "name": "Message",
    "type": "string",
    "jsonPath": ".status.conditions[?(@.type=='Ready')].message",
    "priority": 1,
}
NAME = rule(
    f"self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$') && "
    f"self.metadata.name.size() <= {LONGEST_NAME}",
    f"the name has at most {LONGEST_NAME} characters of a-z, 0-9 and -, because it begins names of Services",
)
NODE_SET_NAME = rule(
    "!self.metadata.name.matches('-([0-9]+|controller|accounting|database)$')",
    "a NodeSet's name must not end with - and a number, -controller, -accounting or -database, as pods do",
)
EXTERNAL = rule(
    "(has(self.external) && self.external) == has(self.externalConfig)",
    "set external to true and externalConfig together, or neither",
)
KEYS_OF_EXTERNAL = rule(
    "!(has(self.external) && self.external) || "
    "((has(self.slurmKeyRef) || (has(self.redbox) && has(self.redbox.munge))) && "
    "(has(self.jwtKeyRef) || has(self.jwtHs256KeyRef)))",
    "an external Controller needs slurmKeyRef and jwtKeyRef: copies of the keys of its slurmctld",
)
MUNGE = rule(
    "!has(self.redbox) || !has(self.redbox.munge) || "
    "(has(self.external) && self.external && !has(self.slurmKeyRef))",
    "redbox.munge is for an external Controller, instead of slurmKeyRef",
)
MUNGE_FIXED = rule(
    "(has(self.redbox) && has(self.redbox.munge)) == (has(oldSelf.redbox) && has(oldSelf.redbox.munge))",
    "redbox.munge is immutable: create another object, or delete this one first",
)
ONE_JWT_KEY = rule(
    "!(has(self.jwtKeyRef) && has(self.jwtHs256KeyRef))",
    "set only jwtKeyRef; jwtHs256KeyRef is its former name",
)
ONE_DEFAULT = rule(
    "!has(self.redbox) || !has(self.redbox.partitions) || "
    "self.redbox.partitions.filter(each, has(each.default) && each.default).size() <= 1",
    "only one of redbox.partitions can be the default",
)
MAX_NODES_GROW = rule(
    "(has(self.redbox) ? self.redbox.maxNodes : 1024) >= "
    "(has(oldSelf.redbox) ? oldSelf.redbox.maxNodes : 1024)",
    "redbox.maxNodes only grows",
)
PROFILE_FIXED = rule(
    "(has(self.redbox) ? self.redbox.profile : 'Plain') == "
    "(has(oldSelf.redbox) ? oldSelf.redbox.profile : 'Plain')",
    "redbox.profile is immutable: workers that run would not fit the new configuration",
)
ON_DEMAND = rule(
    "!(has(self.replicas) && has(self.redbox) && has(self.redbox.onDemand))",
    "leave replicas out with redbox.onDemand, which decides how many workers there are",
)
ON_DEMAND_SIZES = rule(
    "!has(self.redbox) || !has(self.redbox.onDemand) || !has(self.redbox.onDemand.min) || "
    "self.redbox.onDemand.min <= self.redbox.onDemand.max",
    "redbox.onDemand.min is at most redbox.onDemand.max",
)
ONE_DATABASE = rule(
    "(has(self.external) && self.external) || (has(self.storageConfig) != "
    "(has(self.redbox) && has(self.redbox.database) && has(self.redbox.database.enabled) && "
    "self.redbox.database.enabled))",
    "set exactly one of storageConfig, redbox.database.enabled and external",
)


def hosting_crds() -> list[Schema]:
    """The CRDs of all six kinds."""
    return [_controller(), _node_set(), _login_set(), _rest_api(), _accounting(), _token()]


def _controller() -> Schema:
    rules = [
        EXTERNAL,
        KEYS_OF_EXTERNAL,
        MUNGE,
        MUNGE_FIXED,
        ONE_JWT_KEY,
        ONE_DEFAULT,
        MAX_NODES_GROW,
        PROFILE_FIXED,
        *_fixed("clusterName", "slurmKeyRef", "jwtKeyRef", "jwtHs256KeyRef", "persistence"),
    ]
    columns = [
        READY,
        DEGRADED,
        {"name": "Slurm", "type": "string", "jsonPath": ".status.version"},
        _count("Nodes", "nodes"),
        AGE,
        MESSAGE,
    ]
    return _crd(
        names.CONTROLLERS, "slurmctld", ControllerSpec, ControllerStatus, rules=rules, columns=columns
    )


def _node_set() -> Schema:
    columns = [
        _count("Desired", "desired"),
        _count("Replicas", "replicas"),
        _count("Updated", "updatedReplicas"),
        _count("Ready", "readyReplicas"),
        DEGRADED,
        *(
            _count(name, field) | {"priority": 1}
            for name, field in (
                ("Idle", "slurmIdle"),
                ("Allocated", "slurmAllocated"),
                ("Down", "slurmDown"),
                ("Drain", "slurmDrain"),
            )
        ),
        AGE,
        MESSAGE,
    ]
    rules = [ON_DEMAND, ON_DEMAND_SIZES, *_fixed("controllerRef", "volumeClaimTemplates", "ordinalPadding")]
    made = _crd(names.NODE_SETS, "nss", NodeSetSpec, NodeSetStatus, rules=rules, columns=columns)
    made["spec"]["names"]["shortNames"].append("slurmd")
    _version(made)["schema"]["openAPIV3Schema"]["x-kubernetes-validations"].append(NODE_SET_NAME)
    return _scaled(made)


def _login_set() -> Schema:
    columns = [
        _count("Replicas", "replicas"),
        READY,
        DEGRADED,
        AGE,
        MESSAGE,
    ]
    made = _crd(
        names.LOGIN_SETS, "lss", LoginSetSpec, LoginSetStatus, rules=_fixed("controllerRef"), columns=columns
    )
    made["spec"]["names"]["shortNames"].append("sackd")
    return _scaled(made)


def _rest_api() -> Schema:
    columns = [READY, DEGRADED, AGE, MESSAGE]
    return _crd(
        names.REST_APIS,
        "slurmrestd",
        RestApiSpec,
        RestApiStatus,
        rules=_fixed("controllerRef"),
        columns=columns,
    )


def _accounting() -> Schema:
    rules = [EXTERNAL, ONE_JWT_KEY, ONE_DATABASE]
    slurm = {"name": "Slurm", "type": "string", "jsonPath": ".status.version"}
    columns = [READY, DEGRADED, slurm, AGE, MESSAGE]
    return _crd(names.ACCOUNTINGS, "slurmdbd", AccountingSpec, AccountingStatus, rules=rules, columns=columns)


def _token() -> Schema:
    rules = [ONE_JWT_KEY, *_fixed("username", "controllerRef", "secretRef")]
    columns = [
        {"name": "User", "type": "string", "jsonPath": ".spec.username"},
        {"name": "Iat", "type": "date", "jsonPath": ".status.issuedAt"},
        READY,
        DEGRADED,
        AGE,
        MESSAGE,
    ]
    return _crd(names.TOKENS, "jwt", TokenSpec, TokenStatus, rules=rules, columns=columns)


def _crd(
    kind: Kind,
    short_name: str,
    spec: type[BaseModel],
    status: type[BaseModel],
    *,
    rules: list[Schema],
    columns: list[Schema],
) -> Schema:
    fields = structural(spec) | {"x-kubernetes-validations": rules}
    description = (spec.__doc__ or "").partition("\n")[0]
    schema = object_schema([NAME], fields, status, description)
    return crd(kind, [short_name], schema, columns)


def _count(name: str, field: str) -> Schema:
    return {"name": name, "type": "integer", "jsonPath": f".status.{field}"}


def _fixed(*fields: str) -> list[Schema]:
    """A rule for each field that must not change, be added or be removed.

    Not one rule that compares the whole spec first: pod templates have no bound that the API server could
    estimate its cost from.
    """
    return [
        rule(
            f"has(self.{name}) == has(oldSelf.{name}) && "
            f"(!has(self.{name}) || self.{name} == oldSelf.{name})",
            f"{name} is immutable: create another object, or delete this one first",
        )
        for name in fields
    ]


def _scaled(made: Schema) -> Schema:
    _version(made)["subresources"]["scale"] = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return made


def _version(made: Schema) -> Schema:
    version: Schema = made["spec"]["versions"][0]
    return version
