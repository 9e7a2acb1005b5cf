"""Why a pod on a virtual node waits, fails or stays: reasons of its status, its containers and of events."""

from __future__ import annotations

from redbox_shared.explanations.explanation import Explanation

WAITS = "Wait: it is retried."
IMAGE = "Check the name, `imagePullPolicy` and `imagePullSecrets`, and `apptainer pull` on a node."
REPORT = "Report it, with resourced's log."

POD_WAITS = {
    "Busy": Explanation("red-box has too many requests, or Slurm does not answer it.", WAITS),
    "ClusterBeingDeleted": Explanation(
        "An administrator is deleting the SlurmCluster.", "Delete the pod, and choose another cluster."
    ),
    "ContainerCreating": Explanation("The job is on its way, or waits in Slurm.", WAITS),
    "CreateContainerConfigError": Explanation(
        "A Secret, ConfigMap or key is missing, a `subPath` is wrong, or resourced may not read Secrets of "
        "this namespace.",
        "Create the object. Secrets are read only in namespaces of `resourced.pods.namespaces` of the chart.",
    ),
    "NoCluster": Explanation(
        "The pod's virtual node belongs to no SlurmCluster any more.", "Delete the pod."
    ),
    "NodeGone": Explanation(
        "The virtual node does not exist: its partition is gone.",
        "Delete the pod, and choose another partition.",
    ),
    "NoRequest": Explanation("The ConfigMap with the job's request does not exist yet.", WAITS),
    "NoSuchOwner": Explanation(
        "The SlurmJob or service account of this pod does not exist.", "Create it, or delete the pod."
    ),
    "NotAllowed": Explanation(
        "Kubernetes does not give resourced a token for the pod.",
        "The Kubernetes administrator applies the chart again.",
    ),
    "NotAuthenticated": Explanation(
        "red-box does not accept the pod's token.",
        "The HPC administrator runs `redbox check`. The pod is retried.",
    ),
    "NotCancelled": Explanation("red-box has not confirmed a cancel.", WAITS),
    "NotKnown": Explanation(
        "red-box has no record of the job: its journal was lost.",
        "The HPC administrator runs `redbox recover`.",
    ),
    "NotTheCompanion": Explanation(
        "The pod has the labels of a job's pod, and the operator did not create it.", "Delete the pod."
    ),
    "PodsNotServed": Explanation(
        "resourced has no rights for pods, or an admission policy is missing.",
        "The Kubernetes administrator reads the condition `PodsReady` of the SlurmCluster.",
    ),
    "RedboxTooOld": Explanation(
        "red-box is older than resourced.", "The HPC administrator upgrades red-box."
    ),
    "RedboxUnreachable": Explanation(
        "resourced has no connection to red-box.",
        "Wait. The administrators see the condition `Reachable` of the SlurmCluster.",
    ),
    "RequestChanged": Explanation(
        "The request in the ConfigMap is not the one that the operator wrote.", "Delete the SlurmJob."
    ),
    "WaitsForSubmitter": Explanation("The pod that submits the job has not finished.", WAITS),
    "ErrImageNeverPull": Explanation("The image is not in the cache, and may not be pulled.", IMAGE),
    "ErrImagePull": Explanation("The image cannot be pulled.", IMAGE),
    "ImagePullBackOff": Explanation("The image cannot be pulled; the next try waits.", IMAGE),
    "InvalidImageName": Explanation("The image's name is not valid.", "Correct the name."),
    "FailedMount": Explanation(
        "A Secret, ConfigMap or claim that is mounted is missing or not bound, or its files cannot change.",
        "Create the object that the message names, or make room where it says so.",
    ),
}
"""In a waiting container or an event."""

