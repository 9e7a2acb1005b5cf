"""Supervises a command as `redbox-slurmpod` does: FOLDER RESTARTS SETTLED_S COMMAND..."""

import asyncio
import logging
import sys
from pathlib import Path

from redbox_slurmpod.supervision.supervisor import RestartPauses, SupervisedDaemon, Supervisor


async def main() -> int:
    folder, restarts, settled_s, *command = sys.argv[1:]
    daemon = SupervisedDaemon(
        tuple(command),
        restarts=restarts == "restarts",
        environment={"FROM_SUPERVISOR": "yes"},
        when_ready=(f"{folder}/when-ready",),
        keys=Path(folder, "keys"),
        holds=Path(folder, "step").exists,
        pauses=RestartPauses(first_s=0.01, longest_s=0.05, settled_s=float(settled_s)),
    )
    return await Supervisor(daemon, Path(folder, "run", "notify.sock")).run()


logging.basicConfig(level=logging.INFO)
sys.exit(asyncio.run(main()))
