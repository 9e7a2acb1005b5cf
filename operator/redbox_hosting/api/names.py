"""Public names of hosted Slurm: kinds, labels, annotations, ports, accounts, and names of objects."""

from __future__ import annotations

from redbox_kube.api.kinds import Kind

GROUP = "slurm.redbox.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

CONTROLLERS = Kind(GROUP, VERSION, "controllers", "Controller")
NODE_SETS = Kind(GROUP, VERSION, "nodesets", "NodeSet")
LOGIN_SETS = Kind(GROUP, VERSION, "loginsets", "LoginSet")
REST_APIS = Kind(GROUP, VERSION, "restapis", "RestApi")
ACCOUNTINGS = Kind(GROUP, VERSION, "accountings", "Accounting")
TOKENS = Kind(GROUP, VERSION, "tokens", "Token")

LABEL_CLUSTER = f"{GROUP}/cluster"
"""On every object of a cluster: the name of its Controller. NetworkPolicies select by it."""
LABEL_ROLE = f"{GROUP}/role"
"""On pods: slurmctld, slurmd, slurmdbd, slurmrestd, control, login, mariadb, trial, homes."""
LABEL_NODE_SET = f"{GROUP}/nodeset"
LABEL_ORDINAL = f"{GROUP}/ordinal"
LABEL_PROTECTED = f"{GROUP}/protected"
"""On a worker from its birth until the gate has passed: evictions and deletions are refused."""
LABEL_POD_FORMAT = f"{GROUP}/pod-format"
LABEL_REVISION = "controller-revision-hash"

ANNOTATION_CONFIG_HASH = f"{GROUP}/config-hash"
"""On a pod: the configuration it is to have. A change makes the kubelet project the new files immediately."""
ANNOTATION_REFUSED = f"{GROUP}/refused"
"""On the record of a configuration: Slurm's words. It is not tried again while the record is there."""
ANNOTATION_TRIED = f"{GROUP}/tried"
"""On the record of a configuration: `accepted`, or why its trial has said nothing."""
ANNOTATION_REREAD = f"{GROUP}/reread"
"""On slurmctld's pod after a refused reconfigure: until the next, new workers get the refused files."""
ANNOTATION_PROJECT_AGAIN = f"{GROUP}/project-again"
"""On slurmctld's pod: when the kubelet was last asked again, as it had projected the files of before."""
ANNOTATION_CONNECTION = f"{GROUP}/connection"
"""On the pod of a slurmrestd: the digest of what it read of slurm.conf."""
ANNOTATION_ROTATE_KEYS = f"{GROUP}/rotate-keys"
"""On a Controller, by its administrator: each new value rotates slurm.jwks and jwt.key once."""
ANNOTATION_KEYS = f"{GROUP}/keys"
"""On a pod and on slurmdbd's StatefulSet: the SHA-256 of the slurm.jwks that it is to have."""

ANNOTATION_USERS = f"{GROUP}/users"
"""On the ConfigMap of users and on pods: the digest of the users that they are to have."""

ANNOTATION_UNINSTALL = f"{GROUP}/uninstall-workers"
"""On a Controller, by its administrator: Drain or Abandon, when its chart is uninstalled."""

OBJECT_FORMAT = 1
"""Of all objects that this operator writes: an older one deletes nothing where a newer one has written."""
ANNOTATION_CONDEMNED = f"{GROUP}/condemned"
"""On a worker's pod: why it is to go. An administrator may set it: the worker ends after its jobs."""
ANNOTATION_CONDEMNED_AT = f"{GROUP}/condemned-at"
ANNOTATION_CORDON = f"{GROUP}/pod-cordon"
"""On a worker's pod, by its administrator: the node is drained, with this reason."""
ANNOTATION_FORCE_DELETE = f"{GROUP}/force-delete"
"""On a worker's pod, by its administrator: it goes with its jobs, for this reason."""
ANNOTATION_DEADLINE = f"{GROUP}/pod-deadline"
ANNOTATION_DELETION_COST = f"{GROUP}/pod-deletion-cost"
ANNOTATION_CREATED_AS = f"{GROUP}/created-as"
"""On a worker's pod: the part of its spec that others must not change."""
ANNOTATION_NODE_CORDON_REASON = f"{GROUP}/node-cordon-reason"
"""On a Kubernetes node, by its administrator."""
LABEL_HOLDS_WORKERS = f"{GROUP}/holds-workers"
"""On a namespace while workers are in it: its deletion is refused."""
FINALIZER_WORKERS = f"{GROUP}/workers"
"""Of a NodeSet: it goes after its workers."""
FINALIZER_NODE_SETS = f"{GROUP}/nodesets"
"""Of a Controller: slurmctld outlives the workers that have its jobs."""
CONDITION_DRAINING = f"{GROUP}/Draining"
"""Of a worker's pod: whether its node is out of service in Slurm, and by whom."""

