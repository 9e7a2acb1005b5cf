"""Probes and hooks: a command inside the container, a request by HTTP or gRPC, a connection, a pause.

Probes are counted against Kubernetes' thresholds. A startup probe comes first; the others begin once the
container has started. One thread each, which ends with the container's process.

The network is the node's own, so a port may be anybody's: on the node itself a request goes only to a
listener of the job's own. A hook or a probe that names another host reaches it, as the containers do.
"""

import os
import shutil
import socket
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from redbox.node.program.grpc_health import call_health
from redbox.node.program.job_processes import is_socket_of_job
from redbox.node.program.listeners import ANY_ADDRESS, V4_IN_V6, find_listeners
from redbox.node.program.loader_variables import DEFAULT_FOLDERS, has_setter
from redbox.runner.program.command_lines import EnterTools, enter_command, split_environment
from redbox.runner.program.processes import ContainerProcess, TimedOut, run_bounded
from redbox.runner.program.rules import PORT_CURE, Document, StartFailed

HEAD_LIMIT = 16 * 1024
REDIRECTS = 10
LOCAL = ("localhost", "127.0.0.1", "::1")
SUCCESSES, REDIRECTIONS = range(200, 400), (301, 302, 303, 307, 308)
SHOWN = 200  # of a text that is not a URL
STARTUP, LIVENESS, READINESS = "Startup", "Liveness", "Readiness"
END_SEEN_S = 0.1
"""A probe may fail because the container has just ended: then it says nothing."""
FIELDS = {STARTUP: "startupProbe", LIVENESS: "livenessProbe", READINESS: "readinessProbe"}
UNREACHABLE = "192.0.2.1"  # of the documentation: no packet is sent to it
Answer = Tuple[bool, str]
"""Whether it succeeded, and why not, or what there is to warn of."""


def has_job_listener(port: int, address: str) -> bool:
    """Whether a process of this job listens where a connection to the address arrives."""
    reached = (*ANY_ADDRESS, address, V4_IN_V6 + address)
    job = os.environ.get("SLURM_JOB_ID", "")
    return any(
        listener.uid == os.getuid()
        and listener.address in reached
        and (not job or is_socket_of_job(listener.inode, job))
        for listener in find_listeners(port)
    )


def check_ports(spec: Document, node_name: str) -> None:
    """Raise StartFailed where a declared port has a listener already."""
    for port in spec.get("ports") or []:
        for listener in find_listeners(port):
            whose = "this user's" if listener.uid == os.getuid() else "another user's"
            raise StartFailed(
                "port {} of container {} is in use on node {} by {} process: {}".format(
                    port, spec["name"], node_name, whose, PORT_CURE
                ),
                reason="PortInUse",
            )


