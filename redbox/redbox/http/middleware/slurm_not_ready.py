"""The application of a red-box that Slurm has never answered: 503, the reason, and when to retry.

There is no authenticator yet, so every caller gets the same response, and nothing of a request is read.
"""

from __future__ import annotations

import secrets

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from redbox.http.answers.problems import UnavailableProblem, problem_response

RETRY_AFTER_S = 5.0
DETAIL = (
    "red-box is not ready: Slurm has never answered it, so it has no cluster name yet to mark jobs with. "
    "It continues by itself as soon as Slurm answers, and the login node, where that is another host. Its "
    "log shows the cause, as does `redbox check` on its host."
)


async def slurm_not_ready(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/healthz":
        await PlainTextResponse("ok\n")(scope, receive, send)
    else:
        problem = UnavailableProblem(DETAIL, retry_after=RETRY_AFTER_S)
        await problem_response(problem, secrets.token_hex(8))(scope, receive, send)
