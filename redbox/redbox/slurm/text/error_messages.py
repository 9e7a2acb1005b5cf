"""Slurm's error messages, and which outcome they mean for a submit: rejected, unavailable or unknown. Pure.

Unavailable: sbatch failed before it sent the request, or slurmctld answered that it accepted no job.
Unknown: the connection broke in between, so the job may exist. Every other message is a rejection.
"""

from __future__ import annotations

import re

from redbox.core.workload_manager import SubmitOutcome, SubmitRejected, SubmitUnavailable, SubmitUnknown

CONNECTION_LOST = re.compile(
    "Socket timed out on send/recv operation|Zero Bytes were transmitted or received|"
    "Message (?:send|receive) failure|Unexpected message received|Header lengths are longer|"
    "Connection reset by peer|Broken pipe|missing socket error|Insane message length|"
    r"Communication shutdown failure|slurm_bufs_sendto\([^\s)]{0,100}\) failed|"
    r"Unable to contact slurm controller \((?:send|receive|shutdown) failure\)|"
    "Connection timed out (?:reading|writing)",
    re.IGNORECASE,
)
UNAVAILABLE = re.compile(
    "Unable to contact slurm controller|Slurm controller not responding|backup controller|Connection refused|"
    "Communication connection failure|No route to host|Network is unreachable|"
    "Temporary failure in name resolution|"
    "Resource temporarily unavailable|sleeping and retrying|job queue full|temporarily unable|"
    "Rate limit exceeded|Connection timed out establishing|"
    "Protocol authentication error|Insufficient or invalid authentication|munge|"
    "Unable to establish configuration source|Unable to process configuration file|cannot stat file|"
    "I/O error writing script|Required partition not available",
    re.IGNORECASE,
)
REMEDIES = (
    ("invalid partition", "`kubectl slurm info` lists the partitions."),
    (
        "invalid account|invalid qos",
        "`kubectl slurm doctor` lists the accounts and QOS that are yours.",
    ),
    (
        "time limit is invalid|time limit exceeds",
        "Ask for less --time: `kubectl slurm info` lists how long a job of each partition may take.",
    ),
    (
        (
            "node configuration is not available|processors requested than permitted|node count specification"
            "|memory specification can not be satisfied|invalid generic resource|invalid feature"
        ),
        "Ask for less --mem, CPUs or GPUs: `kubectl slurm info` lists what each partition has.",
    ),
    (
        "dependency problem",
        "Slurm has no such job, or forgot it some minutes after its end: leave it out if it ended well.",
    ),
    (
        "violates accounting/QOS policy",
        "A limit of your account or QOS is reached: ask for less, or again once others of your jobs end.",
    ),
)
"""What a user can do about a message: most have no login on a host of Slurm."""
COULD_NOT_START = 127
HALF = 8 * 1024
PROGRAM = re.compile(
    r"^(?:\S*/)?(?:sbatch|scancel|scontrol|squeue|sacct|sinfo|sacctmgr|srun|sstat): (?:error: |fatal: )?"
)


def words_of(output: bytes) -> str:
    """Slurm's messages on one line, without the names of its programs."""
    return "; ".join(line for line in lines_of(output) if not line.startswith('Try "'))


def lines_of(output: bytes) -> list[str]:
    """Of what is longer than any message of Slurm, the beginning and the end: it may be an agent's own."""
    if len(output) > 2 * HALF:
        output = output[:HALF] + b"\n" + output[-HALF:]
    lines = (PROGRAM.sub("", line).strip() for line in output.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line]


def with_remedy(words: str) -> str:
    remedy = next((remedy for pattern, remedy in REMEDIES if re.search(pattern, words, re.IGNORECASE)), "")
    return f"{words.rstrip('.')}. {remedy}" if remedy else words


def classify(code: int, stderr: bytes) -> SubmitOutcome:
    """The outcome of an sbatch that printed no id and failed."""
    words = words_of(stderr)
    if code < 0:
        return SubmitUnknown(f"sbatch was ended by signal {-code}. {words}".strip())
    if CONNECTION_LOST.search(words):
        return SubmitUnknown(words)
    if UNAVAILABLE.search(words):
        return SubmitUnavailable(words)
    if code == COULD_NOT_START:
        return SubmitUnavailable(f"sbatch could not be run: {words}")
    if not words:
        return SubmitUnknown(f"sbatch ended with exit code {code} and printed nothing.")
    return SubmitRejected(with_remedy(words))


def is_unavailable(words: str) -> bool:
    """Whether a call that submits nothing failed because Slurm could not be reached."""
    return bool(UNAVAILABLE.search(words) or CONNECTION_LOST.search(words))
