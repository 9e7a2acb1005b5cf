"""Kubernetes' rules on environment, entry point, image names, restarts and ends. Pure.

They are those of kubelets and of containerd: `$(NAME)` sees the pod's own variables and not the image's, a
command replaces ENTRYPOINT and drops CMD, and an empty list of arguments counts as absent.
"""

import os
import re
from typing import Any, Callable, Dict, List, Match, Optional

Document = Dict[str, Any]
Part = Any
"""Of a document."""
REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
UNSETTABLE = ("UID", "EUID", "GID", "PREPEND_PATH", "APPEND_PATH")
"""Read-only in the shell in which Apptainer sets variables; or an order to Apptainer to change PATH."""
SHELL_FUNCTION = "BASH_FUNC_"
"""Of a variable that is a function to bash: the node's own shells would run it, outside of the container."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_ERROR = 128
PULLED_IMAGE = re.compile(
    r"docker://(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z0-9_+.-]+:[0-9a-fA-F]{32,})?\Z"
)
FIRST_S, LONGEST_S = 10.0, 300.0
RESET_S = 600.0
KILL_WAIT_S = 25.0
SLURMS_KILL_WAIT_S = 30.0  # its default
END_SLACK_S, END_DELAY_S = 2, 90
LOG_LINE = re.compile(
    r"(?:\x1b\[\d+m)?(?P<level>INFO|WARNING|ERROR|FATAL|DEBUG)\b[^:]*:(?:\x1b\[0m)?\s+(?P<text>.*)"
)
FATAL_CODE = 255
ROOT_NAMES = ("", "0", "root")
STARTER_ERROR = re.compile(r"(?:\x1b\[\d+m)?ERROR {2}:\s+(?P<text>.*?)(?:\x1b\[0m)?\Z")
"""The starter's own form of FATAL."""
IMAGE_ENV = "source: /.singularity.d/"  # an ENV that a shell cannot read; it is set all the same
PORT_CURE = (
    "the network is the node's own; redbox.dev/dynamic-ports gives a free port, redbox.dev/exclusive a node"
)
PORT_HINT = "container {} says that an address is already in use on node {}: " + PORT_CURE
ADDRESS_IN_USE = ("address already in use", "address in use", "eaddrinuse")
"""What programs say that cannot listen, in small letters."""
FALLBACK_BYTES, FALLBACK_LINES = 2048, 80


def in_letters_of_node(part: Part) -> Part:
    """A part of a document with its texts as Python has this node's own.

    In a locale of ASCII, which a node without C.UTF-8 has, Python 3.6 gives no program any other letter,
    and opens no file whose name has one.
    """
    if isinstance(part, str):
        return os.fsdecode(part.encode("utf-8", "surrogatepass"))
    if isinstance(part, list):
        return [in_letters_of_node(each) for each in part]
    if isinstance(part, dict):
        return {name: in_letters_of_node(each) for name, each in part.items()}
    return part


class StartFailed(Exception):
    """The container did not start: it has ended with exit code 128, and its restart policy decides."""

    def __init__(self, message: str, reason: str = "StartError") -> None:
        super().__init__(message)
        self.reason = reason


class ConfigRefused(Exception):
    """The container cannot be configured: it waits with CreateContainerConfigError."""


class ImageConfig:
    """What an image says of the containers made of it."""

    def __init__(self, config: Document) -> None:
        self.entry_point = texts_of(config, "Entrypoint")
        self.arguments = texts_of(config, "Cmd")
        self.working_dir = text_of(config, "WorkingDir")
        self.stop_signal = text_of(config, "StopSignal")
        self.user = text_of(config, "User")
        pairs = (entry.partition("=") for entry in texts_of(config, "Env"))
        self.env: Dict[str, str] = {name: value for name, equals, value in pairs if equals}


def texts_of(config: Document, name: str) -> List[str]:
    texts = config.get(name) or []
    if not isinstance(texts, list):
        raise TypeError("{} is not a list".format(name))
    return [text_of({name: text}, name) for text in texts]


def text_of(config: Document, name: str) -> str:
    text = config.get(name) or ""
    if not isinstance(text, str) or "\0" in text:  # no argument and no variable has the byte 0
        raise TypeError("{} has a value that is not text".format(name))
    return text


def expand(text: str, values: Dict[str, str]) -> str:
    """Replace each `$(NAME)`; `$$` is one dollar sign, and a name without a value stays as it is."""

    def replace(match: "Match[str]") -> str:
        return "$" if match.group(1) else values.get(match.group(2), match.group(0))

    return REFERENCE.sub(replace, text)


