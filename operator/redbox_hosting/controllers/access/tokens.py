"""Tokens: a JSON web token of one user in a Secret, renewed when 80 % of its life is over.

When it is due stands in the token itself, so that a restart forgets nothing. Only users on the Controller's
list get one: whoever may create Tokens would else be any user of the cluster, root included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.daemons import Token
from redbox_hosting.api.fields import SecretKeyRef
from redbox_hosting.api.status import TokenStatus
from redbox_hosting.controllers.access.token_metrics import follow_tokens
from redbox_hosting.controllers.access.token_text import TokenTimes, lifetime_of, new_token, times_of
from redbox_hosting.controllers.clusters.secret_files import SecretFiles
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.verdict import verdict
from redbox_kube.api.informer import Place
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.status_reporter import StatusReporter, StatusVerdict
from redbox_kube.controller.steps import ReconcileStep, Reports, StepFailed, StepOutcome
from redbox_kube.status.conditions import NewCondition

SECRET_KEY = "SLURM_JWT"  # noqa: S105 (the name of a key)
EXPIRING = "Expiring"
NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]")


@dataclass(frozen=True)
class TokenWorld:
    """All that the steps look at."""

    token: Token
    controller: SlurmController
    now: datetime


@dataclass
class Tokens:
    """The controller of Tokens."""

    context: HostingContext

    def __post_init__(self) -> None:
        context = self.context
        self._owned = OwnedObjects(context.writer, names.TOKENS, [], namespaces=context.namespaces)
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
        return TokenWorld(token, self._controller_of(token), self.context.clock())

    def _controller_of(self, token: Token) -> SlurmController:
        ref = token.spec.controller_ref
        if ref is not None and ref.name:
            return self.context.controller_of(token.namespace, ref.name)
        found = list(self._controllers_in(token.namespace))
        if len(found) != 1:
            raise StepFailed(
                f"there are {len(found)} Controllers in the namespace: create a Token with spec.controllerRef"
            )
        return found[0]

    def _controllers_in(self, namespace: str) -> Iterator[SlurmController]:
        for place, controller in self.context.watches.controllers.items():
            if place[0] == namespace:
                yield controller

    async def _check(self, world: TokenWorld) -> StepOutcome:
        rules, user = world.controller.spec.redbox.tokens, world.token.spec.username
        if rules is None or user not in rules.users:
            raise StepFailed(
                f"Controller {world.controller.name} does not allow tokens of {user}: add {user} to its "
                "spec.redbox.tokens.users"
            )
        lifetime_of(world.token.spec.lifetime)
        return StepOutcome()

    async def _sign(self, world: TokenWorld) -> StepOutcome:
        spec, now = world.token.spec, world.now
        key = await self._key(world)
        lifetime = lifetime_of(spec.lifetime)
        secret = secret_of(world.token)

        def times_in(files: Mapping[str, bytes]) -> TokenTimes | None:
            return times_of(files.get(secret.key, b"").decode(errors="replace"), key, spec.username)

        def is_due(files: Mapping[str, bytes]) -> bool:
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

    async def _key(self, world: TokenWorld) -> bytes:
        own = SecretKeyRef(name=names.keys_name(world.controller.name), key="jwt.key")
        given = world.token.spec.jwt_key or world.controller.spec.jwt_key or own
        return await self._secrets.key(world.token.namespace, given)


def secret_of(token: Token) -> SecretKeyRef:
    """Where it is written."""
    if token.spec.secret_ref is not None:
        return token.spec.secret_ref
    user = NOT_IN_NAMES.sub("-", token.spec.username.lower())
    return SecretKeyRef(name=f"{token.name}-jwt-{user}".rstrip(".-"), key=SECRET_KEY)


def status_of(world: TokenWorld, reports: Reports) -> StatusVerdict:
    """Expiring: it is in the last fifth of its life, and was not renewed."""
    before = world.token.status
    fact = reports["Signed"].outcome.fact
    times = fact if isinstance(fact, TokenTimes) else None
    if times is None and before.issued_at and before.expires_at:
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
