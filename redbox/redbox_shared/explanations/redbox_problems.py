"""What red-box's answers begin with: the title of each kind of problem."""

from __future__ import annotations

from redbox_shared.explanations.explanation import Explanation

REDBOX_PROBLEMS = {
    "The caller is not known": Explanation(
        "red-box does not accept the token. A submit is retried for ten minutes, on virtual nodes without "
        "limit.",
        "The HPC administrator runs `redbox check`: keys, audience, issuer or a clock is wrong.",
    ),
    "The caller may not do this": Explanation(
        "No mapping rule matches the caller, or its rule allows less. Final.",
        "The HPC administrator adds the rule or the role that the message names to `mapping.rules`, and "
        "reloads red-box.",
    ),
    "There is no such thing": Explanation(
        "The job, volume or file does not exist, or belongs to another owner.",
        "Check the name and the service account.",
    ),
    "The request came too slowly": Explanation(
        "The network is slow, or the caller was stopped. Retried.", "Wait, or check the network."
    ),
    "The key is taken": Explanation(
        "The job was deleted before it was submitted, its key has another request, or Slurm does not allow "
        "the action in the job's state.",
        "Create a new SlurmJob; for an action follow the message.",
    ),
    "The revision is not known": Explanation(
        "A watch was away longer than deletions are kept, or red-box has a new journal.",
        "Programs that watch list again; no person has to act.",
    ),
    "The request is too large": Explanation(
        "It exceeds `limits.body_bytes` of red-box or 100,000 JSON values. Final.",
        "Put the script or its files on the Slurm cluster.",
    ),
    "There is no such range": Explanation(
        "A download continues behind the end of a file that has become shorter.", "Restart the download."
    ),
    "This cannot work": Explanation(
        "The request is wrong, or Slurm refused it. Final.", "Fix what the message names."
    ),
    "Too many requests": Explanation(
        "A limit of this caller or of red-box is reached: requests, streams, sessions or bytes. Retried.",
        "Wait. The HPC administrator can raise the limit in red-box's settings.",
    ),
    "Red-box has a defect here": Explanation(
        "An unexpected error in red-box. Retried.",
        "Report it with the request's id and the lines of `journalctl -u redbox` that have this id.",
    ),
    "Not now": Explanation(
        "Slurm, an agent, the journal or the cluster's keys are unavailable. Retried.",
        "The HPC administrator runs `redbox check` and follows the message.",
    ),
    "Something broke": Explanation(
        "An error that the HTTP framework found.", "Report it with the request's id."
    ),
}
"""Problems are not-authenticated (401) to unavailable (503): see docs/reference/openapi.json."""


def title_of(text: str) -> str:
    """The title with which an answer of red-box begins, if it is one."""
    return next((title for title in REDBOX_PROBLEMS if text.startswith(f"{title}: ")), "")


def without_title(text: str) -> str:
    """The sentence behind the title: where a person reads it, the title adds nothing."""
    title = title_of(text)
    return text.removeprefix(f"{title}: ") if title else text
