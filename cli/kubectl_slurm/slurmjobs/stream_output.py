"""stdout or stderr of a job alone.

Kubernetes tells the streams of a pod apart where its feature PodLogsQuerySplitStreams is on. Elsewhere
red-box does, which is asked as the job's own service account.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote, urlencode

from kubectl_slurm.errors import PluginError, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.access import Retries
from kubectl_slurm.slurmjobs.clusters import cluster_of
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.output import NOT_SPLIT, STREAMS, PodOutput, follow_output, print_output
from kubectl_slurm.slurmjobs.redbox.requests import RedboxNotReached, access_of
from kubectl_slurm.terminal.screen import note

STREAM_NEEDS = (
    "this Kubernetes cluster cannot tell stdout and stderr of a pod apart (its feature "
    "PodLogsQuerySplitStreams is off), and red-box cannot be asked: {0}. Without "
    "--stdout and --stderr both are shown"
)
TOKEN_USED_S = 300.0
"""Of its ten minutes: a log is followed for as long as the job runs."""
Write = Callable[[bytes], None]


def copy_stream(
    kubectl: Kubectl,
    job: SlurmJobView,
    write: Write,
    stream: str,
    *,
    follow: bool,
    since: int | None = None,
) -> None:
    """Write one stream: what there is, or from the attempt `since` until the job has ended."""
    if NOT_SPLIT not in PodOutput(kubectl, job, lambda _: None, stream=stream).copy(follow=False):
        if follow:
            follow_output(kubectl, job, write, stream=stream, since=since)
        else:
            print_output(kubectl, job, write, stream=stream)
        return
    try:
        for number in range(since or job.attempt, job.attempt + 1):
            attempt = job.as_of_attempt(number)
            _copy_from_redbox(kubectl, attempt, write, stream, follow=follow or job.finished)
    except PluginError as error:
        raise PluginError(STREAM_NEEDS.format(error)) from error


def copy_attempt(kubectl: Kubectl, job: SlurmJobView, write: Write, stream: str | None) -> None:
    """The log of an attempt that has ended: its pod's, or where that is gone red-box's, stdout first."""
    code, _, _ = kubectl.outcome("get", "pod", "--output=name", "--", job.pod)
    if not code and stream:
        copy_stream(kubectl, job, write, stream, follow=False)
        return
    if not code:
        print_output(kubectl, job, write)
        return
    try:
        for name in [stream] if stream else STREAMS:
            _copy_from_redbox(kubectl, job, write, name, follow=True)
    except PluginError as error:
        raise Refusal(
            f"attempt {job.attempt} of {job.name} has no log any more: its pod {job.pod} is gone, and {error}"
        ) from error


def _copy_from_redbox(
    kubectl: Kubectl, job: SlurmJobView, write: Write, stream: str, *, follow: bool
) -> None:
    """A connection that breaks is made again where it broke; a token is used for half of its life."""
    access, asked_at = None, 0.0
    generation, offset, retries = "", 0, Retries(note)
    while True:
        if access is None or time.monotonic() - asked_at > TOKEN_USED_S:
            asked_at = time.monotonic()
            access = access_of(kubectl, cluster_of(kubectl, job), job.service_account)
        query = {
            "attempt": job.attempt,
            "generation": generation,
            "offset": offset,
            "follow": str(follow).lower(),
        }
        path = f"/v1/jobs/{quote(job.uid)}/logs/{stream}?{urlencode(query)}"
        is_complete = True
        try:
            for position in access.output(path):
                is_complete = False
                retries.succeeded()
                generation, offset, piece = position
                write(piece)
        except RedboxNotReached as broken:
            if not (follow and generation):
                raise
            retries.wait_after(broken)
            continue
        if is_complete or not follow:
            return
