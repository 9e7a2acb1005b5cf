"""Why a SlurmJob is not in Slurm, or not deleted: reasons of its conditions, of its status and of events."""

from __future__ import annotations

from redbox_shared.explanations.explanation import Explanation

FIELD = "Fix the field that the message names, in a new SlurmJob."

SLURMJOB_REASONS = {
    "Cancelled": Explanation(
        "It was cancelled before Slurm had it.", "To run it, delete the SlurmJob and apply it again."
    ),
    "Cancelling": Explanation(
        "A cancel is requested, and red-box or Slurm has not confirmed it yet.",
        "Wait: it is repeated. `kubectl delete` with the annotation `redbox.dev/abandon` gives the job up.",
    ),
    "ClusterBeingDeleted": Explanation(
        "An administrator is deleting the SlurmCluster.",
        "Name another SlurmCluster in a new SlurmJob.",
    ),
    "ClusterMisconfigured": Explanation(
        "The spec of the SlurmCluster or SlurmEndpoint cannot be used, or the operator has not connected.",
        "The Kubernetes administrator fixes the field that the message names; the owner does so for a "
        "SlurmEndpoint. The job then continues.",
    ),
    "ClusterNotNamed": Explanation(
        "There are several SlurmClusters, or none, and the SlurmJob names none of them.",
        "Name one of `kubectl get slurmclusters` in `spec.cluster` of a new SlurmJob.",
    ),
    "CompanionFails": Explanation(
        "The job's pod ended repeatedly before its work was done, for example by eviction or a memory limit.",
        "`kubectl describe pod` shows why. The operator retries after an hour; the job itself may run.",
    ),
    "CompanionImage": Explanation(
        "The kubelet cannot pull the companion's image.",
        "The Kubernetes administrator makes the image of the chart's `images.registry` reachable for the "
        "nodes. The job then continues.",
    ),
    "CompanionNotStarted": Explanation(
        "A Secret, ConfigMap or volume that the job's pod mounts does not exist.",
        "Create the object that the message names; the job then continues.",
    ),
    "Contradiction": Explanation("Two fields of the SlurmJob contradict each other.", FIELD),
    "DependencyCycle": Explanation("The SlurmJobs depend on each other in a circle.", FIELD),
    "DependencyFailed": Explanation(
        "A SlurmJob that it depends on did not end as required, so it can never start.",
        "Create a new SlurmJob after the other one has ended as required.",
    ),
    "DependencyMissing": Explanation(
        "A SlurmJob that it depends on does not exist.", "Create that SlurmJob; this one then continues."
    ),
    "DependencyWaiting": Explanation("A SlurmJob that it depends on is not in Slurm yet.", "Wait."),
    "Invalid": Explanation("A field has a value that no job can have.", FIELD),
    "LimitRange": Explanation(
        "A LimitRange of the namespace does not admit the requests of the job's pod.",
        "The Kubernetes administrator changes the LimitRange. The job then continues.",
    ),
    "NameTaken": Explanation(
        "Another pod or ConfigMap has the name that the job's would have.",
        "Delete the other object, or give the SlurmJob another name.",
    ),
    "NameTooLong": Explanation("Names of its pods would be longer than Kubernetes allows.", FIELD),
    "NoServiceAccount": Explanation(
        "The namespace has no service account of this name.",
        "Create the service account, or name another one in a new SlurmJob.",
    ),
    "NoSuchCluster": Explanation(
        "The SlurmCluster that the SlurmJob names does not exist.",
        "Name one of `kubectl get slurmclusters` in a new SlurmJob.",
    ),
    "NoSuchEndpoint": Explanation(
        "The SlurmEndpoint does not exist, or the operator may not list those of this namespace.",
        "Create the SlurmEndpoint, or delete the SlurmJob: its job in Slurm keeps running.",
    ),
    "NoSuchPartition": Explanation(
        "With Virtual delivery: the SlurmCluster has no partition of this name.",
        "Name one of `kubectl slurm info` in a new SlurmJob.",
    ),
    "NotKnown": Explanation(
        "red-box has no record of the job any more: its journal was lost or replaced.",
        "The HPC administrator runs `redbox recover` on the login node.",
    ),
    "PodNotDeleted": Explanation(
        "A finalizer keeps the old pod of the job.",
        "`kubectl get pod NAME-job -o yaml` shows the finalizers; remove the one whose controller is gone.",
    ),
    "PodRefused": Explanation(
        "An admission policy of the cluster refuses the job's pod.",
        "The Kubernetes administrator admits the pod; the message names the policy. The job then continues.",
    ),
    "PodSecurity": Explanation(
        "The Pod Security level of the namespace refuses the job's pod.",
        "The Kubernetes administrator admits the pod, or the job asks for no `hostPath`.",
    ),
    "QuotaExceeded": Explanation(
        "A ResourceQuota of the namespace is used up: each SlurmJob needs a pod.",
        "Delete SlurmJobs that have ended, or ask the Kubernetes administrator for a larger quota. The job "
        "then continues.",
    ),
    "RedboxTooOld": Explanation(
        "red-box is older than the operator, and does not know a field of the SlurmJob.",
        "Leave the field out in a new SlurmJob, or ask the HPC administrator to upgrade red-box.",
    ),
    "Refused": Explanation(
        "red-box or Slurm refuses the job: no mapping rule, an unknown partition or account, or a wrong "
        "script. sudo or sshd may also refuse the user, after three to ten minutes of retries.",
        "Fix what the message names, delete the SlurmJob and apply it again. For a mapping rule ask the HPC "
        "administrator.",
    ),
    "ScriptMissing": Explanation(
        "The ConfigMap or key that `batchFrom` names does not exist.",
        "Create the ConfigMap; the job then continues.",
    ),
    "TooLarge": Explanation(
        "The request is larger than a ConfigMap can be.",
        "Make the script smaller, keep its data on the Slurm cluster, or use `batchFrom`.",
    ),
    "Unreadable": Explanation(
        "A later or earlier release of the CRD allowed a spec that this operator cannot read.", FIELD
    ),
    "Unschedulable": Explanation(
        "No Kubernetes node accepts the job's pod: no node of that partition, or no room.",
        "Compare the message with `kubectl describe node`: `nodeSelector` matches no node, the partition "
        "does not exist, or the job does not fit it.",
    ),
    "VolumeNotAllowed": Explanation("Results may not go into a volume of this kind.", FIELD),
}
"""In the condition Submitted or Synced."""