POD_FAILURES = {
    "BeingDeleted": Explanation("The pod is being deleted.", "Nothing."),
    "Cancelled": Explanation("The job was cancelled in Slurm.", "Create the pod again."),
    "ContainerStatusUnknown": Explanation(
        "The job ended without a report about this container (exit code 137).",
        "See `sacct` and the pod's log.",
    ),
    "DeadlineExceeded": Explanation(
        "The pod or its job had its time.", "Raise `activeDeadlineSeconds` or `redbox.dev/time`."
    ),
    "Evicted": Explanation("An emptyDir has reached its `sizeLimit`.", "Raise it."),
    "ImagePullFailed": Explanation(
        "The image could not be pulled for ten minutes while the pod held its nodes.", IMAGE
    ),
    "LaunchFailed": Explanation(
        "The node could not launch the job.",
        "Let a Job replace the pod. If it repeats on one node, the HPC administrator reads slurmd's log.",
    ),
    "Lost": Explanation("Slurm has forgotten the job.", "Create the pod again."),
    "NodeLost": Explanation("A node of the job failed.", "Let a Job replace the pod."),
    "NotRunOnVirtualNode": Explanation(
        "The pod does not name virtual nodes, or pods are off.",
        "Choose real nodes with a `nodeSelector`, or do not tolerate `redbox.dev/slurm`. An administrator "
        "turns pods on.",
    ),
    "OOMKilled": Explanation(
        "The job's memory was used up.",
        "Raise it. About 30 MB of each container are Apptainer's.",
    ),
    "PodGone": Explanation("The pod does not exist any more.", "Nothing."),
    "PortInUse": Explanation(
        "Another process of the node uses the port: the network is the node's.",
        "Use the annotation `redbox.dev/dynamic-ports`, or `redbox.dev/exclusive`, or choose another port.",
    ),
    "Preempted": Explanation("Another job preempted it.", "Let a Job replace the pod."),
    "Refused": Explanation(
        "red-box or Slurm refuses the job.",
        "Fix what the message names. For a mapping rule ask the HPC administrator.",
    ),
    "ScratchUnavailable": Explanation(
        "The pod's user cannot write to `pods.scratch` on that node.",
        "The HPC administrator makes the folder writable.",
    ),
    "StartError": Explanation(
        "The program is missing or not executable (exit code 128).",
        "Correct `command`; `runner-<job id>.log` in the working directory has the reason.",
    ),
    "Unsupported": Explanation(
        "The pod has a field that no job can have.", "Leave out the field that the message names."
    ),
}
"""Of a pod or container that failed or was refused."""

POD_EVENTS = {
    "Contradiction": Explanation("red-box's answer calls the job ended and alive.", REPORT),
    "FailedPostStartHook": Explanation(
        "The hook failed, which stops the container.", "Correct the hook; the event has its output."
    ),
    "FailedPreStopHook": Explanation("The hook failed.", "Correct the hook; the event has its output."),
    "JobAbandoned": Explanation(
        "The pod is gone, and its job was not cancelled.", "`scancel` the job that the event names."
    ),
    "JobNotEnded": Explanation(
        "The job cannot be cancelled, or Slurm has not ended it.",
        "Wait. `kubectl delete --force` does not wait.",
    ),
    "JobOutlivesPod": Explanation("Slurm runs the job of a pod that has ended.", "Nothing: it is cancelled."),
    "ProvisioningFailed": Explanation(
        "The claim's folder was not made on the Slurm cluster.",
        "Fix what the message names: StorageClass, service account or the role volumes in `mapping.rules`.",
    ),
    "TooManyServices": Explanation(
        "More than 16 Services select a pod with dynamic ports; the others do not lead to it.",
        "Delete some, or select fewer pods with them.",
    ),
    "Unhealthy": Explanation(
        "A probe failed.", "Give a slow program a `startupProbe`, or raise `failureThreshold`."
    ),
    "VolumeFailedDelete": Explanation(
        "The claim's folder was not deleted on the Slurm cluster.", "Follow the message."
    ),
}
"""Events of pods and claims."""

SESSION_ENDS = {
    "CannotStart": Explanation(
        "The container does not run, the node has no nsenter, or a process hangs in the kernel.",
        "Follow the message.",
    ),
    "ConnectionLost": Explanation(
        "The connection to red-box broke before it sent a status.", "Repeat the command."
    ),
    "ConnectionReset": Explanation("The server in the job reset a forwarded connection.", "Read its log."),
    "ContainerLost": Explanation(
        "The pod's runner ended without a report of the container's end.",
        "See `runner-<job id>.log` in the working directory.",
    ),
    "Idle": Explanation(
        "Nothing was sent or received for `exec.idle_limit`.",
        "Repeat the command, or the HPC administrator raises the limit.",
    ),
    "InternalError": Explanation("An unexpected error in red-box.", "Report it with red-box's log."),
    "Invalid": Explanation(
        "The job cannot be entered as requested: no such node, or an array without a task.",
        "Follow the message.",
    ),
    "JobEnded": Explanation("The job has ended or was requeued.", "Nothing."),
    "NotAuthorized": Explanation(
        "The token has expired or was revoked, or the rules changed.", "Repeat the command."
    ),
    "PortRefused": Explanation(
        "No server of the job's user listens on the port, or it does not answer.",
        "Start it, or name another port.",
    ),
    "RelayLost": Explanation(
        "The step on the node has ended, or Slurm did not start it; the message has srun's words.",
        "Repeat the command. The job continues.",
    ),
    "ServiceUnavailable": Explanation(
        "red-box stops or restarts, or Slurm does not answer.", "Repeat the command later."
    ),
    "TooManyRequests": Explanation("The caller has too many sessions.", "End some."),
}
"""Why a session in a job ends other than by its command."""
