"""The pod for which a folder is made: the token that makes it is bound to that pod, as a policy requires.

So resourced has tokens of an account only where a pod of that account exists.
"""

from __future__ import annotations

from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ObjectClient, PodRef, ResourcePath
from redbox_resourced.volumes.claims import ClaimView, Unserviceable
from redbox_resourced.volumes.names import ANNOTATION_ACCOUNT, DEFAULT_ACCOUNT

ENDED = frozenset({"Succeeded", "Failed"})


async def find_consumer(objects: ObjectClient, claim: ClaimView) -> PodRef:
    """A pod of the claim's account that uses the claim; Unserviceable while there is no such pod."""
    others = set()
    async for pod in objects.list_all(ResourcePath(kinds.POD, "", claim.namespace)):
        if not _uses(pod, claim.name):
            continue
        account = pod["spec"].get("serviceAccountName") or DEFAULT_ACCOUNT
        if account == claim.account:
            return PodRef(pod["metadata"]["name"], pod["metadata"]["uid"])
        others.add(account)
    if others:
        raise Unserviceable(
            f"this claim is for ServiceAccount {claim.account}, and its pod has {', '.join(sorted(others))}: "
            f"give the pod that account, or name the pod's in the claim's annotation {ANNOTATION_ACCOUNT}"
        )
    raise Unserviceable(f"no pod of ServiceAccount {claim.account} uses this claim: make one")


def _uses(pod: Object, claim: str) -> bool:
    """Whether the pod waits for the claim, or runs with it."""
    volumes = pod["spec"].get("volumes") or ()
    named = {(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes}
    is_over = (pod.get("status") or {}).get("phase") in ENDED or "deletionTimestamp" in pod["metadata"]
    return claim in named and not is_over
