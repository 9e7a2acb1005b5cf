"""On a login host: `redbox` on asyncio's own event loop, in which callers take no turns.

python3 plain_loop.py LIBRARY redbox ARGUMENTS...
"""

import asyncio
import sys

_, library, *sys.argv = sys.argv
sys.path.insert(0, library)

from redbox.__main__ import main  # noqa: E402 (found there)
from redbox.commands import serve  # noqa: E402

vars(serve)["FairEventLoop"] = asyncio.SelectorEventLoop
main()
