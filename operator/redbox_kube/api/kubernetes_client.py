"""The asynchronous half of the package `kubernetes`.

Its parent imports the synchronous half as well: 7 MiB and half a second for nothing. So the parent is an
empty module with the path of the real one.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

PARENT = "kubernetes"

if PARENT not in sys.modules and (found := find_spec(PARENT)) is not None:
    sys.modules[PARENT] = module_from_spec(found)  # not executed

from kubernetes.aio import client, config  # noqa: E402 (below its parent)

__all__ = ["client", "config"]
