"""Which Tokens are refused, and where a token is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.daemons import Token
from redbox_hosting.api.fields import DNS_LABEL, SecretKeyRef
from redbox_hosting.controllers.access.token_text import lifetime_of
from redbox_kube.controller.steps import StepFailed

SECRET_KEY = "SLURM_JWT"  # noqa: S105 (the name of a key)
NOT_IN_NAMES = re.compile(r"[^a-z0-9.]+")
LONGEST_NAME = 253


def refusal(token: Token, controllers: Sequence[SlurmController]) -> str:
    """Why this Token gets no token, with the cure; empty if it gets one."""
    try:
        controller = controller_of(token, controllers)
        lifetime_of(token.spec.lifetime)
    except StepFailed as error:
        return str(error)
    rules, user, given = controller.spec.redbox.tokens, token.spec.username, token.spec.jwt_key
    if rules is None or user not in rules.users:
        return (
            f"Controller {controller.name} does not allow tokens of {user}: add {user} to its "
            "spec.redbox.tokens.users"
        )
    if given is not None and not _is_same(given, key_ref_of(controller)):
        return (
            f"Controller {controller.name} does not verify tokens with key {given.key} of Secret "
            f"{given.name}: remove spec.jwtKeyRef"
        )
    name = secret_of(token).name
    if len(name) > LONGEST_NAME or not all(re.fullmatch(DNS_LABEL, part) for part in name.split(".")):
        return f"{name[:80]} cannot be the name of a Secret: create a Token with spec.secretRef"
    return ""


def controller_of(token: Token, controllers: Sequence[SlurmController]) -> SlurmController:
    """Without controllerRef the only one, or the only one that has the Token's key. Raises StepFailed."""
    ref, given = token.spec.controller_ref, token.spec.jwt_key
    if ref is not None and ref.name:
        found = [controller for controller in controllers if controller.name == ref.name]
        if not found:
            raise StepFailed(f"there is no Controller {ref.name} in the namespace: create it")
        return found[0]
    found = list(controllers)
    if given is not None and len(found) > 1:
        found = [controller for controller in found if _is_same(given, key_ref_of(controller))]
    if len(found) != 1:
        which = " with this jwtKeyRef" if given is not None and len(controllers) > 1 else ""
        raise StepFailed(
            f"there are {len(found)} Controllers{which} in the namespace: create a Token with "
            "spec.controllerRef"
        )
    return found[0]


def key_ref_of(controller: SlurmController) -> SecretKeyRef:
    """The key that this cluster verifies tokens with."""
    own = SecretKeyRef(name=names.keys_name(controller.name), key="jwt.key")
    return controller.spec.jwt_key or own


def secret_of(token: Token) -> SecretKeyRef:
    """Where it is written."""
    if token.spec.secret_ref is not None:
        return token.spec.secret_ref
    user = NOT_IN_NAMES.sub("-", token.spec.username.lower()).strip(".-")
    # model_construct: `refusal` says what is wrong with a name.
    return SecretKeyRef.model_construct(name=f"{token.name}-jwt-{user}", key=SECRET_KEY)


def _is_same(first: SecretKeyRef, other: SecretKeyRef) -> bool:
    return (first.name, first.key) == (other.name, other.key)
