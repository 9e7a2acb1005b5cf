"""What every caller hears from a red-box that Slurm has never answered: 503, why, and when to ask again.

It knows nobody yet, so it tells all the same, and takes nothing.
"""

from __future__ import annotations

import secrets

from starlette.responses import PlainTextResponse

from redbox.http.answers.problems import Unavailable, problem_response
from redbox.http.middleware.request_middleware import Receive, Scope, Send

AGAIN_S = 5.0
WHY = (
    "red-box is not ready: Slurm has never answered it, so it does not know the name of its cluster yet, "
    "which jobs are marked with. It goes on by itself as soon as Slurm answers; on its host `redbox check` "
    "says what is amiss."
)


async def not_yet(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as an application does."""
    if scope["path"] == "/healthz":
        await PlainTextResponse("ok\n")(scope, receive, send)
    else:
        refusal = problem_response(Unavailable(WHY, retry_after=AGAIN_S), secrets.token_hex(8))
        await refusal(scope, receive, send)
