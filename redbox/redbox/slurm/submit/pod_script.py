"""The batch script of a pod's job: it finds a Python for the runner, and becomes the runner. Pure.

All else is the runner's, whose one argument is the job's private folder: it starts the containers, by srun
where the pod asks for MPI or for several nodes. The shell is replaced by it, so that a signal to the batch
script alone reaches the runner, which has the environment that the administrator's lines have made.

A runner that starts from its source leaves its compiled form beside it, named by Python's exact version: the
next ones of the user start from that, earlier and with 6 MB less.
"""

from __future__ import annotations

import shlex

CANNOT_RUN = 126
PYTHONS = (
    "python3",
    "/usr/bin/python3",
    "/usr/libexec/platform-python",  # of RHEL and its kin, where no python3 is installed
    "python3.13",
    "python3.12",
    "python3.11",
    "python3.9",
    "python3.8",
    "python3.6",
)
# The runner's own program names its compiled form by the same words.
TELL_VERSION = (
    "import sys; sys.version_info < (3, 6) and sys.exit(1); "
    'print("%s-%x" % (sys.implementation.cache_tag, sys.hexversion))'
)
FIND_PYTHON = (
    "python=",
    f"for candidate in {' '.join(PYTHONS)}; do",
    f"    if version=$(\"$candidate\" -IS -c '{TELL_VERSION}' 2>/dev/null); then",
    "        python=$candidate",
    "        break",
    "    fi",
    "done",
)
# Only a file of the user's own, as the runner itself.
FIND_COMPILED = (
    'compiled="${runner%.py}.$version.pyc"',
    '[ ! -L "$compiled" ] && [ -O "$compiled" ] && [ -f "$compiled" ] && runner=$compiled',
)
NO_PYTHON = "there is no Python 3.6 or newer: install python3 there, or load one in slurm.container_setup"
NO_RUNNER = "$runner is missing or not the user's: slurm.image_cache must be a folder that all nodes share"
NO_FOLDER = "$folder is missing or not the user's: the working directory must be one that all nodes share"


def build_pod_script(runner: str, folder: str, setup: str = "") -> str:
    """`runner` and `folder` are absolute paths; `setup` are the administrator's lines, which run first."""
    lines = [
        "#!/bin/sh",
        "# Made by red-box from a pod.",
        *([setup.rstrip("\n")] if setup else []),
        f"runner={shlex.quote(runner)}",
        f"folder={shlex.quote(folder)}",
        *FIND_PYTHON,
        *_fail_unless('[ -n "$python" ]', NO_PYTHON),
        # Where others may write in the folders above, one of theirs, or a link to a file of the user's,
        # could have been put in its place.
        *_fail_unless('[ ! -L "$runner" ] && [ -O "$runner" ]', NO_RUNNER),
        *_fail_unless('[ ! -L "$folder" ] && [ -O "$folder" ]', NO_FOLDER),
        *FIND_COMPILED,
        'exec "$python" -IS "$runner" "$folder"',
    ]
    return "\n".join(lines) + "\n"


def _fail_unless(condition: str, sentence: str) -> list[str]:
    return [
        f"{{ {condition}; }} || {{",
        f'    echo "red-box: on $(uname -n) {sentence}." >&2',
        f"    exit {CANNOT_RUN}",
        "}",
    ]
