#!/usr/bin/python3 -I
"""Stands in for squeue on a login host: a queue that no slurmctld of the bed could hold.

It prints the records of the file `queue` in FOLDER, separated as it is asked to, whatever users it is asked
for, and adds a line to the file `calls` there. Like squeue before 23.11 it has no --only-job-state.
"""

import sys
from pathlib import Path

FOLDER = Path("/var/lib/redbox/simulated-queue")
FIELD_END, RECORD_END = b"\x1f", b"\x1e"


def main() -> None:
    options = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if "--only-job-state" in options:
        sys.exit("squeue: unrecognized option '--only-job-state'")
    ends = [field.partition(":")[2].encode() for field in options["--Format"].split(",")]
    records = (FOLDER / "queue").read_bytes()
    sys.stdout.buffer.write(records.replace(FIELD_END, ends[0]).replace(RECORD_END, ends[-1]))
    with (FOLDER / "calls").open("a") as calls:
        calls.write("\n")


if __name__ == "__main__":
    main()
