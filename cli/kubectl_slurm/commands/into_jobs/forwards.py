"""`forward`: local ports that lead to ports of a running job.

Where the job's pod serves the port itself, kubectl forwards it: a port of `spec.ports`, and any port of a
pod on a virtual node. For all others, and those of a node or task that is named, each connection is a session
in the job, of which a companion carries four at once.
"""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubectl_slurm.errors import BadUsage
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.options import invocation_of, parser_of
from kubectl_slurm.slurmjobs.entering import JobEntry, add_place, entry_of
from kubectl_slurm.terminal.screen import note

TEXT = "Forward ports of this machine to ports of a running job. Other users of this machine reach them, too."
PORTS = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})")
HIGHEST = 65535
AT_ONCE = 4
FULL_S = 0.5
RELAY = """\
import os, socket, struct, sys, threading
port, listeners = int(sys.argv[1]), []
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    if os.path.exists(table):
        rows = [row.split() for row in open(table)][1:]
        listeners += [row for row in rows if row[3] == "0A" and int(row[1].partition(":")[2], 16) == port]
here = "%08X" % struct.unpack("=I", socket.inet_aton("127.0.0.1"))
for address in (here, "0" * 16 + "FFFF0000" + here, "0" * 8, "0" * 32):
    owners = {int(row[7]) for row in listeners if row[1].partition(":")[0] == address}
    if owners:
        break
if owners != {os.getuid()}:
    sys.exit("no server of this job's user listens at 127.0.0.1:%d of node %s" % (port, os.uname()[1]))
s = socket.create_connection(("127.0.0.1", port))
def copy(source, target):
    data = os.read(source, 65536)
    while data:
        while data:
            data = data[os.write(target, data):]
        data = os.read(source, 65536)
def send():
    try:
        copy(0, s.fileno())
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
threading.Thread(target=send, daemon=True).start()
copy(s.fileno(), 1)
"""
"""In the job: to no server of another user, of which a node has several.

Neither direction waits for the other, as of a server that does not read while it answers.
"""


@dataclass(frozen=True)
class PortPair:
    """A port of this machine, and the port of the job that it leads to."""

    local: int
    remote: int


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT)
    parser.add_argument("name", metavar="NAME", help="a SlurmJob, or its Slurm job id")
    parser.add_argument("ports", metavar="[LOCAL:]PORT", nargs="+", help="a port of the job's node")
    add_place(parser)
    options = parser.parse_args(words)
    pairs = [port_pair(text) for text in options.ports]
    call = invocation_of(options, given, environment)
    entry = entry_of(call.kubectl, options.name, options)
    if entry.job.is_array and entry.task is None:
        raise BadUsage(f"{entry.job.name} is an array: name one of its tasks, --task INDEX")
    served = [_served(entry, pair) for pair in pairs]
    if all(served):
        call.kubectl.become("port-forward", f"pod/{entry.job.pod}", *filter(None, served))
    _serve(call.kubectl, entry, pairs)
    return 0


def port_pair(text: str) -> PortPair:
    found = PORTS.fullmatch(text)
    ports = [int(port) for port in (found[1] or found[2], found[2])] if found else [0]
    if not all(1 <= port <= HIGHEST for port in ports):
        raise BadUsage(f"{text!r} is not [LOCAL:]PORT with ports from 1 to {HIGHEST}")
    return PortPair(*ports)


def _served(entry: JobEntry, pair: PortPair) -> str | None:
    """What kubectl forwards; None where the pod does not serve this port."""
    if entry.place:
        return None  # kubectl cannot name it
    if entry.is_virtual:
        return f"{pair.local}:{pair.remote}"
    for port in entry.job.spec.get("ports") or ():
        if pair.remote == (port.get("targetPort") or port["port"]) and not port.get("node"):
            return f"{pair.local}:{port['port']}"
    return None


def _serve(kubectl: Kubectl, entry: JobEntry, pairs: Sequence[PortPair]) -> None:
    """Until Ctrl-C."""
    slots = threading.Semaphore(AT_ONCE)
    listeners = [_listener(pair) for pair in pairs]
    for listener, pair in zip(listeners, pairs, strict=True):
        note(f"Forwarding from 127.0.0.1:{pair.local} -> {pair.remote} of {entry.job.name}; Ctrl-C ends it.")
        arguments = (kubectl, entry, listener, pair, slots)
        threading.Thread(target=_accept, args=arguments, daemon=True).start()
    threading.Event().wait()


def _listener(pair: PortPair) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", pair.local))
    except OSError as error:
        raise BadUsage(f"port {pair.local} of this machine cannot be used: {error.strerror}") from error


def _accept(
    kubectl: Kubectl, entry: JobEntry, listener: socket.socket, pair: PortPair, slots: threading.Semaphore
) -> None:
    while True:
        try:
            connection, _ = listener.accept()
            arguments = (kubectl, entry, connection, pair, slots)
            threading.Thread(target=_relay, args=arguments, daemon=True).start()
        except (OSError, RuntimeError):  # no more descriptors or threads: the next may fit
            time.sleep(FULL_S)


def _relay(
    kubectl: Kubectl, entry: JobEntry, connection: socket.socket, pair: PortPair, slots: threading.Semaphore
) -> None:
    """One connection; kubectl has both ends of it and says what goes wrong."""
    command = ["python3", "-c", RELAY, str(pair.remote)]
    arguments = entry.arguments(command, stdin=True, tty=False)
    with slots, connection:
        try:
            process = subprocess.Popen(
                kubectl.argv(*arguments), stdin=connection.fileno(), stdout=connection.fileno()
            )
        except OSError as error:
            note(f"kubectl slurm: a connection to {pair.remote} is not forwarded: {error.strerror}")
            return
        process.wait()
