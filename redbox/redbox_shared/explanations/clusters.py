"""Why a red-box, or pods on its virtual nodes, cannot be used: conditions of SlurmClusters."""

from __future__ import annotations

from redbox_shared.explanations.explanation import ExplainedText, Explanation

SAME_OPTIONS = "The HPC administrator runs `redbox init` again with the same options"
SERVING = (
    "The Kubernetes administrator checks that the operator runs, which approves resourced's "
    "CertificateSigningRequest, or approves the one that the condition `Ready` of a virtual node names. With "
    "`resourced.servingSecret` they renew that Secret."
)
APPLY_CHART = "The Kubernetes administrator applies the chart again."


def _text(pattern: str, shown: str, cause: str, cure: str) -> ExplainedText:
    return ExplainedText(pattern, shown, Explanation(cause, cure))


UNREACHABLE = (
    _text(
        r"payload is not completed|[Ss]erver disconnected",
        "Response payload is not completed, Server disconnected",
        "red-box was ended, or restarted, while it answered.",
        "The HPC administrator checks `systemctl status redbox` and red-box's log.",
    ),
    _text(
        r"\[Errno 111\]",
        "[Errno 111] Connect call failed",
        "No process listens at `endpoint`.",
        "The HPC administrator checks `systemctl status redbox`, and address and port of `endpoint`.",
    ),
    _text(
        r"\[Errno 1(?:01|10|13)\]|no connection in time",
        "[Errno 113] Connect call failed, no connection in time",
        "Pods cannot reach the login node.",
        "The administrators check firewall, routes and NetworkPolicies between pods and `endpoint`.",
    ),
    _text(
        r"\[Errno -\d\]",
        "[Errno -2] Name or service not known, [Errno -3] Temporary failure in name resolution",
        "The DNS of the pods cannot resolve the name in `endpoint`.",
        "The administrators put another name or the address into `endpoint`, and renew the certificate for "
        "it: `redbox init … --host`.",
    ),
    _text(
        r"it was silent for too long|no answer within",
        "it was silent for too long, no answer within …",
        "red-box or its host hangs, or a device in between drops packets.",
        "The HPC administrator checks the login node and `journalctl -u redbox`.",
    ),
    _text(
        r"certificate has expired",
        "certificate verify failed: certificate has expired",
        "red-box's certificate has expired.",
        f"{SAME_OPTIONS}, or renews the site's own certificate.",
    ),
    _text(
        r"Hostname mismatch|IP address mismatch",
        "certificate verify failed: Hostname mismatch, IP address mismatch",
        "red-box's certificate is for another name than the one in `endpoint`.",
        "The HPC administrator runs `redbox init … --host` with that name; red-box needs no restart.",
    ),
    _text(
        r"it waits for .* of ConfigMap|may not read ConfigMap",
        "it waits for ca.crt of ConfigMap …, the operator may not read ConfigMap …",
        "`caBundleFrom` names a ConfigMap that is not there yet, or that the operator has no right to get.",
        "The administrators look at what makes it, as the Job `…-redbox-keys-…` of the chart of a Slurm "
        "cluster, or give the operator's service account the right.",
    ),
    _text(
        r"caBundle|certificate verify failed",
        "spec.caBundle is not a PEM certificate: …, certificate verify failed",
        "`caBundle` is not the authority of red-box's certificate.",
        "The administrators apply again what `redbox init` prints.",
    ),
    _text(
        r"The caller is not known",
        "The caller is not known: …",
        "red-box does not accept the operator's token.",
        "The HPC administrator runs `redbox check`: the cluster's public keys are old, `audience` or issuer "
        "differs, or a clock is wrong.",
    ),
    _text(
        r"may not see jobs",
        "The caller may not do this: … may not see jobs",
        "The operator's mapping rule lacks the role operator.",
        "The HPC administrator adds the role `operator` to that rule in `mapping.rules`, and reloads "
        "red-box.",
    ),
    _text(
        r"The caller may not do this",
        "The caller may not do this: …, no mapping rule matches it",
        "No mapping rule matches the operator's service account.",
        "The HPC administrator adds a rule for it to `mapping.rules`, or corrects its namespace.",
    ),
    _text(
        r"the keys of cluster .* are not available",
        "Not now: the keys of cluster … are not available",
        "red-box cannot read the public keys of the Kubernetes cluster.",
        "The HPC administrator puts them into the file that `redbox init` named, readable by red-box.",
    ),
    _text(
        r"Slurm has never answered it",
        "Not now: red-box is not ready: Slurm has never answered it …",
        "Slurm did not answer since red-box started, or the login node refuses a red-box in a pod.",
        "The HPC administrator runs `redbox check`; of a red-box in a pod `kubectl logs --namespace "
        "redbox-system redbox-NAME-0` has the cause.",
    ),
    _text(
        r"the response did not come from red-box",
        "the response did not come from red-box",
        "A proxy or an ingress answers at `endpoint`.",
        "The administrators check how it forwards requests and, with HTTP 413, how large they may be.",
    ),
    _text(
        r"an answer (?:of|with) more than|it lists more than",
        "an answer of more than …, it lists more than …",
        "red-box sends more than the operator reads; of a SlurmEndpoint it reads less.",
        "End jobs, or use a SlurmCluster.",
    ),
    _text(
        r"did not come whole|its list had no end",
        "an event that did not come whole within …, its list had no end within …",
        "The network is too slow for what red-box sends, or another server answers.",
        "The administrators check the network between the operator and `endpoint`.",
    ),
    _text(
        r"Slurm has not answered (?:red-box since|yet)",
        "Slurm has not answered red-box since …, red-box has it, and Slurm has not answered yet",
        "slurmctld, munge or the login node's network is down. Jobs are not affected.",
        "The HPC administrator runs `scontrol ping` and `redbox check` on the login node.",
    ),
)
"""Messages of the conditions Reachable and Current; red-box's and the kernel's words are in them."""