NODE_NAME_FIELD = "metadata.name"
"""In a node affinity: the name of the Kubernetes node."""
POD_FORMAT = 1
"""Of the pods that this operator makes; pods of the last two formats are kept."""
SLURM_UID = 64030
"""Debian's account slurm, which is SlurmUser."""
NOBODY_UID = 65534
MARIADB_UID, MARIADB_GID = 100, 101
PORT_SLURMCTLD, PORT_SLURMD, PORT_SLURMDBD, PORT_SLURMRESTD = 6817, 6818, 6819, 6820
PORT_SUPERVISOR, PORT_CONTROL, PORT_MARIADB = 6821, 6822, 3306
PORT_SSHD, PORT_SSH = 2222, 22
"""Of the pods, which have no right to ports below 1024, and of their Service."""
REASON_PREFIX = "red-box: "
"""Begins the reason of each drain that the operator sets; all others are an administrator's."""


def controller_name(controller: str) -> str:
    """The StatefulSet of slurmctld, and its headless Service."""
    return f"{controller}-controller"


def controller_host(controller: str) -> str:
    """The only pod of slurmctld."""
    return f"{controller_name(controller)}-0"


def controller_address(controller: str) -> str:
    """The Service that daemons and clients connect to."""
    return f"{controller}-slurmctld"


def mounted_config_name(controller: str) -> str:
    """The ConfigMap that pods mount: a copy of one of the immutable ones."""
    return f"{controller}-config"


def config_name(controller: str, digest: str) -> str:
    """The immutable ConfigMap of one configuration."""
    return f"{controller}-config-{digest}"


def users_name(controller: str) -> str:
    """The ConfigMap with the good lines of users and groups, which pods mount."""
    return f"{controller}-users"


def homes_name(controller: str, digest: str) -> str:
    """The Job that makes the homes of these users; the digest is cut as its name has to fit into a label."""
    return f"{controller}-homes-{digest[:10]}"


def trial_name(controller: str, digest: str) -> str:
    """The pod in which one configuration is tried; the digest is cut as its name has to fit into a label."""
    return f"{controller}-trial-{digest[:16]}"


def keys_name(controller: str) -> str:
    """The Secret with slurm.key or slurm.jwks, and jwt.key."""
    return f"{controller}-keys"


def authority_name(controller: str) -> str:
    """The Secret with the authority of the cluster's TLS endpoints; no pod mounts it."""
    return f"{controller}-authority"


def tls_name(owner: str) -> str:
    """The Secret with the certificate of a daemon's TLS endpoint, its key, and the authority of clients."""
    return f"{owner}-tls"


def account_name(controller: str, role: str) -> str:
    """The ServiceAccount of the pods of one role. It has no rights."""
    return f"{controller}-{role}"


def control_name(controller: str) -> str:
    """The operator's own way to slurmrestd."""
    return f"{controller}-control"


def workers_name(controller: str) -> str:
    """The headless Service of all workers, their budget, and their ServiceAccount."""
    return f"{controller}-workers"


def logins_name(controller: str) -> str:
    """The headless Service of all login pods: srun is called back by its host's name."""
    return f"{controller}-logins"


def login_name(login_set: str) -> str:
    """The StatefulSet of sshd, its Service, its configuration and its host key."""
    return f"{login_set}-login"


def rest_api_name(rest_api: str) -> str:
    """The Deployment of users' slurmrestd, and its Service."""
    return f"{rest_api}-restapi"


def accounting_name(accounting: str) -> str:
    """The StatefulSet of slurmdbd, its Services and its configuration."""
    return f"{accounting}-accounting"


def database_name(accounting: str) -> str:
    """The StatefulSet of MariaDB, its Service and its Secret."""
    return f"{accounting}-database"


def short_name(kubernetes_node: str) -> str:
    """Of its worker with `scalingMode: DaemonSet`, as host names are."""
    return kubernetes_node.partition(".")[0]


def node_name(prefix: str, ordinal: int, padding: int = 0) -> str:
    """Of a worker: its pod, its host name and its node in Slurm."""
    return f"{prefix}-{ordinal:0{padding}d}" if not prefix.endswith("-") else f"{prefix}{ordinal:0{padding}d}"
