"""`doctor`: the whole way from this terminal to Slurm, as this user: each line is well, or has its cure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from kubectl_slurm.checks import kubernetes
from kubectl_slurm.checks.clusters import cluster_lines, identity
from kubectl_slurm.checks.held_job import submit_lines
from kubectl_slurm.checks.report import Examined, Health, not_well, unknown
from kubectl_slurm.errors import NotPermitted, PluginError
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.options import Invocation, invocation_of, parser_of
from kubectl_slurm.slurmjobs.clusters import ClusterView, list_clusters
from kubectl_slurm.terminal.screen import one_line

TEXT = (
    "Check the whole way from here to Slurm: each line is well, or has its cure. At last it submits a held "
    "job, which never starts, and deletes it. It exits with 1 where a submit would fail."
)
LONGEST_S = 3600
Check = Callable[[], Iterator[Examined]]


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT)
    parser.add_argument(
        "--service-account", default="default", metavar="NAME", help="the account that the jobs name"
    )
    parser.add_argument("--no-submit", action="store_true", help="submit nothing: a submit may fail then")
    parser.add_argument(
        "--timeout", type=_seconds, default=60, metavar="SECONDS", help="for the held job (default: 60)"
    )
    options = parser.parse_args(words)
    call = invocation_of(options, given, environment)
    within = None if options.no_submit else timedelta(seconds=options.timeout)
    is_well = True
    for line in _Checks(call.kubectl, options.service_account, within).lines():
        is_well = is_well and line.health is not Health.NOT_WELL
        call.screen.write(_written(call, line))
    return 0 if is_well else 1


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"between 1 and {LONGEST_S} seconds")
    return int(text)


def _written(call: Invocation, line: Examined) -> str:
    mark, colour = line.health.value
    cure = f"\n   {call.screen.paint('cure:', 'bold')} {one_line(line.cure)}" if line.cure else ""
    return f"{call.screen.paint(mark, colour)} {one_line(line.what)}: {one_line(line.found)}{cure}"


@dataclass(frozen=True)
class _Checks:
    """`within`: how long the held job may take; None: none is submitted."""

    kubectl: Kubectl
    account: str
    within: timedelta | None

    def lines(self) -> Iterator[Examined]:
        """In the order of the way; what cannot go on without a step ends with it."""
        yield from kubernetes.kubeconfig(self.kubectl)
        for check in (kubernetes.login, kubernetes.kinds):
            if not (yield from _passed(check(self.kubectl))):
                return
        is_well = True
        for what, check in (
            ("rights", kubernetes.rights),
            ("quota", kubernetes.quota),
            ("images", kubernetes.images),
        ):
            is_well = (yield from _passed(_guarded(what, partial(check, self.kubectl)))) and is_well
        yield from _guarded("SlurmClusters", partial(self._clusters, may_submit=is_well))

    def _clusters(self, *, may_submit: bool) -> Iterator[Examined]:
        try:
            clusters = list_clusters(self.kubectl)
        except NotPermitted as error:
            yield unknown("SlurmClusters", str(error))
            yield from self._submit(None, may_submit=may_submit)
            return
        if not clusters:
            cure = (
                "an administrator of Kubernetes applies the SlurmCluster that `redbox init` prints; or run "
            )
            cure += "a red-box of your own: docs/users/personal.md"
            yield not_well("SlurmClusters", "none exists, and no SlurmEndpoint here", cure)
        for cluster in clusters:
            yield from _guarded(cluster.title, partial(self._cluster, cluster, may_submit=may_submit))

    def _cluster(self, cluster: ClusterView, *, may_submit: bool) -> Iterator[Examined]:
        is_served = yield from _passed(cluster_lines(self.kubectl, cluster))
        is_mapped = yield from _passed(identity(self.kubectl, cluster, self.account))
        yield from self._submit(cluster, may_submit=may_submit and is_served and is_mapped)

    def _submit(self, cluster: ClusterView | None, *, may_submit: bool) -> Iterator[Examined]:
        if self.within is None:
            return
        if may_submit:
            yield from submit_lines(self.kubectl, cluster, self.account, self.within)
        else:
            what = f"submit to {cluster.name}" if cluster else "submit"
            yield unknown(what, "not tried before the lines above with !! are well")


def _passed(lines: Iterator[Examined]) -> Generator[Examined, None, bool]:
    """Passes them on; returns whether none of them is bad."""
    is_well = True
    for line in lines:
        is_well = is_well and line.health is not Health.NOT_WELL
        yield line
    return is_well


def _guarded(what: str, check: Check) -> Iterator[Examined]:
    """What kubectl refuses is a line, too."""
    try:
        yield from check()
    except NotPermitted as error:
        yield unknown(what, str(error))
    except PluginError as error:
        yield not_well(what, str(error), kubernetes.LOGIN_CURE)
