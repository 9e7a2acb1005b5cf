"""Fields of a Pod."""

from __future__ import annotations

from redbox_resourced.translation.errors import OS_UNSUPPORTED
from redbox_resourced.translation.fields.container_table import (
    CONTAINER,
    EPHEMERAL,
    OWN_USER,
    RESOURCES,
    SECURITY_CONTEXT,
)
from redbox_resourced.translation.fields.rules import (
    FieldTable,
    added,
    honoured,
    mapped,
    meaningless,
    never,
    only,
    refused,
)
from redbox_resourced.translation.fields.volume_table import VOLUME

SCHEDULED = "By Kubernetes' scheduler, before the job is submitted."
POD_SECURITY_CONTEXT: FieldTable = {
    **{
        name: SECURITY_CONTEXT[name]
        for name in (
            *("appArmorProfile", "runAsGroup", "runAsNonRoot", "runAsUser", "seLinuxOptions"),
            *("seccompProfile", "windowsOptions"),
        )
    },
    "fsGroup": mapped(OWN_USER),
    "fsGroupChangePolicy": meaningless("No owner of a file is changed."),
    "seLinuxChangePolicy": meaningless("No label of a file is changed."),
    "supplementalGroups": refused("the containers have the groups of the Unix user: leave it out"),
    "supplementalGroupsPolicy": meaningless("The groups are those of the Unix user."),
    "sysctls": refused("a user's job cannot set kernel parameters: leave it out"),
}
DNS: FieldTable = {
    "nameservers": honoured(),
    "options": honoured("", {"name": honoured(), "value": honoured()}),
    "searches": honoured(),
}
SPEC: FieldTable = {
    "activeDeadlineSeconds": honoured(
        "From the job's start. The job's time limit is later, by half an hour and the grace period, as far "
        "as the partition allows; a deadline beyond the partition's MaxTime is refused. One that is set or "
        "lowered later ends the pod sooner, and changes nothing of the job."
    ),
    "affinity": honoured(SCHEDULED),
    "automountServiceAccountToken": honoured(
        "The volume that it brings has ca.crt and namespace; a token only with `pods.apiTokens` of the "
        "SlurmCluster, in the namespaces of the chart's `apiTokenNamespaces`."
    ),
    "containers": honoured("", CONTAINER),
    "dnsConfig": honoured("With dnsPolicy None, else it is refused.", DNS),
    "dnsPolicy": honoured("None: as dnsConfig says; any other: the Slurm node's own resolver."),
    "enableServiceLinks": meaningless("Services' variables are not set."),
    "ephemeralContainers": added(
        "Fields as in `spec.containers[]`, as far as Kubernetes takes them there. Begun where red-box allows "
        "sessions, with the job's resources. With `targetContainerName` (`kubectl debug --target`) one sees "
        "that container's processes, as the same user and without a seccompProfile. Of capabilities "
        "SYS_PTRACE is accepted: it has no effect, and is not needed.",
        EPHEMERAL,
    ),
    "evictionResponders": meaningless("Slurm's node is never drained by evictions."),
    "hostAliases": honoured("", {"hostnames": honoured(), "ip": honoured()}),
    "hostIPC": never("each container has an IPC namespace of its own: leave it out"),
    "hostNetwork": honoured("The network is always the node's; with it the host name is the node's too."),
    "hostPID": never("each container has a PID namespace of its own: leave it out"),
    "hostUsers": meaningless("Containers always run in a user namespace of the user."),
    "hostname": honoured("By default the pod's name; of a job with several nodes or MPI, the node's."),
    "hostnameOverride": honoured(),
    "imagePullSecrets": honoured("", {"name": honoured()}),
    "initContainers": honoured("Also sidecars, with restartPolicy Always.", CONTAINER),
    "nodeName": honoured(
        "The virtual node, which is a partition. It replaces neither the toleration nor the node selector."
    ),
    "nodeSelector": honoured(SCHEDULED),
    "os": honoured("", {"name": only("Slurm's nodes run Linux", "linux", reason=OS_UNSUPPORTED)}),
    "overhead": honoured("Added to what the job requests."),
    "preemptionPolicy": meaningless("Virtual nodes have room for all pods."),
    "priority": meaningless("See the annotation redbox.dev/qos."),
    "priorityClassName": meaningless("See the annotation redbox.dev/qos."),
    "readinessGates": honoured("", {"conditionType": honoured()}),
    "resourceClaims": refused("resource claims are of Kubernetes' own nodes: request GPUs as nvidia.com/gpu"),
    "resources": honoured("In place of the containers' sum.", RESOURCES),
    "restartPolicy": honoured(),
    "runtimeClassName": refused("containers run in Apptainer: leave it out"),
    "schedulerName": honoured(SCHEDULED),
    "schedulingGates": honoured(SCHEDULED),
    "schedulingGroup": meaningless("Each pod is a job of its own: see the annotation redbox.dev/nodes."),
    "securityContext": honoured("", POD_SECURITY_CONTEXT),
    "serviceAccount": honoured("As serviceAccountName."),
    "serviceAccountName": honoured("Its Unix user, by red-box's mapping, owns the job."),
    "setHostnameAsFQDN": never("the containers' names are not in Kubernetes' DNS: leave it out"),
    "shareProcessNamespace": never("each container has a PID namespace of its own: leave it out"),
    "subdomain": meaningless("The pod's name is not in Kubernetes' DNS."),
    "terminationGracePeriodSeconds": honoured(),
    "tolerations": honoured(SCHEDULED),
    "topologySpreadConstraints": honoured(SCHEDULED),
    "volumes": honoured("", VOLUME),
}
METADATA: FieldTable = {
    "annotations": honoured("Those of redbox.dev/ are options of the job; see below."),
    "labels": honoured("For the downward API."),
    "name": honoured("The job's name."),
    "namespace": honoured(),
    "uid": honoured("The job's key."),
    **{
        name: meaningless("The API server's own.")
        for name in (
            *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
            *(
                "generateName",
                "generation",
                "managedFields",
                "ownerReferences",
                "resourceVersion",
                "selfLink",
            ),
        )
    },
}
POD: FieldTable = {
    "apiVersion": honoured(),
    "kind": honoured(),
    "metadata": honoured("", METADATA),
    "spec": honoured("", SPEC),
    "status": meaningless("Written by resourced."),
}
