"""A daemon with the manners of `slurmctld --systemd`, whose diary is the file that it is given.

HUP: a successor, two forks away, takes over once it is up; this process names it and exits. A file `refuse`
next to the diary is a configuration that the successor refuses. TERM: end with status 7. USR2: leave a child
behind.
"""

import array
import os
import signal
import socket
import sys
from pathlib import Path

DIARY = Path(sys.argv[1])
HANDED_ON = "FAKE_PARENT_FD"


def write(text: str) -> None:
    with DIARY.open("a") as diary:
        diary.write(f"{os.getpid()} {text}\n")


def notify(pid: int, *, barrier: bool = False) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(os.environ["NOTIFY_SOCKET"])
        sender.send(f"READY=1\nMAINPID={pid}".encode())
        if barrier:
            reading, writing = os.pipe()
            descriptors = array.array("i", [writing])
            sender.sendmsg([b"BARRIER=1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            os.close(writing)
            os.read(reading, 1)  # until the manager has closed its copy


def hand_over() -> None:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        if os.fork():
            os._exit(0)
        os.set_inheritable(writing, True)  # noqa: FBT003
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {HANDED_ON: str(writing)})
    os.close(writing)
    successor = os.read(reading, 32)
    os.close(reading)
    os.waitpid(child, 0)
    if not successor:
        write("refused")
        return
    notify(int(successor), barrier=True)
    os._exit(0)


def leave_child() -> None:
    if os.fork() == 0:
        if os.fork() == 0:
            write("step")
            signal.pause()
        os._exit(0)
    os.wait()


handed_on = int(os.environ.pop(HANDED_ON, "0"))
if handed_on and (DIARY.parent / "refuse").exists():
    sys.exit(1)
if (DIARY.parent / "die").exists():
    write("dies")
    sys.exit(3)
numbers = {signal.SIGHUP, signal.SIGTERM, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
write("up")
if handed_on:
    os.write(handed_on, str(os.getpid()).encode())
    os.close(handed_on)
else:
    notify(os.getpid())
while True:
    number = signal.sigwait(numbers)
    write(signal.Signals(number).name)
    if number == signal.SIGHUP:
        hand_over()
    elif number == signal.SIGUSR2:
        leave_child()
    else:
        sys.exit(7)
