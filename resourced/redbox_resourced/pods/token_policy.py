"""Whether the API server holds resourced to tokens for red-boxes, as the chart's admission policy has it.

resourced may ask for tokens of any account in the namespaces that it serves, and RBAC cannot say for whom
they are good. So before it asks for one, it asks for one of its own that the policy refuses: where that is
given, nothing is submitted for anybody. The token that came is good for nobody, and is dropped.
"""

from __future__ import annotations

import asyncio

import structlog

from redbox_kube.api.objects import ApiError, ApiRefused, ObjectClient
from redbox_kube.redbox_token import ServiceAccountName

log = structlog.get_logger(__name__)
FOR_NOBODY = "nobody.invalid"
SHORTEST_S = 600
AGAIN_S = 30.0
MISSING = (
    "Virtual delivery does not start: the ValidatingAdmissionPolicy redbox-tokens, which limits what "
    "resourced may ask tokens for, is not in force; install it with the chart (admission.tokens: true)"
)


class TokenPolicy:
    """`trouble` is empty once the policy was seen to refuse."""

    def __init__(self, objects: ObjectClient, account: ServiceAccountName) -> None:
        self.trouble = "it is not known yet whether the policy redbox-tokens is in force"
        self._objects = objects
        self._account = account

    async def wait(self) -> None:
        """Return once it is in force."""
        while self.trouble:
            try:
                found = "" if await self._refuses() else MISSING
            except ApiError as error:
                found = f"nobody can say whether the policy redbox-tokens is in force: {error}"
            if found and found != self.trouble:
                log.error("token policy", trouble=found)
            self.trouble = found
            if found:
                await asyncio.sleep(AGAIN_S)

    async def _refuses(self) -> bool:
        namespace, name = self._account.namespace, self._account.name
        try:
            await self._objects.token_for(namespace, name, FOR_NOBODY, seconds=SHORTEST_S)
        except ApiRefused as refusal:
            if "ValidatingAdmissionPolicy" in str(refusal):
                return True
            raise
        return False
