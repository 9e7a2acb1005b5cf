"""Runs on the login host: srun's own sessions in a running job, in milliseconds, as JSON.

Arguments: the job, how many commands, how many keys.
"""

import json
import os
import pty
import subprocess
import sys
import time

JOB, COMMANDS, KEYS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SRUN = ["srun", "-Q", "--jobid=" + JOB, "--overlap", "-N1", "-n1"]


def first_byte() -> float:
    began = time.perf_counter()
    process = subprocess.Popen([*SRUN, "-u", "echo", "x"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    took = time.perf_counter() - began
    process.communicate()
    return took * 1000


def keys() -> list[float]:
    screen, inside = pty.openpty()

    command = ["setsid", "--ctty", *SRUN, "--pty", "cat"]
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside)
    took = []
    for number in range(KEYS + 1):
        began = time.perf_counter()
        os.write(screen, b"k")
        while b"k" not in os.read(screen, 4096):
            pass
        if number:  # the first one waits for the start
            took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)
    process.kill()
    process.wait()
    return took


print(json.dumps({"first": [first_byte() for _ in range(COMMANDS)], "keys": keys()}))