SLURMJOB_END_REASONS = {
    "ForgottenBySlurm": Explanation(
        "slurmctld was killed before it had saved the job.",
        "`backoffLimit` submits it again, or `retryLost` if it may have started; the message says which.",
    ),
    "HeldBySlurm": Explanation(
        "A node could not launch the job, and Slurm holds it.",
        "`backoffLimit` releases it, or `kubectl slurm release NAME`. If it repeats on one node, the HPC "
        "administrator reads slurmd's log there.",
    ),
    "LaunchFailed": Explanation(
        "A prolog failed, or the node still had a job of that id, and the job may not be requeued.",
        "`backoffLimit` submits it again. In slurmd's log `Could not launch job` has the cause.",
    ),
    "LivesAgain": Explanation(
        "Slurm shows a job alive that it had shown as ended.", "Wait: the status follows Slurm."
    ),
    "Lost": Explanation(
        "Neither Slurm's queue nor its accounting has the job.",
        "`retryLost` submits it again. The HPC administrator checks slurmctld and slurmdbd.",
    ),
    "ReleaseRefused": Explanation("Slurm refused the release.", "Follow the message."),
    "RequeueRefused": Explanation(
        "Slurm refused the requeue, or the operator lacks the role requeue.",
        "A job with `--no-requeue` cannot be requeued. For the role ask the HPC administrator.",
    ),
    "ResultsFailed": Explanation(
        "Results could not be copied: unreadable files, links that lead out, or a full volume.",
        "Copy the files that the message names from the job's working directory.",
    ),
}
"""Of jobs that Slurm had."""
