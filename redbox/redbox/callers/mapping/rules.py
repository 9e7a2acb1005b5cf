"""The administrator's rules: their keys and their validation.

A rule maps callers to a Unix user and limits them. Errors are reported with their line; `mapping` applies the
rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from redbox.callers.settings import ClusterName
from redbox.callers.tokens.claims import ACCOUNT_NAME, NAMESPACE
from redbox.core.domain import Role
from redbox.core.yaml_document import AbsolutePath, Section
from redbox_api.job_parts import Name

USER_NAME = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
"""A Unix user's name; not only digits, which tools would read as a uid."""

TEMPLATES: Mapping[str, str] = {"{namespace}": "namespace", "{service_account}": "name"}
"""Templates of a user, and the field of the identity that replaces each."""

EVERYONE = "*"
ROOT = "root"


def _name_of(kind: str, pattern: re.Pattern[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if not pattern.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name of a {kind}")
        return name

    return check


_user_name = _name_of("Unix user", USER_NAME)


def _user_or_template(user: str) -> str:
    if "{" in user or "}" in user:
        if user not in TEMPLATES:
            allowed = " or ".join(TEMPLATES)
            raise ValueError(f"{user!r}: a template is the whole user, one of {allowed}")
        return user
    if user == ROOT:
        raise ValueError("a rule may not map callers to root")
    return _user_name(user)


def _user_or_everyone(name: str) -> str:
    return name if name == EVERYONE else _user_name(name)


def _anchored(pattern: str) -> str:
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise ValueError(f"the pattern {pattern!r} must be anchored: ^...$ (or give a list of names)")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


def _some(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("an empty list matches no caller: add names, or omit the key")
    return names


SlurmName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}$")]
UserName = Annotated[Name, AfterValidator(_user_name)]
UserOrEveryone = Annotated[Name, AfterValidator(_user_or_everyone)]
AccountName = Annotated[Name, AfterValidator(_name_of("service account", ACCOUNT_NAME))]
Namespaces = tuple[Annotated[Name, AfterValidator(_name_of("namespace", NAMESPACE))], ...]
Pattern = Annotated[Name, AfterValidator(_anchored)]


ROLES_OF_SERVICES = (
    (Role.OPERATOR, "an operator"),
    (Role.VOLUMES, "the role volumes"),
    (Role.METRICS, "the role metrics"),
)


class Rule(Section):
    """Its callers are service accounts (`cluster`), users of this host (`unix_users`) or `tokens`."""

    cluster: Annotated[ClusterName | None, Field(examples=["prod"])] = None
    """Service accounts of this cluster."""
    namespaces: Annotated[Namespaces, AfterValidator(_some)] | Pattern | None = Field(
        None, examples=[["physics"]]
    )
    """Of these namespaces: a list of names, or an anchored pattern (^team-[a-z]+$)."""
    service_accounts: Annotated[tuple[AccountName, ...], AfterValidator(_some)] | None = None
    """Of these names; left out: any, since pods of a namespace may use each of its accounts."""
    unix_users: Annotated[tuple[UserOrEveryone, ...], AfterValidator(_some)] | None = None
    """Users of this host who call through the Unix socket; '*' is all of them. Each keeps its own user."""
    tokens: Annotated[tuple[Name, ...], AfterValidator(_some)] | None = None
    """Opaque tokens by id (redbox token list); '*' is all of them. Each has the user it was created for."""
    roles: Annotated[frozenset[Role], Field(min_length=1)] = frozenset({Role.SUBMIT})
    """submit (own jobs), operator (watch, cancel, hold, release its cluster's), reader (see partitions),
    volumes (delete folders that red-box made for its cluster's volumes), exec (beside submit: sessions in own
    jobs, where exec.roles asks for it), metrics (read Slurm's metrics, of the jobs of all users)."""
    user: Annotated[Name, AfterValidator(_user_or_template)] | None = Field(None, examples=["alice"])
    """The Unix user that jobs run as: a name, or {namespace} or {service_account}."""
    allowed_users: Annotated[tuple[UserName, ...], AfterValidator(_some)] | None = None
    """With a template: the users that it may result in."""
    allowed_group: UserName | None = None
    """With a template: or a group whose members it may result in."""
    accounts: Annotated[tuple[SlurmName, ...], AfterValidator(_some)] | None = None
    """Slurm accounts that may be charged; left out: what Slurm allows the user."""
    partitions: Annotated[tuple[SlurmName, ...], AfterValidator(_some)] | None = None
    """Partitions that may be used; left out: what Slurm allows the user."""
    min_uid: Annotated[int, Field(ge=1)] | None = None
    """Refuses users below it; the higher one of this and mapping.min_uid applies."""

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
        if Role.EXEC in self.roles and Role.SUBMIT not in self.roles:
            raise ValueError("the role exec is for callers with jobs of their own: give submit, too")
        names_accounts = isinstance(self.namespaces, tuple) and self.service_accounts is not None
        for role, name in ROLES_OF_SERVICES:
            if self.roles >= {role, Role.SUBMIT}:
                raise ValueError(f"{name} submits nothing: give submit by another rule, to another account")
            if role in self.roles and self.cluster is not None and not names_accounts:
                raise ValueError(f"the role {role} needs a list of namespaces and of service_accounts")

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
            raise ValueError(f"user {self.user!r} needs allowed_users or allowed_group: the possible users")
        if allows and not self.is_template:
            raise ValueError("allowed_users and allowed_group belong to a templated user")
        if ROOT in (self.allowed_users or ()):
            raise ValueError("a rule may not map callers to root")


class RulesDocument(Section):
    """A file of rules: the first that matches a caller decides."""

    rules: tuple[Rule, ...]
    """The rules, in order. Required, so that a file that is still empty while it is written is invalid."""


class MappingSettings(Section):
    """The mapping of callers to Unix users: the first matching rule decides, and no match is a refusal."""

    file: AbsolutePath | None = None
    """A file of its own for the rules, read again when it changes and on SIGHUP."""
    rules: tuple[Rule, ...] = ()
    """Or the rules themselves."""
    min_uid: Annotated[int, Field(ge=1)] = 1000
    """No user below this uid, whatever a rule allows. The agent has a limit of its own."""
    users_group: UserName = "redbox-users"
    """Templates make users only of members of this group."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.file is not None and self.rules:
            raise ValueError("give the rules here or in file, not in both")
        return self
