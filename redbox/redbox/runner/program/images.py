"""Images: pulled once for each user into the cache that container jobs use too, with its names and locks.

An image is `sha256 of its URL`.sif, locked by `….sif.lock`, renamed to its name when it is complete, and
touched when it is used, each day of a long use too. One without a touch for `keepDays` is removed at
the end of a pod: locks may not reach other nodes, so it is renamed first, and comes back if it has just been
touched. Credentials are in the environment of the pull alone.

A user's pulls run one after another, since Apptainer's own cache in the user's home has one index of all
images, and no lock. A pod that has waited for ten minutes pulls nevertheless.

An image's configuration is the object `oci-config.json` of its SIF. It is read directly, since two calls of
`apptainer sif` take as long as the start of a container: a header of 128 bytes names the place of descriptors
of 585 bytes, each of which names the place of an object.
"""

import fcntl
import glob
import json
import os
import re
import signal
import stat
import struct
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Set, Tuple

from redbox.runner.program.rules import (
    Document,
    ImageConfig,
    find_credentials,
    in_letters_of_node,
    is_image_name,
    shown_image,
)

CREDENTIAL_PREFIXES = ("APPTAINER_DOCKER_", "SINGULARITY_DOCKER_")
LOOK_S = 0.1
PULLS_LOCK = "pulls.lock"
WAIT_FOR_PULLS_S = 600
DAY_S = 86400
LOG_LEVELS = ("FATAL:", "ERROR:")
HEADER = struct.Struct("<32s10s3s3s16sqqqqqqqq")
DESCRIPTOR = struct.Struct("<iBIIIqqqqqqq128s384s")
MAGIC = b"SIF_MAGIC\0"
CONFIG_NAME = b"oci-config.json"
LOGIN_WORDS = ("authentication required", "unauthorized", "denied", "no basic auth credentials")
NAME_WORDS = ("manifest unknown", "name unknown", "not found", "repository name not known")
NETWORK_WORDS = (
    "no such host",
    "connection refused",
    "no route to host",
    "network is unreachable",
    "timeout",
)
"""What registries and Go's network say, in small letters, by what to do about it."""
DISK_WORDS = ("no space left on device", "disk quota exceeded")
LEFT_BEHIND = re.compile(r"\.(?:sif|pyc)\.[^/]+\.[^/.]+\Z")
"""Parts of pulls and of the compiled runner, and images that were being removed."""
MAX_DESCRIPTORS, MAX_CONFIG = 4096, 8 * 1024 * 1024


class NotAnImage(Exception):
    """The file is not a SIF, or a broken one."""


def read_image_config(path: str) -> Dict[str, Any]:
    """Return the object `config` of the image's configuration; empty for an image built otherwise."""
    with open(path, "rb") as file:
        header = file.read(HEADER.size)
        if len(header) < HEADER.size or HEADER.unpack(header)[1] != MAGIC:
            raise NotAnImage("{} is not a SIF".format(path))
        total, offset = HEADER.unpack(header)[8:10]
        table = read_at(file, offset, DESCRIPTOR.size * min(total, MAX_DESCRIPTORS))
        for start in range(0, len(table) - DESCRIPTOR.size + 1, DESCRIPTOR.size):
            fields = DESCRIPTOR.unpack_from(table, start)
            used, place, size, name = fields[1], fields[5], fields[6], fields[12].rstrip(b"\0")
            if used and name == CONFIG_NAME and size <= MAX_CONFIG:
                return parse_config(read_at(file, place, size))
    return {}


def read_at(file: BinaryIO, place: int, size: int) -> bytes:
    """Less at the file's end. A size below 0 would read the whole file."""
    if place < 0 or size < 0:
        raise NotAnImage("its descriptors have {} bytes at {}".format(size, place))
    file.seek(place)
    return file.read(size)


def parse_config(data: bytes) -> Dict[str, Any]:
    try:
        config = in_letters_of_node(json.loads(data.decode()))
    except (ValueError, RecursionError):
        raise NotAnImage("its {} is not JSON".format(CONFIG_NAME.decode())) from None
    if not isinstance(config, dict):
        raise NotAnImage("its {} is not an object".format(CONFIG_NAME.decode()))
    return config


