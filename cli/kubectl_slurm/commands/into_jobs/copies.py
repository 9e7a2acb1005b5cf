"""`cp`: files from and to a running job, as a tar archive through a session of it.

What comes from the job is a stranger's archive, and the destination often a home directory: nothing is
written but the file or folder that was asked for, no device, no setuid file, and no link that leads out of
the destination.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from kubectl_slurm.errors import BadUsage, PluginError
from kubectl_slurm.kubectl.program import ErrorLines, Kubectl
from kubectl_slurm.options import invocation_of, parser_of
from kubectl_slurm.slurmjobs.entering import JobEntry, add_place, entry_of
from kubectl_slurm.terminal.screen import note, one_line

TEXT = "Copy a file or folder from a running job (NAME:PATH LOCAL) or to it (LOCAL NAME:PATH)."
EPILOG = "A PATH that does not begin with / is below the folder in which the job's script began."
PACK = """\
if [ -d "$1/$2" ]; then
    exec tar -cf - -C "$1" -- "./$2/."
fi
exec tar -chf - -C "$1" -- "./$2"
"""
"""In the job: of a link, such as one to the newest checkpoint, what it leads to; links below stay links."""
UNPACK = """\
if [ -d "$1" ]; then
    folder=$1 name=$2
else
    folder=$(dirname -- "$1") name=$(basename -- "$1")
fi
temporary=$(mktemp -d -- "$folder/.cp-XXXXXX") &&
    tar -xpf - -C "$temporary" &&
    if [ -d "$temporary/$2" ] && [ -d "$folder/$name" ]; then
        cp -af -- "$temporary/$2/." "$folder/$name/"
    else
        mv -f -T -- "$temporary/$2" "$folder/$name"
    fi
code=$?
rm -rf -- "$temporary"
exit $code
"""
"""In the job: a file that is there is replaced as a whole, or not at all; a folder gets the new files."""
NO_ARCHIVE = b"\xff" * 10240
"""Has tar in the job fail, which takes an archive that only lacks its end for a whole one."""
ALL = frozenset({"", "."})
"""Names of what has no name of its own: the members are the content of the destination."""
LONGEST_PATH = 4000
REMOTE = re.compile(r"((?:slurmjob(?:\.redbox\.dev)?/)?[a-z0-9][a-z0-9.-]*(?:_[0-9]+)?):(.*)", re.DOTALL)


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT, epilog=EPILOG)
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET")
    add_place(parser)
    options = parser.parse_args(words)
    remote, local = REMOTE.fullmatch(options.source), REMOTE.fullmatch(options.target)
    if (remote is None) == (local is None):
        raise BadUsage("exactly one of SOURCE and TARGET is NAME:PATH, of a running job")
    call = invocation_of(options, given, environment)
    name, path = (remote or local or [""])[1], (remote or local or ["", "", ""])[2]
    if not path:
        raise BadUsage(f"which file of {name}? NAME:PATH")
    entry = entry_of(call.kubectl, name, options)
    if remote is not None:
        _download(call.kubectl, entry, path, Path(options.target))
    else:
        upload(call.kubectl, entry, Path(options.source), path)
    return 0


def _download(kubectl: Kubectl, entry: JobEntry, path: str, target: Path) -> None:
    folder, name = posixpath.split(path.rstrip("/") or "/")
    name = "" if name == "." else name
    command = ["sh", "-c", PACK, "cp", folder or ".", name]
    destination, renamed = (target, None) if target.is_dir() else (target.parent, target.name)
    if not destination.is_dir():
        raise BadUsage(f"there is no folder {destination}")
    with kubectl.process(*entry.arguments(command, stdin=False), pass_on=_of_job) as (process, errors):
        fault = unpack(process.stdout, destination, name, renamed)
        if fault and process.stdout is not None:
            process.stdout.close()  # kubectl would wait for ever to write the rest
        code = process.wait()
    if code or fault:
        raise PluginError(f"{path} was not copied whole: {one_line(errors.text()) or fault or 'see above'}")


def unpack(source: IO[bytes] | None, destination: Path, name: str, renamed: str | None) -> str:
    """Write the members; returns what is wrong with the archive."""
    is_all = name in ALL
    root = os.path.realpath(destination / (renamed or ("" if is_all else name)))
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            archive.extraction_filter = lambda member, _: member  # they are vetted here
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep all members: a million
                member.name = _renamed(member.name, name, renamed)
                if member.islnk():
                    member.linkname = _renamed(member.linkname, name, renamed)
                    _check_is_below(root, destination, member.linkname)
                    if not (destination / member.linkname).exists():
                        return one_line(f"it has {member.name!r}, a link to a file that did not come before")
                _check_is_below(root, destination, member.name)
                archive.extract(vetted(member, destination), destination, set_attrs=not member.isdir())
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        return one_line(error) or type(error).__name__
    return ""


def vetted(member: tarfile.TarInfo, destination: Path) -> tarfile.TarInfo:
    """As Python's data filter passes it, which came with 3.11.4: Debian 12 has 3.11.2."""
    if hasattr(tarfile, "data_filter"):
        return tarfile.data_filter(member, str(destination))
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise tarfile.TarError(f"it has {member.name!r}, which is neither a file, a folder nor a link")
    if member.issym():
        folder, top = os.path.dirname(destination / member.name), os.path.realpath(destination)  # noqa: PTH120
        leads_to = os.path.realpath(os.path.join(folder, member.linkname))  # noqa: PTH118
        if os.path.commonpath([top, leads_to]) != top or len(os.fsencode(leads_to)) >= LONGEST_PATH:
            raise tarfile.TarError(f"it has {member.name!r}, a link that leads out of {destination}")
    member.mode = (member.mode & 0o755) | 0o600
    if not member.mode & 0o100:
        member.mode &= ~0o111
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    return member


