"""Tokens of pods' own service accounts, each bound to its pod and to one red-box.

resourced calls red-box about a job only with the rights of the pod's account. A token ends with its pod, and
is kept only while a client uses it: two streams of one log, or a hundred readers, share one.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from redbox_kube.api.objects import ObjectClient, PodRef
from redbox_kube.redbox_token import RedboxToken, ServiceAccountName
from redbox_resourced.pods.pod_view import BoundPod

LIFETIME_S = 600  # the shortest that Kubernetes issues


class PodTokens:
    """All tokens in use."""

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects
        self._used: WeakValueDictionary[tuple[str, str], RedboxToken] = WeakValueDictionary()

    def of(self, pod: BoundPod, audience: str) -> RedboxToken:
        token = self._used.get((pod.uid, audience))
        if token is None:
            account = ServiceAccountName(pod.namespace, pod.account)
            ref = PodRef(pod.name, pod.uid)
            token = RedboxToken(self._objects, account, audience, ref, LIFETIME_S)
            self._used[pod.uid, audience] = token
        return token
