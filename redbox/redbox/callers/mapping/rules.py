"""The administrator's rules, as they are written: which callers become which Unix user, and what they may do.

Everything that a rule may not say is refused here, with its line; what the rules make of a caller is
`mapping`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from redbox.callers.settings import ClusterName
from redbox.callers.tokens.claims import ACCOUNT_NAME, NAMESPACE
from redbox.core.domain import Role
from redbox.core.yaml_document import AbsolutePath, Section

USER_NAME = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
"""A Unix user's name. All digits is none: tools would take it for a number."""

TEMPLATES: Mapping[str, str] = {"{namespace}": "namespace", "{service_account}": "name"}
"""What may stand in place of a user, and the field of the identity that fills it."""

EVERYONE = "*"
ROOT = "root"


def _namespace(name: str) -> str:
    if not NAMESPACE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a namespace")
    return name


def _account_name(name: str) -> str:
    if not ACCOUNT_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a service account")
    return name


def _user_name(name: str) -> str:
    if not USER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a Unix user")
    return name


def _user_or_template(user: str) -> str:
    if "{" in user or "}" in user:
        if user not in TEMPLATES:
            allowed = " or ".join(TEMPLATES)
            raise ValueError(f"{user!r}: a template is the whole user, one of {allowed}")
        return user
    if user == ROOT:
        raise ValueError("no rule may make somebody root")
    return _user_name(user)


def _user_or_everyone(name: str) -> str:
    return name if name == EVERYONE else _user_name(name)


def _anchored(pattern: str) -> str:
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise ValueError(f"the pattern {pattern!r} must be anchored: ^...$ (or give a list of names)")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern


def _some(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("an empty list matches nobody: name some, or leave the key out")
    return names


Text = Annotated[str, Field(min_length=1, max_length=256)]
SlurmName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}$")]
UserName = Annotated[Text, AfterValidator(_user_name)]
Namespaces = tuple[Annotated[Text, AfterValidator(_namespace)], ...]
Pattern = Annotated[Text, AfterValidator(_anchored)]


class Rule(Section):
    """Its callers are service accounts (`cluster`), users of this host (`unix_users`) or `tokens`."""

    cluster: Annotated[ClusterName | None, Field(examples=["prod"])] = None
    """Service accounts of this cluster."""
    namespaces: Annotated[
        Annotated[Namespaces, AfterValidator(_some)] | Pattern | None, Field(examples=[["physics"]])
    ] = None
    """Of these namespaces: a list of names, or an anchored pattern (^team-[a-z]+$)."""
    service_accounts: (
        Annotated[tuple[Annotated[Text, AfterValidator(_account_name)], ...], AfterValidator(_some)] | None
    ) = None
    """Of these names; left out: any, since whoever makes pods in a namespace can be any of its accounts."""
    unix_users: (
        Annotated[tuple[Annotated[Text, AfterValidator(_user_or_everyone)], ...], AfterValidator(_some)]
        | None
    ) = None
    """Users of this host who call through the Unix socket; '*' is all of them. They stay who they are."""
    tokens: Annotated[tuple[Text, ...], AfterValidator(_some)] | None = None
    """Opaque tokens by id (redbox token list); '*' is all of them. They are the user they were made for."""
    roles: Annotated[frozenset[Role], Field(min_length=1)] = frozenset({Role.SUBMIT})
    """submit (own jobs), operator (watch, cancel, hold, release its cluster's), reader (see partitions)."""
    user: Annotated[Annotated[Text, AfterValidator(_user_or_template)] | None, Field(examples=["alice"])] = (
        None
    )
    """The Unix user that jobs run as: a name, or {namespace} or {service_account}."""
    allowed_users: Annotated[tuple[UserName, ...], AfterValidator(_some)] | None = None
    """With a template: who it may become."""
    allowed_group: UserName | None = None
    """With a template: or whose members it may become."""
    accounts: Annotated[tuple[SlurmName, ...], AfterValidator(_some)] | None = None
    """Slurm accounts that may be charged; left out: what Slurm allows the user."""
    partitions: Annotated[tuple[SlurmName, ...], AfterValidator(_some)] | None = None
    """Partitions that may be used; left out: what Slurm allows the user."""
    min_uid: Annotated[int, Field(ge=1)] | None = None
    """Refuses users below it; the higher one of this and mapping.min_uid counts."""

    @property
    def is_template(self) -> bool:
        """Whether the caller's own names choose the user."""
        return self.user in TEMPLATES

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        self._check_kind()
        self._check_roles()
        self._check_user()
        self._check_template()
        return self

    def _check_kind(self) -> None:
        kinds = [kind for kind in ("cluster", "unix_users", "tokens") if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError("a rule is for exactly one of cluster, unix_users and tokens")
        if self.cluster is None and (self.namespaces is not None or self.service_accounts is not None):
            raise ValueError("namespaces and service_accounts belong to cluster")

    def _check_roles(self) -> None:
        if self.roles >= {Role.OPERATOR, Role.SUBMIT}:
            raise ValueError("an operator submits nothing: give submit by another rule, to another account")
        names_accounts = isinstance(self.namespaces, tuple) and self.service_accounts is not None
        if Role.OPERATOR in self.roles and self.cluster is not None and not names_accounts:
            raise ValueError("the role operator needs a list of namespaces and of service_accounts")

    def _check_user(self) -> None:
        submits = Role.SUBMIT in self.roles
        if self.cluster is None:
            if self.user is not None:
                raise ValueError("user belongs to cluster: users of this host and tokens have theirs")
            return
        if submits and self.user is None:
            raise ValueError("the role submit needs a user")
        if submits and self.namespaces is None:
            raise ValueError("the role submit needs namespaces")
        if not submits and self.user is not None:
            raise ValueError("a user is for the role submit only")

    def _check_template(self) -> None:
        allows = self.allowed_users is not None or self.allowed_group is not None
        if self.is_template and not allows:
            raise ValueError(f"user {self.user!r} needs allowed_users or allowed_group: whom it may become")
        if allows and not self.is_template:
            raise ValueError("allowed_users and allowed_group belong to a templated user")
        if ROOT in (self.allowed_users or ()):
            raise ValueError("no rule may make somebody root")


class RulesDocument(Section):
    """A file of rules: the first that matches a caller decides."""

    rules: tuple[Rule, ...]
    """The rules, in order. Required: a file that is empty because it is being written is no file of rules."""


class MappingSettings(Section):
    """Which caller is which Unix user: the first rule that matches decides, and no match is a refusal."""

    file: AbsolutePath | None = None
    """A file of its own for the rules, read again when it changes and on SIGHUP."""
    rules: tuple[Rule, ...] = ()
    """Or the rules themselves."""
    min_uid: Annotated[int, Field(ge=1)] = 1000
    """No user below this number, whatever a rule says. The agent holds to a limit of its own."""
    users_group: UserName = "redbox-users"
    """Templates make users only of members of this group."""

    @model_validator(mode="after")
    def _says_it_once(self) -> Self:
        if self.file is not None and self.rules:
            raise ValueError("give the rules here or in file, not in both")
        return self
