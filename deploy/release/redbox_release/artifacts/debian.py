"""The Debian package: red-box's environment, its unit, its accounts, sudo's rule and the agent."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from redbox_bed.core.commands import run_command
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_release.artifacts.environment import GLIBC, PYTHONS, lay_python
from redbox_release.artifacts.source import Source

PROGRAM = "usr/bin/redbox"
ENVIRONMENT = "usr/lib/redbox"
# Its presence has `redbox init` leave to the package what belongs to it.
PACKAGED = f"{ENVIRONMENT}/packaged"
SCRIPTS = Path(__file__).resolve().parents[2] / "package"
_HOST_FILES = CHECKOUT / "redbox/redbox/setup/host_files"
_PLACES = {
    "redbox.service": "usr/lib/systemd/system/redbox.service",
    "sysusers.conf": "usr/lib/sysusers.d/redbox.conf",
    "tmpfiles.conf": "usr/lib/tmpfiles.d/redbox.conf",
    "logrotate.conf": "etc/logrotate.d/redbox",
}
_SUDOERS, _AGENT = "etc/sudoers.d/redbox", "usr/libexec/redbox/agent"
_CONFIGURATION = ("/etc/logrotate.d/redbox", f"/{_SUDOERS}")
_WITHIN_S = 600


def build_package(target: Path, environment: Path, source: Source, workshop: Path) -> None:
    """Pack `environment` with what a host needs around it; `workshop` is a folder to work in."""
    if not shutil.which("dpkg-deb"):
        raise BedError("a Debian package needs dpkg-deb: build the release on Debian or Ubuntu")
    root = workshop / "package"
    shutil.copytree(environment, root / ENVIRONMENT, symlinks=True)
    lay_python(root / ENVIRONMENT, Path("/usr/bin/python3"))
    _write_host_files(root)
    _write_control(root, source)
    _set_modes(root)
    # dpkg-deb takes the time of all files from SOURCE_DATE_EPOCH; more threads would give other bytes.
    command = (
        "dpkg-deb",
        "--build",
        "--root-owner-group",
        "-Zzstd",
        "-z9",
        "--threads-max=1",
        str(root),
        str(target),
    )
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(source.epoch)}
    run_command(command, "dpkg-deb could not build the package", timeout=_WITHIN_S, env=environ)


def _write_host_files(root: Path) -> None:
    for name, place in _PLACES.items():
        text = (_HOST_FILES / name).read_text()
        _write(
            root / place,
            text.replace("Made by `redbox init`", "Of the package red-box").replace(
                "{program}", f"/{PROGRAM}"
            ),
        )
    _write(root / _SUDOERS, _said_by_redbox("from redbox.agents.install_texts import render_sudoers as made"))
    _write(
        root / _AGENT,
        _said_by_redbox(
            "from redbox.agents.program_source import agent_source; made = lambda: agent_source().decode()"
        ),
    )
    _write(root / PACKAGED, "red-box was installed as a Debian package; `redbox init` reads this.\n")
    (root / PROGRAM).parent.mkdir(parents=True)
    (root / PROGRAM).symlink_to("../lib/redbox/bin/redbox")
    _write(root / "usr/share/doc/red-box/copyright", (CHECKOUT / "LICENSE").read_text())
    _write(root / "usr/share/doc/red-box/CHANGELOG.md", (CHECKOUT / "CHANGELOG.md").read_text())


def _said_by_redbox(statement: str) -> str:
    """A text that red-box renders: by its own code in this checkout, which is run and not imported."""
    program = f"{statement}\nimport sys\nsys.stdout.write(made())"
    return run_command(
        (sys.executable, "-c", program), "red-box's own text could not be made", timeout=_WITHIN_S
    )


def _write_control(root: Path, source: Source) -> None:
    folder = root / "DEBIAN"
    kilobytes = (
        sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
        // 1024
    )
    last = tuple(map(int, PYTHONS[-1].split(".")))
    fields = {
        "Package": "red-box",
        "Version": source.version,
        "Architecture": source.architecture,
        "Maintainer": "The Red Box authors",
        "Installed-Size": kilobytes,
        "Depends": f"python3 (>= {PYTHONS[0]}), python3 (<< {last[0]}.{last[1] + 1}), libc6 (>= {GLIBC}), "
        "systemd | systemd-standalone-sysusers, passwd",
        "Recommends": "sudo, slurm-client, logrotate",
        "Section": "admin",
        "Priority": "optional",
        "Description": "Runs Slurm jobs for Kubernetes, each as its own user's Unix account\n"
        " red-box is the part of Red Box for a Slurm login node. It has an account without\n"
        " privileges; its one right is to start an agent as members of redbox-users.",
    }
    _write(folder / "control", "".join(f"{name}: {value}\n" for name, value in fields.items()))
    _write(folder / "conffiles", "".join(f"{path}\n" for path in _CONFIGURATION))
    for script in ("preinst", "postinst", "prerm", "postrm"):
        _write(folder / script, (SCRIPTS / script).read_text())


def _set_modes(root: Path) -> None:
    programs = {root / "DEBIAN" / name for name in ("preinst", "postinst", "prerm", "postrm")}
    programs |= {root / _AGENT, root / ENVIRONMENT / "bin/redbox"}
    root.chmod(0o755)
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path in programs else 0o644)
    (root / _SUDOERS).chmod(0o440)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
