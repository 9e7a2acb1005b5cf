"""Cause and cure of the exceptions whose texts people read, and why they do not read those of the others.

An exception that red-box answers with is explained by the title of its problem, unless it is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redbox_shared.explanations.explanation import Explanation


@dataclass(frozen=True)
class Group:
    """Exceptions with one cause and cure."""

    title: str
    explanation: Explanation
    kinds: tuple[str, ...]


def _group(title: str, cause: str, cure: str, *kinds: str) -> Group:
    return Group(title, Explanation(cause, cure), kinds)


SHOWN_AS: Mapping[str, str] = {
    "RequestRefused": "This cannot work",
    "_Refused": "The caller may not do this",
    "NotEnterable": "Too many requests",
}
"""Exceptions that become another one, by the title of red-box's problem."""

LOGIN_NODE = (
    _group(
        "The settings are wrong",
        "A file of settings or mapping rules cannot be read, or a value is not allowed.",
        "Correct the file and line that the message names. `redbox check` reads the file without a restart.",
        "ConfigRefused",
        "DocumentError",
    ),
    _group(
        "The journal is in use or in a wrong place",
        "Another red-box has the journal, or its directory does not keep what a journal needs.",
        "Stop the other red-box, or set `jobs.journal` to a directory of a local disk.",
        "JournalInUse",
        "JournalMisplaced",
        "JournalError",
    ),
    _group(
        "The journal is lost or damaged",
        "The journal is new although jobs run, is damaged, or was written by a newer red-box.",
        "Run `redbox recover` as red-box's account, or start the newer release.",
        "JournalLost",
        "JournalUnreadable",
    ),
    _group(
        "The journal cannot be written",
        "The disk or the quota of red-box's account is full. Running jobs and reads continue.",
        "Make room on the file system of `jobs.journal`; red-box needs no restart.",
        "JournalFull",
    ),
    _group(
        "red-box cannot listen",
        "The port, the socket or the certificate cannot be used.",
        "Follow the message, then `systemctl restart redbox`.",
        "ListenError",
        "BadCertificate",
    ),
    _group(
        "A secret cannot be used",
        "A key file is missing or readable by others, or the mark's key differs from the journal's.",
        "Restore the file that the message names, with mode 0600.",
        "SecretUnusable",
        "TokenFileError",
        "TokenNotFound",
        "AuditFileError",
    ),
    _group(
        "redbox init or uninstall stops",
        "A file cannot be written, or red-box was installed in another way or is running.",
        "Do what the message says, and run the command again: it repeats nothing that is done.",
        "InstallError",
    ),
    _group(
        "The keys of a cluster cannot be read",
        "The file or URL with the public keys of a Kubernetes cluster does not answer, or has no usable key.",
        "Run `redbox check`, which names the file or URL; put the keys there again.",
        "ApiServerUnavailable",
        "InvalidKeySet",
    ),
)

AGENTS = (
    _group(
        "The agent of a user does not start",
        "sudo or the login node refuses red-box, not one user: a missing rule, host key or program.",
        "Run `redbox check`, and follow the message.",
        "AgentRefused",
    ),
    _group(
        "sudo or sshd refuses a user",
        "The user is not in the group `redbox-users`, the account is locked, or the directory of users is "
        "away.",
        "Check `id USER` and `sudo -l -U redbox`; with ssh the user's key and the account.",
        "UserRefused",
        "LoginDenied",
    ),
    _group(
        "There is no agent at present",
        "The login node has no process or connection left for this user, or does not answer. Retried.",
        "End the processes that the message names, or check the login node and the network.",
        "AgentUnavailable",
    ),
    _group(
        "The agent ended or does not answer",
        "The agent was killed, or a file system or Slurm's command hangs. Retried; nothing is done twice.",
        "Check the home directories, `scontrol ping` and the memory limit of the user's processes.",
        "AgentDied",
        "AgentTimeout",
        "RequestFailed",
        "SystemCallFailed",
    ),
)

PODS = (
    _group(
        "A pod has a field that no job can have",
        "The field or value is not supported: docs/reference/pods.md lists all fields.",
        "Do what the message says, in a new pod.",
        "Unsupported",
    ),
    _group(
        "A container or its image cannot be prepared",
        "The runner cannot pull the image, mount a volume, or start a program on the node.",
        "Follow the message; `runner-<job id>.log` in the working directory has more.",
        "PullFailed",
        "NotAnImage",
        "StartFailed",
        "StartRefused",
        "SetupFailed",
        "ScratchFailed",
        "MountFailed",
        "ResultsMissing",
        "TimedOut",
    ),
    _group(
        "A claim cannot be used or provisioned",
        "The claim, its StorageClass or its service account does not fit the pod.",
        "Do what the message says.",
        "ClaimPending",
        "ClaimRefused",
        "Unserviceable",
    ),
    _group(
        "An object of a pod is missing",
        "A Secret, ConfigMap or claim is missing, or resourced may not read it.",
        "Create it, or add the namespace to `resourced.pods.namespaces` of the chart.",
        "ReferenceMissing",
    ),
    _group(
        "A change does not reach the files of a running pod",
        "A Secret or ConfigMap is gone or lacks a key, or no token is issued. The files keep their content.",
        "Do what the message says: the files follow as soon as it is possible.",
        "SourceFailed",
    ),
    _group(
        "A pod is not submitted",
        "Its cluster, node or request is not available, or not allowed.",
        "See the reason of the pod above.",
        "SubmissionPending",
        "SubmissionRejected",
    ),
    _group(
        "kubectl logs or exec of a pod is refused",
        "The request does not fit a Slurm job, or the pod does not run.",
        "Do what the message says.",
        "RequestRejected",
        "NotUpgradable",
        "StreamsMissing",
        "TooManyOpen",
        "LogUnreadable",
    ),
    _group(
        "A file of overrides is wrong",
        "The file that the chart's `resourced.overrides` makes cannot be read.",
        "Correct the value that the message names; resourced keeps the former ones.",
        "InvalidOverrides",
    ),
)

