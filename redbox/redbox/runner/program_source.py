"""The runner as one file: the modules of `program`, joined."""

from __future__ import annotations

from functools import cache

from redbox.node.joined_program import join_package

HEAD = '''#!/usr/bin/python3 -IS
"""Red Box's runner: runs a pod's containers with Apptainer, as the user, on the first node of the pod's job.

Made from redbox/runner/program by `redbox.runner.program_source`. Python 3.6 or newer, standard library
only. Its argument is the pod's private folder: it reads `pod.json` there and writes `report.jsonl`.
"""
'''


@cache
def runner_source() -> bytes:
    return join_package("redbox.runner.program", "entry", HEAD)