def expand_strictly(text: str, values: Dict[str, str]) -> str:
    """Expand a subPathExpr, in which each name needs a value."""
    missing = [m.group(2) for m in REFERENCE.finditer(text) if not m.group(1) and m.group(2) not in values]
    if missing:
        raise ConfigRefused("missing value for {} in {!r}".format(", ".join(missing), text))
    return expand(text, values)


HANDLERS = ("startupProbe", "livenessProbe", "readinessProbe", "postStart", "preStop")


def replace_ports(pod: Document, find_free: Callable[[List[int]], int]) -> Dict[int, int]:
    """Put free ports in the place of those that the pod declares; they are returned by the declared ones.

    Pods share their node's network: a declared port of theirs is only a name.
    """
    if not pod.get("dynamicPorts"):
        return {}
    specs = [*(pod.get("initContainers") or []), *pod["containers"]]
    chosen: Dict[int, int] = {}
    for spec in specs:
        for port in spec.get("ports") or []:
            if port not in chosen:
                chosen[port] = find_free(list(chosen.values()))
    for spec in specs:
        put_ports_in(spec, chosen)
    return chosen


def put_ports_in(spec: Document, chosen: Dict[int, int]) -> None:
    spec["ports"] = [chosen[port] for port in spec.get("ports") or []]
    for entry in spec.get("env") or []:
        if entry.get("fromPort"):
            entry["value"] = str(chosen[entry["fromPort"]])
    for handler in filter(None, (spec.get(name) for name in HANDLERS)):
        for name in ("httpPort", "tcpPort", "grpcPort"):
            if handler.get(name) in chosen:
                handler[name] = chosen[handler[name]]


def shown_ports(chosen: Dict[int, int]) -> List[Dict[str, Any]]:
    """As the report has them."""
    return [{"port": port, "nodePort": chosen[port]} for port in sorted(chosen)]


def pod_environment(entries: List[Document], node_values: Dict[str, str]) -> Dict[str, str]:
    """Return the pod's own variables; each may refer to those before it."""
    values: Dict[str, str] = {}
    for entry in entries:
        source = entry.get("fromNode")  # of `fromPort` the value is there by now
        values[entry["name"]] = node_values[source] if source else expand(entry.get("value") or "", values)
    return values


def container_environment(image: ImageConfig, own: Dict[str, str], hostname: str) -> Dict[str, str]:
    """Return all variables of a container; refused where Apptainer would set another name or value."""
    values = {"PATH": DEFAULT_PATH, "HOSTNAME": hostname}
    values.update(image.env)
    values.update(own)
    for name, value in own.items():
        if name in UNSETTABLE or name.startswith(SHELL_FUNCTION):
            raise StartFailed("Apptainer cannot set the variable {}: rename it, or leave it out".format(name))
        if "\r\n" in value:
            raise StartFailed(
                "Apptainer drops carriage returns before line ends: convert the value of {}".format(name)
            )
    return {name: value for name, value in values.items() if settable(name) or name in own}


def settable(name: str) -> bool:
    """Whether Apptainer can set it; what an image names otherwise is left to the image."""
    return is_identifier(name) and name not in UNSETTABLE


def is_identifier(name: str) -> bool:
    """Whether a shell takes it, in which Apptainer sets the variables of a clean environment."""
    return bool(IDENTIFIER.match(name))


def build_argv(container: Document, image: ImageConfig, values: Dict[str, str]) -> List[str]:
    command = [expand(word, values) for word in container.get("command") or []]
    arguments = [expand(word, values) for word in container.get("args") or []]
    argv = command + arguments if command else image.entry_point + (arguments or image.arguments)
    if not argv:
        raise StartFailed(
            "no command specified: the image {} has no entry point, so the container needs a command".format(
                shown_image(container)
            )
        )
    return argv


def message_path(spec: Document) -> str:
    path = spec.get("messagePath", "/dev/termination-log")
    return absolute(path) if path else ""


def absolute(path: str) -> str:
    return os.path.normpath("/" + path.lstrip("/"))


def find_home(values: Dict[str, str], user: str) -> str:
    """HOME as the pod or the image says, else root's for an image that is made to run as root."""
    home = values.get("HOME", "")
    if home.startswith("/"):
        return home
    return "/root" if user.partition(":")[0] in ROOT_NAMES else "/"


def shown_image(container: Document) -> str:
    return str(container.get("shownImage") or container["image"])


def image_digest(image: str) -> str:
    """The id of an image that is named by its digest; the others' digests are the registry's."""
    return image.partition("://")[2] if "@sha256:" in image else ""


def is_image_name(image: str) -> bool:
    return not image.startswith("docker://") or bool(PULLED_IMAGE.match(image))


