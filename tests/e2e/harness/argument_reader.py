"""A user of the login node who reads what other users' squeue and sacct are called with, and forges rows.

It runs on that host as that user, by `reading_arguments`. Separators that it finds go into the comment and
the name of a job of its own, with a row that shows another user's job as running. It ends with its stdin.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from redbox_bed.hosts.host import Host

TOOLS = ("squeue", "sacct")
READY = b"ready\n"
PROGRAM = "/tmp/argument_reader.py"
RUNNING = {
    "ArrayTaskID": "N/A", "HetJobOffset": "7", "State": "RUNNING", "exit_code": "0:0", "ExitCode": "0:0",
    "RestartCnt": "0", "Restarts": "0", "Requeue": "1", "SubmitTime": "1795254165", "StartTime": "1795254165",
    "EndTime": "1795254165", "Submit": "1795254165", "Start": "1795254165", "End": "Unknown",
    "Reason": "None", "Partition": "debug", "Account": "biology", "QOS": "normal", "NodeList": "n1",
    "UserName": "bob", "User": "bob", "Name": "x", "JobName": "x", "WorkDir": "/", "StdOut": "", "StdErr": "",
}  # fmt: skip


@dataclass
class Reading:
    """What it has seen so far: `squeue hidden`, or `squeue read` where it found separators."""

    seen: list[str] = field(default_factory=list)


@contextmanager
def reading_arguments(
    login: Host, user: str, *, own: str, job: str, uid: int, mark: str
) -> Iterator[Reading]:
    """`own` is the job to write into, `job` the one of another user that is to be shown as running."""
    login.write(PROGRAM, Path(__file__).read_bytes())
    argv = ("python3", "-I", PROGRAM, own, job, str(uid), mark)
    pipe = subprocess.PIPE
    with login.popen(*argv, user=user, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == READY
        reading = Reading()
        try:
            yield reading
        finally:
            process.stdin.close()
            reading.seen += process.stdout.read().decode().splitlines()


# ---------------------------------------------------------------------------------- on the login host


def main(own: str, job: str, uid: str, mark: str) -> None:
    threading.Thread(target=end_with_stdin, daemon=True).start()
    sink = subprocess.DEVNULL
    scontrol = subprocess.Popen(["scontrol"], stdin=subprocess.PIPE, stdout=sink, stderr=sink)
    assert scontrol.stdin is not None
    os.write(1, READY)
    seen: set[str] = set()
    while True:
        pids = {path.name for path in Path("/proc").iterdir() if path.name.isdigit()}
        seen &= pids
        for pid in pids - seen:
            argv = read(pid, "cmdline")
            tool = argv[0].rpartition("/")[2]
            if tool not in TOOLS:
                continue  # it may become one
            seen.add(pid)
            text = forged([*argv, *read(pid, "environ")], {**RUNNING, **ids_of(job, uid, mark)})
            os.write(1, f"{tool} {'read' if text else 'hidden'}\n".encode())
            if text:
                forge(scontrol.stdin, own, text)


def end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def read(pid: str, name: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def ids_of(job: str, uid: str, mark: str) -> dict[str, str]:
    """A component of the job for squeue, a run of it for sacct."""
    queue = {"JobID": "99999999", "ArrayJobID": "99999999", "HetJobID": job, "UserID": uid}
    return {**queue, "JobIDRaw": job, "UID": uid, "Comment": mark, "SubmitLine": f"sbatch --comment={mark}"}


def forged(words: list[str], record: dict[str, str]) -> str:
    """The end of the record that a comment or a name is in, and the beginning of another one."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in words)
    queue = options.get("SQUEUE_FORMAT2") or options.get("Format")
    if queue:
        parts = [part.partition(":")[::2] for part in queue.split(",")]
        begin = [record[name] for name, _ in parts[: [name for name, _ in parts].index("Comment") + 1]]
        between, end = parts[0][1], parts[-1][1]
        return between.join(["x", "o", "e", "w"]) + end + between.join(begin)
    if "delimiter" in options:
        names, token = options["format"].split(","), options["delimiter"]
        after = names[names.index("JobName") :]
        fields = [record.get(name, "") for name in names[: names.index("JobName") + 1]]
        return token.join(["x"] * len(after)) + token + token.join([job_id_of(record), *fields[1:]])
    return ""


def job_id_of(record: dict[str, str]) -> str:
    return record["JobIDRaw"]


def forge(scontrol: IO[bytes], own: str, text: str) -> None:
    scontrol.write(f"update jobid={own} comment={text}\nupdate jobid={own} name={text}\n".encode())
    scontrol.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
