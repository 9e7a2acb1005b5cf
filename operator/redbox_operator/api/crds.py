"""CustomResourceDefinitions, generated from the models, which define and describe each field once.

Checks of the API server beyond the schema of a field are rules in CEL.
"""

from __future__ import annotations

from redbox_clusters.names import SLURM_JOBS
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, SlurmClusterSpec
from redbox_clusters.slurm_endpoint import SLURM_ENDPOINTS, SlurmEndpointSpec
from redbox_kube.api.kinds import Kind
from redbox_kube.schemas.crd import crd, immutable, object_schema
from redbox_kube.schemas.openapi import Schema, rule, structural
from redbox_operator.api.slurmcluster_status import SlurmClusterStatus, SlurmEndpointStatus
from redbox_operator.api.slurmjob import LONGEST_NAME, MUTABLE, SlurmJobSpec
from redbox_operator.api.slurmjob_status import SlurmJobStatus
from redbox_operator.api.sylabs import OLD_KINDS

COLUMNS_OF_JOB: list[Schema] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Job", "type": "string", "jsonPath": ".status.jobID", "description": "Slurm's job id."},
    {"name": "Cluster", "type": "string", "jsonPath": ".status.cluster"},
    {"name": "Partition", "type": "string", "jsonPath": ".status.partition"},
    {"name": "Nodes", "type": "string", "jsonPath": ".status.nodeList"},
    {"name": "Exit", "type": "integer", "jsonPath": ".status.exitCode", "description": "Its exit code."},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "User", "type": "string", "jsonPath": ".status.user", "priority": 1},
    {"name": "Endpoint", "type": "string", "jsonPath": ".status.endpoint", "priority": 1},
    {"name": "Reason", "type": "string", "jsonPath": ".status.reason", "priority": 1},
    {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
]
COLUMNS_OF_OLD_JOB: list[Schema] = [
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Status", "type": "string", "jsonPath": ".status.status"},
    {"name": "Job", "type": "string", "jsonPath": ".status.jobID", "description": "Slurm's job id."},
    {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
]
REACHABLE: Schema = {
    "name": "Reachable",
    "type": "string",
    "jsonPath": ".status.conditions[?(@.type=='Reachable')].status",
    "description": "Whether its red-box answers the operator.",
}
COLUMNS_OF_CLUSTER: list[Schema] = [
    REACHABLE,
    {"name": "Slurm", "type": "string", "jsonPath": ".status.version", "description": "Slurm's version."},
    {"name": "Partitions", "type": "integer", "jsonPath": ".status.partitionCount"},
    {"name": "Delivery", "type": "string", "jsonPath": ".spec.delivery"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Endpoint", "type": "string", "jsonPath": ".spec.endpoint", "priority": 1},
]
COLUMNS_OF_ENDPOINT: list[Schema] = [
    REACHABLE,
    {"name": "Slurm", "type": "string", "jsonPath": ".status.version", "description": "Slurm's version."},
    {"name": "Partitions", "type": "integer", "jsonPath": ".status.partitionCount"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Endpoint", "type": "string", "jsonPath": ".spec.endpoint", "priority": 1},
    {"name": "Audience", "type": "string", "jsonPath": ".status.audience", "priority": 1},
]
NAME_OF_JOB = rule(
    f"self.metadata.name.size() <= {LONGEST_NAME}",
    f"a SlurmJob's name has at most {LONGEST_NAME} characters, because its pod is called <name>-job",
)
NAME_OF_CLUSTER = rule(
    "self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')",
    "a SlurmCluster's name has at most 63 characters of a-z, 0-9 and -, because it is a label of nodes",
)
NAME_OF_ENDPOINT = rule(
    "self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')",
    "a SlurmEndpoint's name has at most 63 characters of a-z, 0-9 and -, because it is a label of pods",
)
UNCHANGED = rule("self == oldSelf", "spec is immutable: create another object, or delete this one first")
RULES_OF_CLUSTER = [
    rule(
        "self.audience == oldSelf.audience",
        "audience is immutable, because a token for one red-box must not be valid for another",
    ),
    rule(
        "!self.holdBack || self.delivery == 'Virtual' || self.gateways",
        "holdBack needs nodes with the partitions' resources: set delivery to Virtual, or set gateways",
    ),
    rule(
        "!has(self.pods) || !self.pods.apiTokens || has(self.pods.apiServer)",
        "pods.apiTokens needs pods.apiServer, the URL at which Slurm nodes reach the API server",
    ),
    rule(
        "!has(self.pods) || !has(self.pods.mounts) || self.pods.mounts.all(one, "
        "(one.server != '') == (one.path != '') && (one.driver != '') == (one.volumeHandle != '') && "
        "(one.server != '') != (one.driver != ''))",
        "each of pods.mounts has either server and path, or driver and volumeHandle",
    ),
]


def all_crds() -> list[Schema]:
    """All CRDs of Red Box."""
    newest, *old = crds_of_jobs()
    return [newest, _slurm_cluster(), _slurm_endpoint(), *old]


def crds_of_jobs() -> list[Schema]:
    """Those whose objects are jobs."""
    return [_slurm_job(), *(_old_kind(resource) for resource in OLD_KINDS)]


def _slurm_job() -> Schema:
    spec = structural(SlurmJobSpec)
    fixed = [name for name in spec["properties"] if name not in MUTABLE]
    spec["x-kubernetes-validations"].append(immutable(fixed, "SlurmJob"))
    schema = object_schema([NAME_OF_JOB], spec, SlurmJobStatus, "A Slurm job.")
    return crd(SLURM_JOBS, ["sj"], schema, COLUMNS_OF_JOB)


def _old_kind(resource: Kind) -> Schema:
    """Without a rule for names: objects of old kinds may have long ones, which the operator reports."""
    spec = structural(OLD_KINDS[resource])
    spec["x-kubernetes-validations"] = [UNCHANGED]
    schema = object_schema([], spec, SlurmJobStatus, "A Slurm job, as defined by Sylabs' operators.")
    return crd(resource, [], schema, COLUMNS_OF_OLD_JOB)


def _slurm_cluster() -> Schema:
    spec = structural(SlurmClusterSpec)
    spec["x-kubernetes-validations"] = RULES_OF_CLUSTER
    schema = object_schema([NAME_OF_CLUSTER], spec, SlurmClusterStatus, "A Slurm cluster behind a red-box.")
    return crd(SLURM_CLUSTERS, ["slc"], schema, COLUMNS_OF_CLUSTER)


def _slurm_endpoint() -> Schema:
    spec = structural(SlurmEndpointSpec)
    description = "A Slurm cluster behind a red-box of one namespace."
    schema = object_schema([NAME_OF_ENDPOINT], spec, SlurmEndpointStatus, description)
    return crd(SLURM_ENDPOINTS, ["sle"], schema, COLUMNS_OF_ENDPOINT)
