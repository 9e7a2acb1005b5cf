"""Tokens: a JSON web token of one user in a Secret, renewed when 80 % of its life is over.

The token itself says when it is due, so a restart forgets nothing. Only users on the Controller's list get
one, and only with that Controller's key: otherwise everybody who may create Tokens could be any user of any
cluster in the namespace, root included. A refused Token loses the token in its Secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.daemons import Token
from redbox_hosting.api.status import TokenStatus
from redbox_hosting.controllers.access.token_metrics import follow_tokens
from redbox_hosting.controllers.access.token_rules import controller_of, key_ref_of, refusal, secret_of
from redbox_hosting.controllers.access.token_text import TokenTimes, lifetime_of, new_token, times_of
from redbox_hosting.controllers.clusters.secret_files import SecretFiles, key_in
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.verdict import verdict
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiError
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.status_reporter import StatusReporter, StatusVerdict
from redbox_kube.controller.steps import ReconcileStep, Reports, StepFailed, StepOutcome, StepState
from redbox_kube.status.conditions import NewCondition

EXPIRING = "Expiring"
AGAIN_S = 1.0


@dataclass(frozen=True)
class TokenWorld:
    """All that the steps look at."""

    token: Token
    controllers: tuple[SlurmController, ...]
    """Of the namespace."""
    now: datetime


@dataclass
class Tokens:
    """The controller of Tokens."""

    context: HostingContext

    def __post_init__(self) -> None:
        context = self.context
        self._owned = OwnedObjects(context.writer, names.TOKENS, [], managed=context.watches.managed)
        self._secrets = SecretFiles(context.writer, self._owned)
        how = Reconciliation[Token, TokenWorld](
            self._observe,
            [
                ReconcileStep("Allowed", self._check),
                ReconcileStep("Signed", self._sign, needs=("Allowed",)),
            ],
            report=StatusReporter(context.writer, names.TOKENS, status_of, clock=context.clock),
        )
        self.controller = Controller(
            "tokens",
            context.watches.tokens,
            how,
            context.metrics,
            watches=[(context.watches.controllers, self._tokens_in)],
            serves=context.leases.may_write,
        )
        follow_tokens(context.registry, context.watches.tokens, context.clock)

    def _tokens_in(self, place: Place, _: SlurmController) -> Iterable[Place]:
        return [own for own, _ in self.context.watches.tokens.items() if own[0] == place[0]]

    async def _observe(self, token: Token) -> TokenWorld:
        found = [
            controller
            for place, controller in self.context.watches.controllers.items()
            if place[0] == token.namespace
        ]
        return TokenWorld(token, tuple(found), self.context.clock())

    async def _check(self, world: TokenWorld) -> StepOutcome:
        if why := refusal(world.token, world.controllers):
            try:
                secret = secret_of(world.token)
                await self._secrets.withdraw(world.token, secret.name, secret.key)
            except ApiError as error:
                raise StepFailed(f"{why} (and it could not be removed from its Secret: {error})") from error
            raise StepFailed(why)
        return StepOutcome()

    async def _sign(self, world: TokenWorld) -> StepOutcome:
        spec, now = world.token.spec, world.now
        controller = controller_of(world.token, world.controllers)
        key = await self._key(controller)
        if not key:
            return StepOutcome(waits_for=f"the keys of Controller {controller.name}", again_in_s=AGAIN_S)
        lifetime = lifetime_of(spec.lifetime)
        secret = secret_of(world.token)

        def times_in(files: Mapping[str, bytes]) -> TokenTimes | None:
            return times_of(files.get(secret.key, b"").decode(errors="replace"), key, spec.username)

        def is_due(files: Mapping[str, bytes]) -> bool:
            if secret.key not in files:
                return True
            times = times_in(files)
            return spec.refresh and (
                times is None or times.lifetime != lifetime or not times.issued_at <= now < times.due_at
            )

        files, did = await self._secrets.ensure(
            world.token,
            secret.name,
            lambda: {secret.key: new_token(key, spec.username, now, lifetime).encode()},
            is_due,
        )
        times = times_in(files)
        if times is None or times.expires_at <= now:
            why = "has ended" if times else "is not signed with the cluster's key"
            raise StepFailed(
                f"the token in Secret {secret.name} {why}: set spec.refresh to true, or delete the Secret"
            )
        next_at = times.due_at if spec.refresh else times.expires_at
        again = max((next_at - now).total_seconds(), 1.0) + 0.5
        return StepOutcome(did=did, again_in_s=again, fact=times)

    async def _key(self, controller: SlurmController) -> bytes:
        """Empty while the operator has not made it."""
        ref = key_ref_of(controller)
        files = await self._secrets.find(controller.namespace, ref.name)
        if files is None and controller.spec.jwt_key is None:
            return b""
        key = key_in(files, ref)
        if not key:
            raise StepFailed(f"the key {ref.key} of Secret {ref.name} is empty: anybody could sign with it")
        return key


def status_of(world: TokenWorld, reports: Reports) -> StatusVerdict:
    """Expiring: it is in the last fifth of its life, and was not renewed."""
    before = world.token.status
    fact = reports["Signed"].outcome.fact
    times = fact if isinstance(fact, TokenTimes) else None
    is_refused = reports["Allowed"].state is StepState.FAILED  # then there is no token any more
    if times is None and not is_refused and before.issued_at and before.expires_at:
        times = TokenTimes(before.issued_at, before.expires_at)
    is_expiring = times is not None and world.now >= times.due_at
    why = f"it ends at {times.expires_at.isoformat()}" if times and is_expiring else ""
    conditions = [
        *verdict(reports, "the Secret has a valid token"),
        NewCondition(EXPIRING, "NotRenewed" if is_expiring else "Fresh", why, holds=is_expiring),
    ]
    status = TokenStatus(
        issued_at=times.issued_at if times else None, expires_at=times.expires_at if times else None
    )
    return status, conditions
