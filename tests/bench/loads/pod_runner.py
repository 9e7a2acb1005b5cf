"""In a batch job: starts one container by Apptainer alone and by the runner, by turns; prints JSON.

Runs on a compute node, with its Python and nothing else: `python3 FILE JSON-FILE`. Seconds are from the start
of the shell that becomes Apptainer or the runner to the container's own word; bytes are of the runner's
process, while the container runs.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
SETTLES_S = 0.5
MICROSECONDS = 10**6
KIB = 1024


def began_at(log: Path, process: "subprocess.Popen[bytes]") -> float:
    """When the container began, once it has said so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at and process.poll() is None:
        words = log.read_text().split() if log.exists() else []
        if len(words) == len(("seconds", "microseconds")):
            return int(words[0]) + int(words[1]) / MICROSECONDS
        time.sleep(0.01)
    process.kill()
    raise RuntimeError(f"the container has not begun: {log}")


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * KIB


def run(script: str, log: Path, output: Path) -> tuple[float, int]:
    """One container; seconds, and the resident bytes of the process that the shell has become."""
    log.unlink(missing_ok=True)
    with output.open("wb") as file:
        begun = time.time()
        with subprocess.Popen(["sh", "-c", script], stdout=file, stderr=file) as process:
            took = began_at(log, process) - begun
            time.sleep(SETTLES_S)
            used = resident(process.pid)
    if process.returncode:
        raise RuntimeError(f"it ended with {process.returncode}: {output.read_text()[-500:]}")
    return took, used


def main(asked: dict[str, Any]) -> None:
    folder, work = Path(asked["folder"]), Path(asked["pod"]["paths"]["logs"])
    measured: dict[str, list[float]] = {"runner": [], "bare": [], "resident": []}
    for number in range(asked["count"] + 1):
        seen: dict[str, tuple[float, int]] = {}
        for name in ("runner", "bare") if number % 2 else ("bare", "runner"):
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / "pod.json").write_text(json.dumps(asked["pod"]))
            log = work / f"{asked['container']}-0.log" if name == "runner" else work / "bare.log"
            seen[name] = run(asked[name], log, work / "runner.out" if name == "runner" else log)
            shutil.rmtree(folder)
        if number:  # the first of each reads what the others find in memory
            measured["runner"].append(seen["runner"][0])
            measured["bare"].append(seen["bare"][0])
            measured["resident"].append(seen["runner"][1])
    print(json.dumps(measured))


if __name__ == "__main__":
    os.umask(0o077)
    main(json.loads(Path(sys.argv[1]).read_text()))