class PullFailed(Exception):
    """There is no image; the reason is one of Kubernetes'."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Stopped(Exception):
    """The pod ends: nothing more is started."""


class Image:
    """An image on this node."""

    def __init__(self, path: str, pulled_s: Optional[float]) -> None:
        self.path = path
        self.pulled_s = pulled_s
        try:
            self.config = ImageConfig(read_image_config(path))
        except (OSError, NotAnImage) as error:
            raise PullFailed("ErrImagePull", "{}: {}".format(path, error)) from error
        except (AttributeError, TypeError) as error:  # strings and lists where others belong
            message = "{}: its {} is not an image's: {}".format(path, CONFIG_NAME.decode(), error)
            raise PullFailed("ErrImagePull", message) from error


class ImageStore:
    """The user's images."""

    def __init__(
        self,
        folder: str,
        runtime: str,
        environment: Dict[str, str],
        registries: Document,
        stopping: threading.Event,
        *,
        keep_days: int = 0,
    ) -> None:
        """`keep_days`: 0 keeps images for ever."""
        self._folder = folder
        self._keep_days = keep_days
        self._used: Set[str] = set()
        self._runtime = runtime
        self._environment = environment
        self._registries = registries
        self._stopping = stopping

    def find(self, container: Document) -> Optional[Image]:
        """Return the image if it need not be pulled; PullFailed if it may not or cannot be."""
        image, policy = container["image"], container.get("pullPolicy", "IfNotPresent")
        if "://" not in image:
            if not os.path.exists(image):
                raise PullFailed(
                    "ErrImagePull",
                    "{} does not exist on node {}: give the path of a .sif that Slurm's nodes have".format(
                        image, os.uname()[1]
                    ),
                )
            return Image(image, None)
        if not is_image_name(image):
            raise PullFailed(
                "InvalidImageName", "couldn't parse image name {!r}: invalid reference format".format(image)
            )
        path = self._path(image)
        check_owner(path)
        if policy != "Always" and touch(path):
            return self._use(path, None)
        if policy == "Never":
            raise PullFailed(
                "ErrImageNeverPull",
                'Container image "{}" is not present with pull policy of Never'.format(
                    shown_image(container)
                ),
            )
        return None

    def pull(self, container: Document) -> Image:
        """Pull the image, unless another pull has just brought it."""
        started = time.monotonic()
        path = self._path(container["image"])
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            asked = time.time()
            pulls = os.path.join(self._folder, PULLS_LOCK)
            with self._lock(pulls, WAIT_FOR_PULLS_S), self._lock(path + ".lock"):
                check_owner(path)
                always = container.get("pullPolicy") == "Always"
                if not os.path.exists(path) or (always and os.path.getmtime(path) < asked):
                    self._pull(container["image"], path)
        except OSError as error:
            raise PullFailed("ErrImagePull", "{}: {}".format(self._folder, error.strerror)) from error
        return self._use(path, time.monotonic() - started)

    def remove_unused(self) -> None:
        """Remove images unused for so many whole days, and what killed pulls left more than a day ago."""
        for part in glob.glob(os.path.join(glob.escape(self._folder), "*.*.*.*")):
            if LEFT_BEHIND.search(part) and is_unused(part, 0):
                with suppress(OSError):
                    os.unlink(part)
        for path in glob.glob(os.path.join(glob.escape(self._folder), "*.sif")) if self._keep_days else ():
            if path not in self._used and is_unused(path, self._keep_days):
                with suppress(OSError):
                    self._remove(path)

    def touch_used(self) -> None:
        for path in list(self._used):
            touch(path)

    def _use(self, path: str, pulled_s: Optional[float]) -> Image:
        if not self._used:
            threading.Thread(target=self._keep_used, daemon=True).start()
        self._used.add(path)
        return Image(path, pulled_s)

    def _keep_used(self) -> None:
        while not self._stopping.wait(DAY_S):
            self.touch_used()

    def _remove(self, path: str) -> None:
        aside = "{}.{}.{}".format(path, os.uname()[1], os.getpid())
        os.rename(path, aside)
        if is_unused(aside, self._keep_days):
            os.unlink(aside)
        elif not os.path.exists(path):
            os.rename(aside, path)

    def _path(self, image: str) -> str:
        return os.path.join(self._folder, hash_name(image) + ".sif")

    @contextmanager
    def _lock(self, path: str, within_s: float = float("inf")) -> Iterator[None]:
        """Hold the lock, or go on without it after so long. It is polled: the end of a pod does not wait."""
        deadline = time.monotonic() + within_s
        with open(path, "ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self._stopping.wait(LOOK_S):
                        raise Stopped from None
                    if time.monotonic() > deadline:
                        break
            yield

    def _pull(self, image: str, path: str) -> None:
        part = "{}.{}.{}".format(path, os.environ.get("SLURM_JOB_ID", "0"), os.getpid())
        logins = find_credentials(image, self._registries)
        try:
            failures = []
            for login in logins or [{}]:
                environment = {**self._environment, **login_environment(login)}
                code, output = self._run([self._runtime, "-q", "pull", "--force", part, image], environment)
                if code == 0:
                    os.rename(part, path)
                    return
                failures.append(explain_pull(output, code))
            message = most_telling(failures)
            raise PullFailed("ErrImagePull", message + pull_cure(message, has_login=bool(logins)))
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)

    def _run(self, argv: List[str], environment: Dict[str, str]) -> Tuple[int, str]:
        """Run the pull in a session of its own, which is killed when the pod ends."""
        process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        chunks = []

        def collect() -> None:
            while process.stdout is not None:
                data = process.stdout.read1(65536) if hasattr(process.stdout, "read1") else b""
                if not data:
                    return
                chunks.append(data)
                del chunks[:-64]

        reader = threading.Thread(target=collect, daemon=True)
        reader.start()
        while process.poll() is None:
            if self._stopping.wait(LOOK_S):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise Stopped
        reader.join(1.0)
        return process.returncode, b"".join(chunks).decode("utf-8", "replace")