PLUGIN = (
    _group(
        "The command line is wrong",
        "An option, a name or a file that was typed is not right (exit code 2).",
        "Do what the message says; `kubectl slurm COMMAND --help` describes the options.",
        "BadManifest",
        "BadUsage",
    ),
    _group(
        "Kubernetes refuses, or does not answer",
        "The login has expired, a right is missing, or the API server does not answer.",
        "Do what the message says; `kubectl slurm doctor` checks the whole chain.",
        "Refusal",
        "KindsMissing",
        "NotAnswered",
        "NotPermitted",
        "ObjectNotFound",
    ),
    _group(
        "red-box is not reached from this machine, or answers something else",
        "Only `top`, `explain`, `history --efficiency`, `logs --stdout` and `doctor` ask red-box itself.",
        "Use a machine that reaches `endpoint`. If another server answers there, tell the administrators.",
        "RedboxNotReached",
        "RedboxRefused",
        "AnswerInvalid",
    ),
    _group(
        "A job cannot be followed, or an action does not fit it",
        "The SlurmJob was deleted, has ended, or is in another state.",
        "Do what the message says.",
        "JobTrouble",
        "PluginError",
    ),
)

COMPANION = (
    _group(
        "The job's pod is not as the operator makes it",
        "Another program than the operator created or changed the pod.",
        "Delete the pod: the operator creates it again.",
        "PodMisconfigured",
    ),
    _group(
        "The pod waits for red-box",
        "red-box does not answer, or another server answers at `endpoint`. Retried without limit.",
        "See the texts of connections above.",
        "RedboxUnreachable",
        "Unreachable",
        "RedboxUnavailable",
        "MalformedResponse",
    ),
)

OPERATOR = (
    _group(
        "The API server refuses the operator or resourced",
        "A right is missing, an admission policy refuses it, or the API server is down. Retried.",
        "Apply the chart again; exempt its service accounts from the policy that the message names.",
        "ApiError",
        "ApiRefused",
        "ApiUnreachable",
        "ApiUnreadable",
        "ApiTooLong",
        "LeaseLost",
        "NotEstablished",
    ),
    _group(
        "A step of a controller fails",
        "An object has the name of one that the controller makes, and another owner.",
        "Delete or rename the object that the message names.",
        "BeyondPlain",
        "NameTaken",
        "NotOurs",
        "StepFailed",
    ),
    _group(
        "helm uninstall stops",
        "Jobs or SlurmClusters are left that the hook may not leave behind.",
        "Do what the message says, and uninstall again.",
        "CommandFailed",
        "NotUninstalled",
    ),
)

TRIED = "ends the trial of a configuration of hosted Slurm, whose condition has the words"
HOSTED = "of hosted Slurm, whose operator no chart installs yet"
INTERNAL: Mapping[str, str] = {
    "BackgroundTaskFailed": "ends red-box, whose log has the cause",
    "BadFrame": "between the runner and its steps",
    "BadSize": HOSTED,
    "ConfigurationRefused": TRIED,
    "DeletionForbidden": HOSTED,
    "HomesFailed": "ends the Job that makes homes of hosted Slurm; the condition Homes has the words",
    "TrialUndecided": TRIED,
    "UnknownRelease": HOSTED,
    "CommandDetached": "inside of red-box: the submit goes on",
    "FrameError": "between red-box and an agent, which is then gone",
    "GaveWay": "between two sessions of a companion",
    "JoinError": "when the programs are built",
    "MalformedFrame": "between a relay and red-box",
    "OutputClosed": "inside of the companion",
    "ProtocolError": "between the companion and red-box",
    "RemoteEnded": "inside of the companion",
    "JobRefused": "has red-box's own words",
    "NotServed": HOSTED,
    "SlurmUnavailable": HOSTED,
    "SlurmUnknown": HOSTED,
    "SlurmUnreachable": HOSTED,
    "BadMessage": "of a client's WebSocket, in resourced's log",
    "SpdyError": "between the API server and resourced",
    "TarCutOff": "the copy is repeated",
    "TokenRefused": HOSTED,
    "UpgradeRefused": "has red-box's own words",
    "_NotCached": "inside of the runner",
}
"""Exceptions whose texts nobody reads: what happens instead."""
