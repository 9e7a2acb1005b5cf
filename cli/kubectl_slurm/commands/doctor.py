"""`doctor`: the whole way from this terminal to Slurm, as this user: each line is well, or has its cure."""

from __future__ import annotations

import argparse
import re
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import NoReturn

from kubectl_slurm.checks import kubernetes
from kubectl_slurm.checks.clusters import cluster_lines, identity
from kubectl_slurm.checks.held_job import HeldJob, delete_abandoned, submit_lines
from kubectl_slurm.checks.hosted import hosted
from kubectl_slurm.checks.report import CheckLine, Health, failed, unknown
from kubectl_slurm.errors import NotPermitted, PluginError
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.options import Invocation, invocation_of, parser_of
from kubectl_slurm.sbatch.manifest import RESOURCES
from kubectl_slurm.slurmjobs.clusters import ClusterView, list_clusters
from kubectl_slurm.terminal.screen import one_line

TEXT = (
    "Check the whole way from here to Slurm: each line is well, or has its cure. At last it submits a held "
    "job, which never starts, and deletes it. It exits with 1 where a submit would fail."
)
LONGEST_S = 3600
ENDING = (signal.SIGTERM, signal.SIGHUP)
Check = Callable[[], Iterator[CheckLine]]


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT)
    parser.add_argument(
        "--service-account", default="default", metavar="NAME", help="the account that the jobs name"
    )
    parser.add_argument("--no-submit", action="store_true", help="submit nothing: a submit may fail then")
    parser.add_argument(
        "--timeout", type=_seconds, default=60, metavar="SECONDS", help="for the held job (default: 60)"
    )
    group = parser.add_argument_group("the held job, as for submit")
    group.add_argument("-p", "--partition", metavar="NAME", default="", help="its partition")
    group.add_argument("-A", "--account", metavar="NAME", default="", help="its account in Slurm")
    group.add_argument(
        "-t", "--time", type=_time, metavar="LIMIT", default="1", help="its time limit (default: one minute)"
    )
    options = parser.parse_args(words)
    call = invocation_of(options, given, environment)
    job = HeldJob(
        options.service_account,
        timedelta(seconds=options.timeout),
        partition=options.partition,
        account=options.account,
        time=options.time,
    )
    is_well = True
    with _interrupted_by_signals():
        for line in _Checks(call.kubectl, job, submits=not options.no_submit).lines():
            is_well = is_well and line.health is not Health.FAILED
            call.screen.write(_written(call, line))
    return 0 if is_well else 1


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """A timeout and a closed terminal end it as Ctrl-C does: the held job is deleted."""

    def interrupt(_: int, __: FrameType | None) -> NoReturn:
        for number in before:
            signal.signal(number, signal.SIG_IGN)  # a shell that ends sends a second one, into the deletion
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in ENDING}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}  # nohup
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _time(text: str) -> str:
    if not re.fullmatch(RESOURCES["time"][1], text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time limit: 10, 1:00:00 or 2-0")
    return text


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"between 1 and {LONGEST_S} seconds")
    return int(text)


def _written(call: Invocation, line: CheckLine) -> str:
    mark, colour = line.health.value
    cure = f"\n   {call.screen.paint('cure:', 'bold')} {one_line(line.cure)}" if line.cure else ""
    return f"{call.screen.paint(mark, colour)} {one_line(line.what)}: {one_line(line.found)}{cure}"


@dataclass(frozen=True)
class _Checks:
    """`submits`: whether the held job is submitted."""

    kubectl: Kubectl
    job: HeldJob
    submits: bool

    def lines(self) -> Iterator[CheckLine]:
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
        if self.submits and is_well:
            yield from _guarded("submit", partial(delete_abandoned, self.kubectl, datetime.now(UTC)))
        yield from _guarded("hosted Slurm", partial(hosted, self.kubectl))
        yield from _guarded("SlurmClusters", partial(self._clusters, may_submit=is_well))

    def _clusters(self, *, may_submit: bool) -> Iterator[CheckLine]:
        try:
            clusters = list_clusters(self.kubectl)
        except NotPermitted as error:
            yield unknown("SlurmClusters", str(error))
            yield from self._submit(None, self.job, may_submit=may_submit)
            return
        if not clusters:
            cure = (
                "an administrator of Kubernetes applies the SlurmCluster that `redbox init` prints; or run "
            )
            cure += "a red-box of your own: docs/users/personal.md"
            yield failed("SlurmClusters", "none exists, and no SlurmEndpoint here", cure)
        for cluster in clusters:
            yield from _guarded(cluster.title, partial(self._cluster, cluster, may_submit=may_submit))

    def _cluster(self, cluster: ClusterView, *, may_submit: bool) -> Iterator[CheckLine]:
        is_served = yield from _passed(cluster_lines(self.kubectl, cluster))
        line, whoami = identity(self.kubectl, cluster, self.job.service_account)
        yield line
        is_mapped = line.health is not Health.FAILED
        job = self.job.for_cluster(cluster, whoami)
        yield from self._submit(cluster, job, may_submit=may_submit and is_served and is_mapped)

    def _submit(self, cluster: ClusterView | None, job: HeldJob, *, may_submit: bool) -> Iterator[CheckLine]:
        if not self.submits:
            return
        if may_submit:
            yield from submit_lines(self.kubectl, cluster, job)
        else:
            what = f"submit to {cluster.name}" if cluster else "submit"
            yield unknown(what, "not tried before the lines above with !! are well")


def _passed(lines: Iterator[CheckLine]) -> Generator[CheckLine, None, bool]:
    """Passes them on; returns whether none of them is bad."""
    is_well = True
    for line in lines:
        is_well = is_well and line.health is not Health.FAILED
        yield line
    return is_well


def _guarded(what: str, check: Check) -> Iterator[CheckLine]:
    """What kubectl refuses is a line, too."""
    try:
        yield from check()
    except NotPermitted as error:
        yield unknown(what, str(error))
    except PluginError as error:
        yield failed(what, str(error), kubernetes.LOGIN_CURE)
