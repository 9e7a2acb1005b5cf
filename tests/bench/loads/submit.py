"""On a login host: submits held jobs with bare sbatch; prints seconds as JSON: each call, all, CPU.

python3 - COUNT PARALLEL
"""

import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

SBATCH = ["sbatch", "--parsable", "--hold", "--output=/dev/null", "--job-name=bench", "--time=1"]
SCRIPT = "#!/bin/sh\ntrue\n"


def submit(_: int) -> float:
    started = time.perf_counter()
    subprocess.run(SBATCH, input=SCRIPT, text=True, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return time.perf_counter() - started


def main(count: int, parallel: int) -> None:
    started = time.perf_counter()
    with ThreadPoolExecutor(parallel) as pool:
        calls = list(pool.map(submit, range(count)))
    whole = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"calls": calls, "whole": whole, "cpu": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