CLUSTER_REASONS = {
    "Expired": Explanation(
        "The SSH certificate with which red-box logs in has expired.",
        "The HPC administrator replaces it. Jobs continue in Slurm, and their states are stale until then.",
    ),
    "GatewaysUnknown": Explanation(
        "An operator that is limited to some namespaces cannot count gateways.", "Set `holdBack` to false."
    ),
    "Misconfigured": Explanation("The spec cannot be used.", "Fix the field that the message names."),
    "NotOneGateway": Explanation(
        "`holdBack` needs exactly one gateway node, because each offers the whole partition.",
        "Label one node only, or set `holdBack` to false.",
    ),
    "PodsUnfinished": Explanation(
        "The SlurmCluster is being deleted, and pods run there as jobs.",
        "Delete the pods, or set `abandonJobs`.",
    ),
    "SlurmJobGone": Explanation(
        "Slurm has jobs of SlurmJobs that are gone.",
        "`scancel` the job ids that the message names, unless they are wanted.",
    ),
    "SlurmJobsUnfinished": Explanation(
        "The SlurmCluster is being deleted, and SlurmJobs there have not ended.",
        "Delete the SlurmJobs, or set `abandonJobs` and delete them.",
    ),
    "Stale": Explanation(
        "Slurm does not answer red-box, so states may be old.",
        "The HPC administrator runs `scontrol ping` and `redbox check` on the login node.",
    ),
    "Unreachable": Explanation(
        "The operator has no connection to red-box.",
        "Compare the message with the texts above. Jobs keep running meanwhile.",
    ),
    "WithinADay": Explanation(
        "The SSH certificate with which red-box logs in expires within a day.",
        "The HPC administrator replaces it.",
    ),
    "WithinAnHour": Explanation(
        "The SSH certificate with which red-box logs in expires within an hour.",
        "The HPC administrator replaces it.",
    ),
}
"""In the other conditions of a SlurmCluster or SlurmEndpoint."""

PODS_READY_REASONS = {
    "CertificateExpired": Explanation(
        "The serving certificate of the virtual nodes has ended: pods run, but `kubectl logs`, `exec` and "
        "`top` fail where the API server verifies it.",
        SERVING,
    ),
    "CertificateExpires": Explanation(
        "The serving certificate of the virtual nodes ends within a week and is not renewed. Pods run.",
        SERVING,
    ),
    "CertificateNotSigned": Explanation(
        "resourced's request for its serving certificate is not approved. Pods run, but `kubectl logs` fails "
        "where the API server verifies the certificate.",
        SERVING,
    ),
    "Disabled": Explanation(
        "Pods of this SlurmCluster are off.",
        "Set `pods.enabled` of the SlurmCluster. SlurmJobs do not need it.",
    ),
    "NoTokenNamespaces": Explanation(
        "`pods.apiTokens` is on, and no namespace may have tokens.",
        "Set `resourced.pods.apiTokenNamespaces` of the chart.",
    ),
    "NotReported": Explanation(
        "resourced does not run, or has no rights for pods.",
        "The Kubernetes administrator sets `resourced.enabled` and `resourced.pods.enabled` of the chart.",
    ),
    "NotServed": Explanation("resourced serves no virtual nodes; the message says why.", APPLY_CHART),
    "ServicesNotServed": Explanation(
        "resourced may not write the EndpointSlices of pods with dynamic ports. Pods run; no Service leads "
        "to these.",
        "The Kubernetes administrator applies the chart again, with its policy `redbox-slices`.",
    ),
    "PolicyMissing": Explanation(
        "A ValidatingAdmissionPolicy of the chart is not in force: it was removed, or installed just now. "
        "resourced checks every 30 s. The message names another policy if that one refuses the test.",
        f"{APPLY_CHART} Exempt resourced's service account from the other policy.",
    ),
    "RedboxTooOld": Explanation(
        "red-box is older than resourced. Pods wait, and are submitted after the upgrade.",
        "The HPC administrator upgrades red-box to resourced's release.",
    ),
}
"""In the condition PodsReady."""
