"""Checks that the chart's admission policy limits resourced to tokens for red-boxes.

resourced may request tokens of any account in the namespaces that it serves, and RBAC cannot limit their
audience. So before any other token it requests one of its own account that the policy must refuse: if the API
server issues it, nothing is submitted. That token has an audience that no server accepts, and is dropped.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from redbox_kube.api.objects import ApiError, ApiRefused, ObjectClient
from redbox_kube.redbox_token import ServiceAccountName

log = structlog.get_logger(__name__)
PROBE_AUDIENCE = "probe.invalid"
SHORTEST_S = 600
RETRY_S = 30.0
MISSING = (
    "Virtual delivery does not start: the ValidatingAdmissionPolicy redbox-tokens, which limits what "
    "resourced may request tokens for, is not in force; install it with the chart (admission.tokens: true)"
)


@dataclass
class TokenPolicy:
    """`problem` is empty once the policy has refused the request."""

    objects: ObjectClient
    account: ServiceAccountName
    problem: str = "the policy redbox-tokens has not been checked yet"

    async def wait(self) -> None:
        while self.problem:
            try:
                problem = "" if await self._refuses() else MISSING
            except ApiError as error:
                problem = f"cannot check whether the policy redbox-tokens is in force: {error}"
            if problem and problem != self.problem:
                log.error("token policy", problem=problem)
            self.problem = problem
            if problem:
                await asyncio.sleep(RETRY_S)

    async def _refuses(self) -> bool:
        namespace, name = self.account.namespace, self.account.name
        try:
            await self.objects.token_for(namespace, name, PROBE_AUDIENCE, seconds=SHORTEST_S)
        except ApiRefused as refusal:
            if "ValidatingAdmissionPolicy" in str(refusal):
                return True
            raise
        return False
