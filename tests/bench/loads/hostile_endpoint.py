"""A hostile red-box as a process of its own: its floods must not slow the one that measures.

`python -m tests.bench.loads.hostile_endpoint FOLDER` prints its endpoint and CA. Each line of its standard
input is JSON: the manner, and the events of the flood of rows.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

from tests.bench.hostile_redbox import HostileRedbox


async def main(folder: Path) -> None:
    box = HostileRedbox()
    async with box.serving(folder):
        print(json.dumps({"endpoint": box.endpoint, "ca": base64.b64encode(box.ca).decode()}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            told = json.loads(line)
            box.manner, box.rows = told["manner"], [row.encode() for row in told["rows"]]
            box.hang_up()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