def find_node_address(name: str) -> str:
    """The address that the node's name has, else the one from which it sends."""
    for family in (socket.AF_INET, socket.AF_INET6):
        address = resolve(name, family)
        if address and not address.startswith("127.") and address != "::1":
            return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((UNREACHABLE, 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def resolve(name: str, family: int) -> Optional[str]:
    host = name.encode("ascii", "replace")  # as a string it loads tables of Unicode: half a MB
    try:
        return str(socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None


class HttpPlace(NamedTuple):
    """Where a request goes to on this node."""

    is_tls: bool
    port: int
    path: str


class HandlerTarget:
    """The container that a handler belongs to."""

    def __init__(
        self,
        pid: Optional[int],
        cwd: str,
        address: str,
        ended: Callable[[], bool],
        *,
        variables: Optional[Dict[str, str]] = None,
    ) -> None:
        """`variables`: those that it was given."""
        self.pid = pid
        self.variables = variables or {}
        self.cwd = cwd
        self.address = address
        self.ended = ended


def run_handler(handler: Document, target: HandlerTarget, limit_s: float) -> Answer:
    try:
        if handler.get("exec"):
            return run_inside(handler["exec"], target, limit_s)
        if handler.get("httpPort"):
            return get_http(handler, target, time.monotonic() + limit_s)
        if handler.get("tcpPort"):
            connect(handler.get("httpHost") or "", handler["tcpPort"], target, limit_s).close()
            return True, ""
        if handler.get("grpcPort"):
            return call_grpc(handler, target, time.monotonic() + limit_s)
    except (OSError, TimedOut) as error:
        return False, explain_failure(error, limit_s)
    pause(handler.get("sleepS") or 0, target)
    return True, ""


def explain_failure(error: Exception, limit_s: float) -> str:
    if isinstance(error, (TimedOut, socket.timeout)):
        return "timed out after {:g}s".format(limit_s)
    return getattr(error, "strerror", None) or str(error)


def pause(seconds: float, target: HandlerTarget) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not target.ended():
        time.sleep(min(0.1, max(0.0, until - time.monotonic())))


def run_inside(argv: List[str], target: HandlerTarget, limit_s: float) -> Answer:
    if target.pid is None:
        return False, "the container does not run"
    if not is_apart(target.pid, "user"):  # only a user namespace below this one can be entered
        return (
            False,
            "no command can enter the container: it has ended, or its program is closed",
        )
    # A program that shows its state as its title writes it over its variables.
    values = {**target.variables, **process_environment(target.pid)}
    environment, inside = split_environment(values)
    if not has_setter(target.pid, values.get("PATH", DEFAULT_FOLDERS)):
        inside = {}
    own_hostname = is_apart(target.pid, "uts")
    command = enter_command(target.pid, target.cwd, argv, find_tools(), inside, own_hostname=own_hostname)
    code, output = run_bounded(command, environment, limit_s, target.ended)
    return (True, "") if code == 0 else (False, output.strip() or "command exited with {}".format(code))


def process_environment(pid: int) -> Dict[str, str]:
    with open("/proc/{}/environ".format(pid), "rb") as file:
        entries = file.read().split(b"\0")
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, equals, value in pairs if equals}


def is_apart(pid: int, kind: str) -> bool:
    """Whether it has a namespace of its own of this kind."""
    try:
        return os.readlink("/proc/{}/ns/{}".format(pid, kind)) != os.readlink("/proc/self/ns/" + kind)
    except OSError:
        return False


class FoundTools:
    """Looked for once."""

    value: Optional[EnterTools] = None


def find_tools() -> EnterTools:
    if FoundTools.value is None:
        nsenter = shutil.which("nsenter") or "nsenter"
        text = run_bounded([nsenter, "--help"], dict(os.environ), 5.0, lambda: False)[1]
        FoundTools.value = EnterTools(nsenter, shutil.which("setpriv"), "--wdns" in text)
    return FoundTools.value


def connect(host: str, port: int, target: HandlerTarget, limit_s: float) -> socket.socket:
    """On this node only where the listener is the job's own, or where there is none."""
    named = (resolve(host, socket.AF_INET) or resolve(host, socket.AF_INET6) or host) if host else ""
    address = named or target.address
    is_here = address.startswith("127.") or address in (*LOCAL, *ANY_ADDRESS, target.address)
    if is_here and not has_job_listener(port, address) and any(find_listeners(port)):
        raise OSError("port {} of this node has a listener of another job, or of another user".format(port))
    return socket.create_connection((address, port), timeout=max(0.001, limit_s))


def call_grpc(handler: Document, target: HandlerTarget, until: float) -> Answer:
    port = handler["grpcPort"]
    with connect("", port, target, until - time.monotonic()) as connection:
        authority = "{}:{}".format(bracketed(target.address), port)
        succeeded, message = call_health(connection, authority, handler.get("grpcService") or "", until)
    return succeeded, "" if succeeded else message


def get_http(handler: Document, target: HandlerTarget, until: float) -> Answer:
    place = HttpPlace(bool(handler.get("https")), handler["httpPort"], handler.get("httpPath") or "/")
    host = handler.get("httpHost") or target.address
    for _ in range(REDIRECTS):
        status, location = request_http(handler, place, target, until)
        following = follow(place, host, location) if status in REDIRECTIONS and location else None
        if following is not None:
            place = following
        elif status not in SUCCESSES:
            return False, "HTTP probe failed with statuscode: {}".format(status)
        else:
            leads_away = status in REDIRECTIONS and location
            return True, "Probe terminated redirects, which lead to another host" if leads_away else ""
    return False, "stopped after {} redirects".format(REDIRECTS)


def follow(place: HttpPlace, host: str, location: str) -> Optional[HttpPlace]:
    """Where a redirect leads; None: to another host, which kubelets do not follow either."""
    from urllib.parse import urljoin, urlsplit  # noqa: PLC0415 # it takes memory, and few answers redirect

    base = "http{}://{}:{}/{}".format(
        "s" if place.is_tls else "", bracketed(host), place.port, place.path.lstrip("/")
    )
    try:
        parts = urlsplit(urljoin(base, location))
        is_tls, port = parts.scheme == "https", parts.port
    except ValueError:
        raise OSError("the redirect to {!r} is not a URL".format(location[:SHOWN])) from None
    if parts.scheme not in ("http", "https") or parts.hostname != host.lower():
        return None
    query = "?" + parts.query if parts.query else ""
    return HttpPlace(is_tls, port or (443 if is_tls else 80), (parts.path or "/") + query)


def request_http(handler: Document, place: HttpPlace, target: HandlerTarget, until: float) -> Tuple[int, str]:
    """One GET: its status, and where it redirects to. Only the head of the response is read."""
    host = handler.get("httpHost") or ""
    with connect(host, place.port, target, until - time.monotonic()) as plain:
        stream = wrap_tls(plain) if place.is_tls else plain
        try:
            stream.sendall(request_head(handler, place.path, host or target.address, place.port))
            return parse_head(read_head(stream, until))
        finally:
            stream.close()


def bracketed(host: str) -> str:
    return "[{}]".format(host) if ":" in host else host


def request_head(handler: Document, path: str, host: str, port: int) -> bytes:
    headers = {
        "host": "{}:{}".format(bracketed(host), port),
        "user-agent": "kube-probe/redbox",
        "accept": "*/*",
    }
    headers.update({header["name"].lower(): header["value"] for header in handler.get("httpHeaders") or []})
    headers["connection"] = "close"
    target = (path if path.startswith("/") else "/" + path).replace(" ", "%20")
    lines = ["GET {} HTTP/1.1".format(target)]
    lines += ["{}: {}".format(name.title(), value) for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def read_head(stream: socket.socket, until: float) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < HEAD_LIMIT:
        stream.settimeout(max(0.001, until - time.monotonic()))
        data = stream.recv(4096)
        if not data:
            break
        head += data
    return head


def parse_head(head: bytes) -> Tuple[int, str]:
    lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    status = rest.partition(" ")[0]
    if not version.startswith("HTTP/") or not status.isdigit():
        raise OSError("the response is not HTTP")
    pairs = (line.partition(":") for line in lines[1:])
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return int(status), fields.get("location", "")


def wrap_tls(plain: socket.socket) -> socket.socket:
    """TLS without a look at the certificate, as kubelets do."""
    import ssl  # noqa: PLC0415 # it takes 4 MB, and few probes need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


class ProbeCounter:
    """Results in a row against the two thresholds."""

    def __init__(self, success_threshold: int, failure_threshold: int) -> None:
        self._thresholds = {True: success_threshold, False: failure_threshold}
        self._last: Optional[bool] = None
        self._count = 0

    def add(self, succeeded: bool) -> Optional[bool]:  # noqa: FBT001 # the one thing that is counted
        """Return the result that stands now; None while it is below its threshold."""
        self._count = self._count + 1 if succeeded is self._last else 1
        self._last = succeeded
        return succeeded if self._count >= self._thresholds[succeeded] else None


class ProbedContainer:
    """What probes have found of one start of a container, and whom they tell."""

    def __init__(
        self,
        spec: Document,
        process: ContainerProcess,
        target: HandlerTarget,
        on_change: Callable[[bool, bool], None],
        *,
        on_problem: Callable[[str, str, bool], None],
        on_dead: Callable[[str, Document], None],
    ) -> None:
        self._spec = spec
        self._process = process
        self._target = target
        self._on_change = on_change
        self._on_problem = on_problem
        self._on_dead = on_dead
        self._lock = threading.Lock()
        self.started = threading.Event()
        self._ready = not spec.get(FIELDS[READINESS])
        if not spec.get(FIELDS[STARTUP]):
            self.started.set()

    def begin(self) -> List[threading.Thread]:
        self._publish()
        threads = [
            threading.Thread(target=self._watch, args=(kind, self._spec[field]), daemon=True)
            for kind, field in FIELDS.items()
            if self._spec.get(field)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _publish(self) -> None:
        with self._lock:
            started = self.started.is_set()
            self._on_change(started, started and self._ready)

    def _watch(self, kind: str, probe: Document) -> None:
        """Probe until the container ends, or until there is nothing left to find out."""
        while kind != STARTUP and not self.started.wait(0.2):
            if self._process.ended.is_set():
                return
        counter = ProbeCounter(probe.get("successThreshold", 1), probe.get("failureThreshold", 3))
        due = time.monotonic() + self._process.started_at + probe.get("initialDelayS", 0) - time.time()
        while not self._process.ended.wait(max(0.0, due - time.monotonic())):
            due = max(due, time.monotonic()) + probe.get("periodS", 10)
            succeeded, message = run_handler(probe, self._target, probe.get("timeoutS", 1))
            if self._process.ended.wait(0 if succeeded else END_SEEN_S):
                return
            if kind != READINESS and self._process.stopping.is_set():
                return  # as kubelets do: its grace period is its own
            if message:
                self._on_problem(kind, message, succeeded)
            result = counter.add(succeeded)
            if result is not None and self._conclude(kind, probe, succeeded=result):
                return

    def _conclude(self, kind: str, probe: Document, *, succeeded: bool) -> bool:
        """Act on a result that stands; whether this probe has nothing more to find out."""
        if kind == READINESS:
            self._ready = succeeded
            self._publish()
            return False
        if not succeeded:
            self._on_dead(kind, probe)
            return True
        if kind == STARTUP:
            self.started.set()
            self._publish()
            return True
        return False
