"""red-box on a login host, installed and introduced as the administrators of both sides would do it.

The HPC administrator installs the distribution, runs `redbox init`, copies the Kubernetes cluster's public
keys, writes who is who, and starts the service as the account `redbox`. The hosts reach no package registry,
so the wheels are put together on the machine, for the host's Python, and kept in the cache.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from redbox_bed.core.build_cache import contents_of, ensure_built, key_of
from redbox_bed.core.commands import run_command
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT, Places
from redbox_bed.core.plan import SERVICE_PORT
from redbox_bed.hosts.host import Daemon, Host
from redbox_bed.hosts.waiting import wait_until_serves

SERVICE = "redbox"
LIBRARY = "/opt/redbox/lib"
COMPILED = "/opt/redbox/compiled"
"""Where modules are compiled, as if they were in LIBRARY."""
INSTALLED = f"{LIBRARY}/installed"
"""What `version` was, once all of it is there."""
PROGRAM = "/usr/local/bin/redbox"
SETTINGS = "/etc/redbox/redbox.yaml"
SUDOERS = "/etc/sudoers.d/redbox"
LOCK = CHECKOUT / "deploy/local/server.lock"
BUILD_SECONDS = 600
START_SECONDS = 30
SOURCES = ("redbox", "companion", "operator", "resourced")

LAUNCHER = f"""\
#!/usr/bin/python3 -I
import sys
sys.path.insert(0, {LIBRARY!r})
from redbox.__main__ import main
main()
"""
DAEMON = Daemon(SERVICE, (PROGRAM, "serve"), user=SERVICE)


@dataclass(frozen=True)
class Rule:
    """One line of the mapping: service accounts of a namespace run as a user."""

    namespace: str
    user: str


def install(host: Host, places: Places) -> None:
    """Put the programs there: dependencies by the lock, and the checkout's code as it is now.

    Compiled, as a package's installation does: its account cannot, and each start would again. That takes 4 s
    of CPU, and is the same for all beds: it is done once, and kept in the cache.
    """
    host.write(PROGRAM, LAUNCHER, mode=0o755)
    if host.run("cat", INSTALLED, check=False).stdout == version():
        return
    python = python_of(host)
    folders = [_dependencies(places, python), _project(places)]
    host.run("rm", "-rf", LIBRARY)  # modules of another version would still be imported
    for folder in folders:
        copy(host, _compiled(host, folder, python), LIBRARY, compiled=True)
    host.write(INSTALLED, version())


def version() -> str:
    """Tells what would be installed now from what would be after a change."""
    return key_of(LOCK.read_bytes(), _sources())


def python_of(host: Host) -> str:
    """Its Python's version, as 3.13."""
    return host.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()


def introduce(
    host: Host,
    *,
    name: str,
    cluster: str,
    issuer: str,
    keys: bytes,
    rules: Sequence[Rule],
    reached_at: str = "",
) -> str:
    """`redbox init`, the cluster's keys, and who is who; the SlurmCluster to apply is returned."""
    address = reached_at or host.spec.address
    options = ("--name", name, "--cluster", cluster, "--issuer", issuer, "--host", address)
    manifest = host.run(PROGRAM, "init", *options).stdout
    host.run("visudo", "--check", "--quiet")
    host.write(f"/etc/redbox/{cluster}.jwks.json", keys)
    settings = yaml.safe_load(host.read(SETTINGS))
    before = settings["mapping"]["rules"]
    settings["mapping"]["rules"] = _merged(before, [_rule(cluster, rule) for rule in rules])
    host.write(SETTINGS, yaml.safe_dump(settings, sort_keys=False))
    host.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/redbox.conf")
    return manifest


def wheels(places: Places, python: str) -> Path:
    """The wheel, what the lock has pip take from a registry, which is out of reach there, and pip."""
    folder = places.cache / "login" / f"wheels-{python}-{version()}"
    return ensure_built(folder, partial(_collect_wheels, python))


def restart(host: Host) -> None:
    """Have the service run what is installed now."""
    if host.running(SERVICE):
        host.kill(SERVICE)
    start(host)