def registry_key(registry: str) -> str:
    """The part of an image's name that a registry of imagePullSecrets stands for: a host, perhaps a path."""
    bare = re.sub(r"\A[a-z]+://", "", registry).rstrip("/")
    host, _, path = bare.partition("/")
    if host in ("index.docker.io", "registry-1.docker.io"):
        host = "docker.io"
    path = "" if path in ("v1", "v2") else path
    return host + ("/" + path if path else "")


def find_credentials(image: str, registries: Document) -> List[Document]:
    """Return the credentials to try in turn, as kubelets do: first of the registry that matches most."""
    name = image.partition("://")[2]
    first = name.partition("/")[0]
    is_host = "/" in name and ("." in first or ":" in first or first == "localhost")
    full = name if is_host else "docker.io/" + name
    full = full.replace("index.docker.io/", "docker.io/", 1)
    matches = []
    for registry, credentials in registries.items():
        key = registry_key(registry)
        if full.startswith(key + "/") or matches_wildcard(full, key):
            matches.append((len(key), credentials if isinstance(credentials, list) else [credentials]))
    matches.sort(key=lambda match: match[0], reverse=True)
    return [login for _, logins in matches for login in logins]


def matches_wildcard(name: str, key: str) -> bool:
    """Whether `*.example.com` of a registry stands for this image's host: a star is one label."""
    host = name.partition("/")[0].split(".")
    labels = key.split(".")
    return "*" in key and len(host) == len(labels) and all(a in ("*", b) for a, b in zip(labels, host))


class BackOff:
    """Pauses that double, and begin again after a long time without a failure."""

    def __init__(self, *, at_once_first: bool) -> None:
        self._at_once_first = at_once_first
        self._next = 0.0 if at_once_first else FIRST_S
        self._until: Optional[float] = None

    def pause(self, failed_at: float) -> float:
        """How long to wait after a failure at this time."""
        if self._until is not None and failed_at - self._until > RESET_S:
            self._next = 0.0 if self._at_once_first else FIRST_S
        pause = self._next
        self._next = min(LONGEST_S, 2 * pause) if pause else FIRST_S
        self._until = failed_at + pause
        return pause


def grace_at(now: float, grace_s: float, job_end: str, *, is_slurms: bool = False) -> float:
    """The grace period, within what Slurm leaves to a job that has reached its time limit.

    Slurm kills it 30 s after the signal (KillWait): what the pod has on the node must be gone by then.
    The job's end as it was at the start: where the limit was raised since, a signal much later is another.
    `is_slurms`: the signal is of a cancel, or of a preemption, which may leave the job more time than that:
    so a longer period than Slurm's is kept.
    """
    if is_slurms and grace_s <= SLURMS_KILL_WAIT_S:
        return min(grace_s, KILL_WAIT_S)
    if job_end.isdigit() and -END_SLACK_S <= now - int(job_end) <= END_DELAY_S:
        return min(grace_s, KILL_WAIT_S)
    return grace_s


def restarts(policy: str, kind: str, exit_code: int, *, is_unhealthy: bool = False) -> bool:
    """Whether a container that has ended with this code is started again.

    One that a liveness or startup probe has ended did not finish, also if it takes its signal for an end.
    """
    if kind == "sidecar":
        return True
    if policy == "Never" or kind == "ephemeral":
        return False
    if policy == "OnFailure" or kind == "init":
        return exit_code != 0 or is_unhealthy
    return True


def end_reason(exit_code: int, *, out_of_memory: bool) -> str:
    if out_of_memory and exit_code != 0:
        return "OOMKilled"
    return "Completed" if exit_code == 0 else "Error"


def start_error(exit_code: int, log: str) -> Optional[str]:
    """Apptainer's error where the container's program has not begun: then all of the log is Apptainer's."""
    lines = [line for line in log.splitlines() if line.strip() and not line.startswith(IMAGE_ENV)]
    matches = [LOG_LINE.match(line) for line in lines]
    if exit_code != FATAL_CODE or not lines or not all(matches):
        return None
    errors = [match.group("text") for match in matches if match and match.group("level") == "FATAL"]
    errors = errors or [match.group("text") for match in map(STARTER_ERROR.match, lines) if match]
    return errors[-1] if errors else None


def says_port_in_use(log: str) -> bool:
    """Whether a server has found its port taken, which the pod perhaps does not declare."""
    lowered = log.lower()
    return any(words in lowered for words in ADDRESS_IN_USE)


def log_end(log: str) -> str:
    """The end of a log as a termination message, by FallbackToLogsOnError."""
    return "\n".join(log[-FALLBACK_BYTES:].splitlines()[-FALLBACK_LINES:])
