"""Conditions of users and homes that stop nothing: the rest goes on. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.users.user_steps import ended_at, words_of
from redbox_kube.status.conditions import NewCondition
from redbox_shared.printable import printable

USERS_VALID = "UsersValid"
HOMES_VALID = "HomesValid"
MOST_NAMED = 5
LONGEST = 2048
SHARED = "ReadWriteMany"
NOT_MADE_HERE = (
    "no ConfigMap has the users, so the operator makes no home and leaves the claim's folder as it is: see "
    "that the folder is root's with mode 0755, and each home its user's with mode 0700"
)


def user_conditions(world: ClusterWorld) -> list[NewCondition]:
    """None of what is not there."""
    made = []
    if (users := world.users.read) is not None:
        text = _named(users.left_out)
        made.append(
            NewCondition(
                USERS_VALID,
                "LinesLeftOut" if text else "AllTaken",
                text or f"{len(users.users)} users, {len(users.groups)} groups",
                holds=not text,
            )
        )
    if world.controller.spec.redbox.homes is not None and world.users.claim is not None:
        text = _named([*_problems(world)])
        has_users = world.users.read is not None or bool(world.users.why_unread)
        made.append(
            NewCondition(
                HOMES_VALID,
                "Problems" if text else "NoProblems" if has_users else "NotMadeHere",
                text or ("workers and logins share them" if has_users else NOT_MADE_HERE),
                holds=not text,
            )
        )
    return made


def _problems(world: ClusterWorld) -> Iterator[str]:
    claim = world.users.claim or {}
    modes = (claim.get("spec") or {}).get("accessModes") or []
    if SHARED not in modes:
        yield (
            f"the claim {claim['metadata']['name']} is {', '.join(modes)}: pods on other machines cannot "
            f"mount it, so name a claim with {SHARED}"
        )
    users = world.users.read
    for user in users.without_folder if users else ():
        yield f"no folder is made for {user.name}, whose home {user.home} is not directly in /home"
    for job in world.users.jobs.values():
        if ended_at(job, "Complete") is not None:
            yield from filter(None, words_of(world, job).split("\n")[1:])


def _named(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    more = len(sentences) - MOST_NAMED
    shown = [*sentences[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
    return printable("; ".join(shown))[:LONGEST]