def _renamed(path: str, name: str, renamed: str | None) -> str:
    """Without a name, as of `.`, all that is in the folder gets into the new one."""
    inside = posixpath.normpath(path)
    if renamed is None:
        return path
    if name in ALL:
        return path if inside.startswith(("..", "/")) else posixpath.join(renamed, inside)
    if inside == name or inside.startswith(f"{name}/"):
        return renamed + inside[len(name) :]
    return path


def _check_is_below(root: str, destination: Path, path: str) -> None:
    """Follows the links that are there: earlier members may have made some to what lies beside the target.

    Beyond the longest path that there is, realpath follows none and does not say so.
    """
    real = os.path.realpath(destination / path)
    if len(os.fsencode(real)) >= LONGEST_PATH:
        raise tarfile.TarError("it has a path that is too long")
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise tarfile.TarError(f"it has {path!r}, which was not asked for")


def upload(kubectl: Kubectl, entry: JobEntry, source: Path, path: str) -> None:
    """Into PATH if it is a folder there, else as PATH."""
    if not os.access(source, os.R_OK):
        raise BadUsage(f"{source} cannot be read")
    whole = source.resolve()  # of a link what it leads to, under the link's name
    name = source.name if source.name not in {"", ".."} else whole.name
    command = ["sh", "-c", UNPACK, "cp", path, name]
    argv = kubectl.argv(*entry.arguments(command, stdin=True, tty=False))
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        if process.stdin is None:
            raise PluginError("kubectl has no stdin")
        errors = ErrorLines(process.stderr, _of_job)
        fault = _pack(whole, name, process.stdin)
        code = process.wait()
        errors.end()
    if fault:
        raise PluginError(f"{source} was not copied: {fault}")
    if code:
        why = one_line(errors.text()) or "its reason is above"
        raise PluginError(f"{source} was not copied (exit code {code}): {why}")


def _of_job(line: str) -> None:
    """What a program in the job, or a login on the way there, says: it changes no terminal."""
    note(line.rstrip("\r\n"))


def _pack(source: Path, name: str, target: IO[bytes]) -> str:
    """Write the archive, and close; returns why the source cannot be read, whose part is then not kept."""
    fault = ""
    try:
        with target:
            try:
                with tarfile.open(fileobj=target, mode="w|") as archive:
                    archive.add(source, arcname=name)
            except BrokenPipeError:
                raise
            except (OSError, tarfile.TarError) as error:
                fault = one_line(error)
                target.write(NO_ARCHIVE)
    except BrokenPipeError:
        pass  # kubectl has said why
    return fault