def login_environment(login: Document) -> Dict[str, str]:
    return {
        prefix + name.upper(): login[name]
        for prefix in CREDENTIAL_PREFIXES
        for name in ("username", "password")
        if login
    }


def check_owner(path: str) -> None:
    """Refuse an image that a stranger has put there: its name can be computed by everybody."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode) and status.st_uid in (os.geteuid(), 0):
        return
    sentence = "{} is neither yours nor root's: slurm.image_cache must be a folder of the user's own"
    raise PullFailed("ErrImagePull", sentence.format(path))


def touch(path: str) -> bool:
    """Whether the image is there; then it is not removed for a while."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:  # a file system that only others may write
        return os.path.exists(path)
    return True


def is_unused(path: str, days: int) -> bool:
    """As `find -mtime +DAYS` has it. What looks old is opened: a network file system then asks its server."""
    try:
        if not is_old_file(os.lstat(path), days):
            return False
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return is_old_file(os.fstat(file), days)
        finally:
            os.close(file)
    except OSError:
        return False


def is_old_file(status: os.stat_result, days: int) -> bool:
    return stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime >= (days + 1) * DAY_S


def hash_name(image: str) -> str:
    """SHA-256, without the 4 MB of OpenSSL that hashlib brings where Python has its own."""
    for module in ("_sha256", "_sha2", "hashlib"):
        with suppress(ImportError, AttributeError, ValueError):
            digest: str = __import__(module).sha256(image.encode()).hexdigest()
            return digest
    raise PullFailed("ErrImagePull", "the node's Python has no SHA-256")


def pull_cure(message: str, *, has_login: bool) -> str:
    """What to do about a failure of a registry; nothing where it may pass by itself."""
    lowered = message.lower()
    if is_about_login(message):
        cure = "check the login of imagePullSecrets" if has_login else "if it exists, give imagePullSecrets"
    elif any(words in lowered for words in NAME_WORDS):
        cure = "check the image's name and tag"
    elif any(words in lowered for words in NETWORK_WORDS):
        cure = "Slurm's nodes have to reach the registry"
    elif any(words in lowered for words in DISK_WORDS):
        cure = "make room in your home, and in the node's directory for temporary files"
    else:
        return ""
    return ": " + cure


def most_telling(failures: List[str]) -> str:
    """Of tries with one login after another: a registry that refuses a login says nothing of the image."""
    return next((failure for failure in failures if not is_about_login(failure)), failures[-1])


def is_about_login(message: str) -> bool:
    lowered = message.lower()
    return any(words in lowered for words in LOGIN_WORDS)


def explain_pull(output: str, code: int) -> str:
    """The last error of Apptainer's, without its level."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(LOG_LEVELS)] or lines
    return (
        errors[-1].partition(":")[2].strip()
        if errors and errors[-1].startswith(LOG_LEVELS)
        else (errors[-1] if errors else "the pull failed with code {}".format(code))
    )
