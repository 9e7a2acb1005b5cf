"""Options that all commands have, and what a command starts from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from kubectl_slurm.errors import BadUsage
from kubectl_slurm.kubectl.program import Kubectl, find_kubectl
from kubectl_slurm.terminal.screen import Screen, screen_of

GLOBAL_VALUES = ("--namespace", "--context", "--kubeconfig", "--as", "--as-group")
"""Options of kubectl that are passed on to it."""


@dataclass(frozen=True)
class Invocation:
    """One call of a command: how it reaches the cluster, and where it writes to."""

    kubectl: Kubectl
    screen: Screen


class CommandParser(argparse.ArgumentParser):
    """Reports a wrong command line in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise BadUsage(f"{message}: `{self.prog} --help` describes it")


def parser_of(
    command: str, text: str, *, usage: str | None = None, epilog: str | None = None
) -> CommandParser:
    """A parser with the options of kubectl that every command has."""
    parser = CommandParser(
        prog=f"kubectl slurm {command}",
        description=text,
        usage=usage,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    group = parser.add_argument_group("as for kubectl")
    group.add_argument("-n", "--namespace", metavar="NAME", help="the namespace of the jobs")
    group.add_argument("--context", metavar="NAME", help="the context of the kubeconfig")
    group.add_argument("--kubeconfig", metavar="FILE", help="the kubeconfig")
    group.add_argument("--as", dest="as_user", metavar="USER", help="impersonate this user")
    group.add_argument("--as-group", action="append", metavar="GROUP", default=[], help="and this group")
    return parser


def take_global(words: list[str]) -> list[str]:
    """Remove an option of kubectl from the front, and return it as kubectl takes it; else nothing."""
    name, has_value, value = words[0].partition("=")
    if words[0].startswith("-n") and not words[0].startswith("--"):
        name, has_value, value = "--namespace", words[0][2:], words[0][2:].removeprefix("=")
    if name not in GLOBAL_VALUES:
        return []
    words.pop(0)
    if not has_value:
        if not words:
            raise BadUsage(f"{name} needs a value")
        value = words.pop(0)
    return [f"{name}={value}"]


def invocation_of(
    options: argparse.Namespace, given: Sequence[str], environment: Mapping[str, str]
) -> Invocation:
    """`given` are the options before the command."""
    own = {
        "--namespace": options.namespace,
        "--context": options.context,
        "--kubeconfig": options.kubeconfig,
        "--as": options.as_user,
    }
    words = [f"{name}={value}" for name, value in own.items() if value]
    words += [f"--as-group={group}" for group in options.as_group]
    return invocation([*given, *words], environment)


def invocation(kubectl_options: Sequence[str], environment: Mapping[str, str]) -> Invocation:
    """Of options that come twice the last counts, as for kubectl."""
    last: dict[str, str] = {}
    groups: list[str] = []
    for word in kubectl_options:
        name = word.partition("=")[0]
        if name == "--as-group":
            groups.append(word)
        else:
            last[name] = word
    return Invocation(
        find_kubectl([*last.values(), *groups], environment), screen_of(sys.stdout, environment)
    )
