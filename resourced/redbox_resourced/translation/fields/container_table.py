"""Fields of containers, init containers and sidecars."""

from __future__ import annotations

from redbox_resourced.translation.fields.rules import (
    FieldTable,
    honoured,
    mapped,
    meaningless,
    never,
    only,
    refused,
)

OWN_USER = (
    "the containers run as the Unix user that the service account is mapped to: leave it out, or have "
    "`pods.users: map` set in the SlurmCluster, with which they see themselves as another"
)
NO_NODE_PROFILES = "Slurm's nodes have no profiles of Kubernetes: leave it out, or use RuntimeDefault"
SECCOMP: FieldTable = {
    "type": only(NO_NODE_PROFILES, "RuntimeDefault", "Unconfined"),
    "localhostProfile": refused(NO_NODE_PROFILES),
}
CAPABILITIES: FieldTable = {
    "add": refused("a user's container on Slurm has no capability: leave it out"),
    "drop": honoured("There are none to begin with."),
}
SECURITY_CONTEXT: FieldTable = {
    "allowPrivilegeEscalation": meaningless("Containers never gain privileges."),
    "appArmorProfile": honoured(
        "RuntimeDefault and Unconfined are accepted and have no effect: AppArmor is the Slurm nodes' own.",
        SECCOMP,
    ),
    "capabilities": honoured("", CAPABILITIES),
    "privileged": never("a user's container on Slurm is never privileged: leave it out"),
    "procMount": only("containers have the default /proc: leave it out", "Default"),
    "readOnlyRootFilesystem": honoured("Otherwise the root is writable, and is gone at each start."),
    "runAsGroup": mapped(OWN_USER),
    "runAsNonRoot": honoured("The mapped user is not root."),
    "runAsUser": mapped(OWN_USER),
    "seLinuxOptions": mapped(
        "SELinux is the Slurm nodes' own: leave it out; with `pods.users: map` it has no effect"
    ),
    "seccompProfile": honoured(
        "With RuntimeDefault the container's program may not call what container runtimes deny: keyctl, bpf, "
        "mount, unshare, perf_event_open and the like. Commands that enter the container are not filtered.",
        SECCOMP,
    ),
    "windowsOptions": refused("Slurm's nodes run Linux: leave it out"),
}
EXEC: FieldTable = {
    "command": honoured("With the annotation redbox.dev/mpi it is refused in the main container.")
}
HTTP_GET: FieldTable = {
    "host": honoured("By default the node's own address, where only the job's own servers are reached."),
    "httpHeaders": honoured("", {"name": honoured(), "value": honoured()}),
    "path": honoured(),
    "port": honoured("A number, or the name of a port of the container."),
    "protocol": refused("probes and hooks use HTTP/1.1: leave it out"),
    "scheme": honoured(),
}
TCP_SOCKET: FieldTable = {
    "host": refused("a probe reaches the pod's own node alone: leave it out"),
    "port": honoured("A number, or the name of a port of the container."),
}
GRPC: FieldTable = {
    "mode": refused("a probe by gRPC is without TLS: leave it out"),
    "port": honoured(),
    "service": honoured(),
}
PROBE: FieldTable = {
    "exec": honoured("", EXEC),
    "failureThreshold": honoured(),
    "grpc": honoured("grpc.health.v1.Health/Check.", GRPC),
    "httpGet": honoured("", HTTP_GET),
    "initialDelaySeconds": honoured(),
    "periodSeconds": honoured(),
    "successThreshold": honoured(),
    "tcpSocket": honoured("", TCP_SOCKET),
    "terminationGracePeriodSeconds": honoured(),
    "timeoutSeconds": honoured(),
}
HOOK: FieldTable = {
    "exec": honoured("", EXEC),
    "httpGet": honoured("", HTTP_GET),
    "sleep": honoured("", {"seconds": honoured()}),
    "tcpSocket": refused("Kubernetes runs no hook by tcpSocket: use exec or httpGet"),
}
LIFECYCLE: FieldTable = {
    "postStart": honoured("", HOOK),
    "preStop": honoured("", HOOK),
    "stopSignal": honoured(),
}
FIELD_REF: FieldTable = {"apiVersion": only("only v1 is there: leave it out", "v1"), "fieldPath": honoured()}
RESOURCE_FIELD_REF: FieldTable = {
    "containerName": honoured(),
    "divisor": honoured(),
    "resource": honoured(
        "cpu, memory and ephemeral-storage. A limit that is not set is the pod's or the job's."
    ),
}
KEY_REF: FieldTable = {"key": honoured(), "name": honoured(), "optional": honoured()}
NAME_REF: FieldTable = {"name": honoured(), "optional": honoured()}
VALUE_FROM: FieldTable = {
    "configMapKeyRef": honoured("", KEY_REF),
    "fieldRef": honoured("Addresses and the node's name are those of the Slurm node.", FIELD_REF),
    "fileKeyRef": refused("variables from files of volumes are not in this version: read the file instead"),
    "resourceFieldRef": honoured("", RESOURCE_FIELD_REF),
    "secretKeyRef": honoured("", KEY_REF),
}
ENV: FieldTable = {
    "name": honoured("Printable ASCII characters without `=`, also those that no shell takes."),
    "value": honoured(),
    "valueFrom": honoured("", VALUE_FROM),
}
ENV_FROM: FieldTable = {
    "configMapRef": honoured("", NAME_REF),
    "prefix": honoured(),
    "secretRef": honoured("", NAME_REF),
}
PORT: FieldTable = {
    "containerPort": honoured(
        "The network is the node's: a port that is taken is reported as PortInUse. With the annotation "
        "redbox.dev/dynamic-ports it stands for a free port of the node."
    ),
    "hostIP": refused("the network is the node's, with all its addresses: leave it out"),
    "hostPort": honoured("It must be containerPort: the network is the node's; refused with dynamic ports."),
    "name": honoured("For probes and hooks."),
    "protocol": honoured(),
}
RESOURCES: FieldTable = {
    "claims": refused("resource claims are of Kubernetes' own nodes: request GPUs as nvidia.com/gpu"),
    "limits": honoured(
        "memory becomes the job's memory, if each of the containers that run at the same time names some; "
        "else Slurm's default counts. GPUs become GPUs of the job."
    ),
    "requests": honoured(
        "cpu becomes CPUs of the job. ephemeral-storage becomes --tmp, which Slurm refuses where slurm.conf "
        "gives its nodes no TmpDisk."
    ),
}
MOUNT: FieldTable = {
    "bindMountOptions": refused("options of mounts are not in this version: leave it out"),
    "mountPath": honoured(
        "At /dev/shm each container has memory of its own: an emptyDir that one container alone mounts may "
        "be there, and its sizeLimit has no effect then."
    ),
    "mountPropagation": only("mounts are not passed on between container and node: leave it out", "None"),
    "name": honoured(),
    "readOnly": honoured(),
    "recursiveReadOnly": only("leave it out", "Disabled", "IfPossible"),
    "subPath": honoured(),
    "subPathExpr": honoured(),
}
CONTAINER: FieldTable = {
    "args": honoured(),
    "command": honoured(),
    "env": honoured("", ENV),
    "envFrom": honoured("", ENV_FROM),
    "image": honoured("As for a kubelet, or the absolute path of a SIF on the Slurm nodes."),
    "imagePullPolicy": honoured(),
    "lifecycle": honoured("", LIFECYCLE),
    "livenessProbe": honoured("", PROBE),
    "name": honoured(),
    "ports": honoured("", PORT),
    "readinessProbe": honoured("", PROBE),
    "resizePolicy": meaningless("Resources of a job cannot change while it runs."),
    "resources": honoured("", RESOURCES),
    "restartPolicy": only("only an init container restarts by a policy of its own, Always", "Always"),
    "restartPolicyRules": refused("rules of restarts are not in this version: use the pod's restartPolicy"),
    "securityContext": honoured("", SECURITY_CONTEXT),
    "startupProbe": honoured("", PROBE),
    "stdin": honoured(
        "For kubectl attach -i and kubectl run -i, where red-box allows sessions. With the annotation "
        "redbox.dev/mpi it is refused."
    ),
    "stdinOnce": honoured("As for a kubelet; the first client also sees what was written before it came."),
    "terminationMessagePath": honoured(),
    "terminationMessagePolicy": honoured(),
    "tty": honoured("The log has what the terminal shows. With the annotation redbox.dev/mpi it is refused."),
    "volumeDevices": refused("a user's job has no block devices: mount a file system"),
    "volumeMounts": honoured("", MOUNT),
    "workingDir": honoured(),
}
PROCESS_TRACING = ["SYS_PTRACE"]
"""What kubectl's profiles add; the processes of a pod are the user's own, whom the kernel lets trace them."""
EPHEMERAL: FieldTable = {
    **CONTAINER,
    "securityContext": honoured(
        "",
        {
            **SECURITY_CONTEXT,
            "capabilities": honoured(
                "",
                {
                    **CAPABILITIES,
                    "add": only(
                        "a user's container on Slurm has no capability: leave it out", PROCESS_TRACING
                    ),
                },
            ),
        },
    ),
    "targetContainerName": honoured(),
}
"""Of ephemeral containers."""
