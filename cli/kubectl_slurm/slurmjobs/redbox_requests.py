"""Requests to red-box as a job's own identity: a token of the job's service account, for that red-box alone.

The token is issued by Kubernetes to users who may create tokens of the account, lives for ten minutes, and
stays in memory. The address and the authority are the SlurmCluster's.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kubectl_slurm.errors import BadUsage, PluginError, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.terminal.screen import printable

LIFETIME = "10m"
DEADLINE_S = 5.0
LARGEST = 16 * 1024 * 1024
OK = 200
ACCOUNT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
PORT = 8443


class RedboxNotReached(PluginError):
    """red-box does not answer at this address, from this machine."""


class RedboxRefused(PluginError):
    """red-box answered with a problem."""


@dataclass(frozen=True)
class RedboxAccess:
    """A red-box, and a token of one service account for it."""

    endpoint: str
    authority: str
    token: str

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a GET."""
        address = urlsplit(self.endpoint)
        try:
            context = ssl.create_default_context(cadata=self.authority)
            connection = http.client.HTTPSConnection(
                address.hostname or "", address.port or PORT, timeout=DEADLINE_S, context=context
            )
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
                answer = connection.getresponse()
                body = answer.read(LARGEST)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise RedboxNotReached(f"{self.endpoint} is not reached from this machine: {error}") from error
        return _read(answer.status, body)


def _read(status: int, body: bytes) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(body)
    except ValueError:
        raise RedboxRefused(f"red-box answered {status}, and no JSON") from None
    if status != OK:
        raise RedboxRefused(
            f"red-box refuses: {printable(document.get('detail') or document.get('title') or status)}"
        )
    return document


def access_of(kubectl: Kubectl, cluster: ClusterView, service_account: str) -> RedboxAccess:
    """A token of this account; NotPermitted where the user may not create one."""
    audience, endpoint = str(cluster.spec.get("audience", "")), str(cluster.spec.get("endpoint", ""))
    if not audience or not endpoint:
        raise Refusal(f"SlurmCluster {cluster.name} has no endpoint and audience")
    if not ACCOUNT.fullmatch(service_account):
        raise BadUsage(f"{printable(service_account)!r} is no name of a service account")
    words = ["create", "token", service_account, f"--audience={audience}", f"--duration={LIFETIME}"]
    token = kubectl.text(*words).strip()
    return RedboxAccess(endpoint, base64.b64decode(cluster.spec.get("caBundle", "")).decode(), token)
