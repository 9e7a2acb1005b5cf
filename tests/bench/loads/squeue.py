"""Runs on a login host: lists all jobs with squeue, and prints the seconds of each of COUNT calls as JSON."""

import json
import subprocess
import sys
import time


def squeue() -> float:
    started = time.perf_counter()
    subprocess.run(["squeue", "-a", "-h"], check=True, stdout=subprocess.DEVNULL, timeout=60)
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps([squeue() for _ in range(int(sys.argv[1]))]))
