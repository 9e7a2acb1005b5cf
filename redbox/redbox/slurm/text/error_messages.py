"""What Slurm's words mean when a submit fails: no for ever, not now, or nobody knows. Pure.

A failure before the request was sent, or an answer that says that nothing was taken, is "not now"; a
connection that broke in between is unknown: the job may be there. Any other word of sbatch's is a refusal,
for the caller to read.
"""

from __future__ import annotations

import re

from redbox.core.workload_manager import SubmitOutcome, SubmitRejected, SubmitUnavailable, SubmitUnknown

LOST_ON_THE_WAY = re.compile(
    "Socket timed out on send/recv operation|Zero Bytes were transmitted or received|"
    "Message (?:send|receive) failure|Unexpected message received|Header lengths are longer|"
    "Connection reset by peer|Broken pipe",
    re.IGNORECASE,
)
NOT_NOW = re.compile(
    "Unable to contact slurm controller|Slurm controller not responding|backup controller|Connection refused|"
    "Communication connection failure|No route to host|Network is unreachable|"
    "Temporary failure in name resolution|"
    "Resource temporarily unavailable|sleeping and retrying|job queue full|temporarily unable|"
    "Protocol authentication error|Insufficient or invalid authentication|munge|"
    "Unable to establish configuration source|Unable to process configuration file|cannot stat file|"
    "I/O error writing script|Required partition not available",
    re.IGNORECASE,
)
CURES = (
    ("invalid partition", "`sinfo --summarize` lists the partitions."),
    (
        "invalid account|invalid qos",
        "`sacctmgr show associations user=$USER` lists the accounts, partitions and QOS that are yours.",
    ),
    (
        "time limit is invalid|time limit exceeds",
        "`sinfo --format='%P %l'` lists how long a job of each partition may take.",
    ),
    (
        (
            "node configuration is not available|processors requested than permitted|node count specification"
            "|memory specification can not be satisfied|invalid generic resource|invalid feature"
        ),
        "`sinfo --format='%P %D %c %m %f %G'` lists what the nodes of each partition have.",
    ),
    (
        "violates accounting/QOS policy",
        "A limit of your account or QOS is reached: ask for less, or again once others of your jobs end.",
    ),
)
"""What one who reads these words does next; the commands are for a login node."""
WENT_WRONG_TO_START = 127
SPEAKER = re.compile(
    r"^(?:\S*/)?(?:sbatch|scancel|scontrol|squeue|sacct|sinfo|sacctmgr|srun|sstat): (?:error: |fatal: )?"
)


def words_of(output: bytes) -> str:
    """Slurm's words on one line, without the names of its programs."""
    lines = (SPEAKER.sub("", line).strip() for line in output.decode("utf-8", "replace").splitlines())
    said = [line for line in lines if line and not line.startswith('Try "')]
    return "; ".join(said)


def with_cure(words: str) -> str:
    """Slurm's words, and after them what to do about it, where that is known."""
    cure = next((cure for said, cure in CURES if re.search(said, words, re.IGNORECASE)), "")
    return f"{words.rstrip('.')}. {cure}" if cure else words


def classify(code: int, stderr: bytes) -> SubmitOutcome:
    """A submit that printed no id and did not end well."""
    words = words_of(stderr)
    if code < 0:
        return SubmitUnknown(f"sbatch was ended by signal {-code}. {words}".strip())
    if LOST_ON_THE_WAY.search(words):
        return SubmitUnknown(words)
    if NOT_NOW.search(words):
        return SubmitUnavailable(words)
    if code == WENT_WRONG_TO_START:
        return SubmitUnavailable(f"sbatch could not be run: {words}")
    if not words:
        return SubmitUnknown(f"sbatch ended with exit code {code} and said nothing.")
    return SubmitRejected(with_cure(words))


def is_unavailable(words: str) -> bool:
    """Whether a call that changes nothing failed because Slurm could not be reached."""
    return bool(NOT_NOW.search(words) or LOST_ON_THE_WAY.search(words))