def start(host: Host) -> None:
    """Start the service, as its own account, and wait until it takes work."""
    host.ensure(DAEMON)
    ready = ("curl", "--silent", "--fail", "--insecure", f"https://127.0.0.1:{SERVICE_PORT}/readyz")
    wait_until_serves(host, DAEMON, lambda: host.run(*ready, check=False).returncode == 0, START_SECONDS)


def _rule(cluster: str, rule: Rule) -> dict[str, object]:
    return {
        "cluster": cluster,
        "namespaces": [rule.namespace],
        "service_accounts": ["default"],
        "user": rule.user,
        "roles": ["submit"],
    }


def _merged(before: list[dict[str, object]], new: list[dict[str, object]]) -> list[dict[str, object]]:
    return [*before, *(rule for rule in new if rule not in before)]


def copy(host: Host, folder: Path, target: str, *, compiled: bool = False) -> None:
    """A folder's files, as root's own; what is compiled there is for the host's Python only if it says so."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, ".", filter=partial(_as_roots, compiled=compiled))
    unpack = ("tar", "--extract", "--directory", target)
    host.run("mkdir", "--parents", target)
    with host.popen(*unpack, stdin=subprocess.PIPE) as process:
        process.communicate(packed.getvalue(), timeout=BUILD_SECONDS)
        if process.returncode:
            raise BedError(f"{folder} could not be copied to {target} of {host.name}")


def _as_roots(member: tarfile.TarInfo, *, compiled: bool) -> tarfile.TarInfo | None:
    if "__pycache__" in member.name and not compiled:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _compiled(host: Host, folder: Path, python: str) -> Path:
    """The folder with its modules as the host's Python compiles them."""
    return ensure_built(folder.with_name(f"{folder.name}-compiled-{python}"), partial(_compile, host, folder))


def _compile(host: Host, folder: Path, target: Path) -> None:
    """By the time of each module's file, which a copy keeps."""
    copy(host, folder, COMPILED)
    places = ("-s", COMPILED, "-p", LIBRARY)
    host.run(
        *("python3", "-m", "compileall", "-q", "-j2", *places, COMPILED), check=False, timeout=BUILD_SECONDS
    )
    shutil.copytree(f"/proc/{host.need_pid()}/root{COMPILED}", target, dirs_exist_ok=True)
    host.run("rm", "-rf", COMPILED)


def _dependencies(places: Places, version: str) -> Path:
    build = partial(_install_wheels, version)
    return ensure_built(places.cache / "login" / f"server-{version}-{key_of(LOCK.read_bytes())}", build)


def _install_wheels(version: str, folder: Path) -> None:
    _pip("install", "--target", str(folder), "--no-compile", *_locked_for(version))


def _collect_wheels(version: str, folder: Path) -> None:
    _pip("download", "--dest", str(folder), *_locked_for(version))
    _pip("download", "--dest", str(folder), "--no-deps", "pip")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder))
    _pip("wheel", *options, str(CHECKOUT))


def _locked_for(version: str) -> tuple[str, ...]:
    """Of the lock, wheels for the host's Python, which is not this machine's."""
    platforms = ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64")
    return (
        *("--no-deps", "--require-hashes", "--only-binary=:all:", "--requirement", str(LOCK)),
        *("--implementation", "cp", "--python-version", version),
        *(option for platform in platforms for option in ("--platform", platform)),
    )


def _project(places: Places) -> Path:
    """The checkout as it is now, installed."""
    return ensure_built(places.cache / "login" / f"project-{key_of(_sources())}", _install_project)


def _sources() -> bytes:
    sources = (contents_of(CHECKOUT / source, "*.*") for source in SOURCES)
    return b"".join([*sources, (CHECKOUT / "pyproject.toml").read_bytes()])


def _install_project(folder: Path) -> None:
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--target", str(folder))
    _pip("install", *options, str(CHECKOUT))


def _pip(*arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    command = (sys.executable, "-m", "pip", arguments[0], *quiet, *arguments[1:])
    run_command(command, "red-box's wheels could not be collected", timeout=BUILD_SECONDS)
