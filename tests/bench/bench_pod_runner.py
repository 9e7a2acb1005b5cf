"""The runner of a pod on Slurm, compared with a bare `apptainer exec`.

Both start the same container from the same image on one node, with the same options.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from redbox.runner.program.command_lines import ISOLATED
from redbox.runner.program_source import runner_source
from redbox.slurm.submit.pod_script import build_pod_script
from redbox_api.pod_parts import PodProgram
from redbox_bed.bed import Bed
from tests.bench.bench_slurm import LOADS, USER, clear
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.pod_lives import STAMP
from tests.bench.rows import Figure, Target
from tests.e2e.harness.container_image import BUILD, IMAGE

RUNS = sized(15, 5)
NODE = "n1"
FOLDER = f"/home/{USER}/redbox-bench-runner"
PRIVATE, WORK = f"{FOLDER}/private", f"{FOLDER}/work"
RUNNER, LOAD, ASKED, OUTPUT = (f"{FOLDER}/{name}" for name in ("runner.py", "load.py", "asked.json", "said"))
CONTAINER = "main"
SCRIPT = f"{STAMP}; sleep 1"
JOB_WITHIN_S = 60 + 10 * RUNS
MIB = 2**20


def program() -> dict[str, Any]:
    """As red-box writes it into pod.json."""
    main = {"name": CONTAINER, "image": IMAGE, "command": ["sh", "-c", SCRIPT]}
    pod = PodProgram.model_validate(
        {"name": "bench", "namespace": USER, "uid": "u-1", "restartPolicy": "Never", "containers": [main]}
    )
    paths = {"logs": WORK, "cache": f"{FOLDER}/cache", "keepDays": 0}
    return {**pod.model_dump(mode="json", by_alias=True), "paths": paths}


def bare() -> str:
    return "exec " + shlex.join(["apptainer", "-s", "exec", *ISOLATED, IMAGE, "sh", "-c", SCRIPT])


@contextmanager
def laid_out(bed: Bed) -> Iterator[None]:
    """All files in the user's home, which the compute node shares."""
    login = bed.host("login")
    login.run("sh", "-c", BUILD, user=USER, timeout=120)
    asked = {
        "folder": PRIVATE,
        "pod": program(),
        "container": CONTAINER,
        "count": RUNS,
        "runner": build_pod_script(RUNNER, PRIVATE),
        "bare": bare(),
    }
    login.run("mkdir", "-p", FOLDER, user=USER)
    files = {
        RUNNER: runner_source().decode(),
        LOAD: (LOADS / "pod_runner.py").read_text(),
        ASKED: json.dumps(asked),
    }
    for path, content in files.items():
        login.write(path, content, mode=0o600, owner=f"{USER}:{USER}")
    try:
        yield
    finally:
        login.run("rm", "-rf", FOLDER)


def measured(bed: Bed) -> Mapping[str, float]:
    login = bed.host("login")
    options = (
        "--wait",
        f"--nodelist={NODE}",
        f"--output={OUTPUT}",
        f"--error={OUTPUT}.err",
        f"--chdir={FOLDER}",
    )
    wrapped = f"--wrap=exec python3 {LOAD} {ASKED}"
    ended = login.run("sbatch", *options, wrapped, user=USER, timeout=JOB_WITHIN_S, check=False)
    if ended.returncode:
        told = login.read(f"{OUTPUT}.err").decode(errors="replace")
        raise RuntimeError(f"{ended.stderr}{told[-1000:]}")
    said = json.loads(login.read(OUTPUT))
    ours, others = median(said["runner"]) * 1000, median(said["bare"]) * 1000
    return {
        "pod-runner-adds": ours - others,
        "pod-runner-start": ours,
        "pod-runner-start-bare": others,
        "pod-runner-memory": median(said["resident"]) / MIB,
    }


@benchmark(
    Figure(
        "pod-runner-adds",
        "the runner starts -> its container has begun, without what apptainer takes",
        "ms",
        Target("value", "<=", 150),
    ),
    Figure("pod-runner-start", "the runner starts -> its container has begun", "ms"),
    Figure("pod-runner-start-bare", "apptainer exec starts -> its container has begun", "ms"),
    Figure(
        "pod-runner-memory",
        "the runner's resident memory",
        "MiB",
        Target("value", "<=", 15),
    ),
    takes_s=200,
    short_s=40,
    rounds=3,
    warm_up=False,
)
@contextmanager
def pod_runner(bed: Bed) -> Iterator[Trial]:
    clear(bed)
    with laid_out(bed):
        yield Trial(lambda: measured(bed), notes={"runs_per_round": RUNS, "image": Path(IMAGE).name})
