"""Files that a job left: which go, which stay, and links and mounts that lead elsewhere."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redbox_slurmpod.node.leftover_files import LeftoverFiles, emptied_folders

ALICE, BOB = 61_001, 61_002
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
MOUNTS = """\
1 0 0:50 / / rw - overlay overlay rw
2 1 8:1 {root} /tmp rw,relatime - ext4 /dev/sda1 rw
3 1 0:60 / /dev/shm rw - tmpfs tmpfs rw
4 1 0:61 / /var/lib/x rw - tmpfs tmpfs rw
"""


def put(path: Path, uid: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.chown(path, uid, uid)
    return path


def emptied(folder: Path, *uids: int, within_s: float = 60) -> LeftoverFiles:
    files = LeftoverFiles(lambda uid: uid in uids, until=time.monotonic() + within_s)
    files.remove_from(folder)
    return files


def test_only_the_files_of_those_users_go(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    stays = [put(tmp_path / "b", BOB), put(inner / "b", BOB), put(tmp_path / "r", 0)]
    for path in (put(tmp_path / "a", ALICE), put(inner / "a", ALICE), put(tmp_path / "own" / "a", ALICE)):
        os.chown(path, ALICE, ALICE)
    os.chown(tmp_path / "own", ALICE, ALICE)
    files = emptied(tmp_path, ALICE)
    assert (files.removed, files.failed) == (4, 0)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(stays)
    assert not (tmp_path / "own").exists()


def test_a_link_goes_and_what_it_names_stays(tmp_path: Path) -> None:
    outside = put(tmp_path / "home" / "thesis", ALICE)
    folder = tmp_path / "tmp"
    folder.mkdir()
    for name, target in (("file", outside), ("folder", outside.parent)):
        (folder / name).symlink_to(target)
        os.chown(folder / name, ALICE, ALICE, follow_symlinks=False)
    assert emptied(folder, ALICE).removed == 2
    assert list(folder.iterdir()) == []
    assert outside.exists()


def test_a_folder_deeper_than_descriptors_last_goes(tmp_path: Path) -> None:
    deep = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')"
    (tmp_path / "top").mkdir()
    os.chown(tmp_path / "top", ALICE, ALICE)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    subprocess.run(["python3", "-c", deep], cwd=tmp_path / "top", user=ALICE, check=True)
    assert emptied(tmp_path, ALICE).failed == 0
    assert list(tmp_path.iterdir()) == []


def test_after_its_time_the_rest_stays_and_is_said(tmp_path: Path) -> None:
    put(tmp_path / "a", ALICE)
    files = emptied(tmp_path, ALICE, within_s=-1)
    assert files.why == "they are too many for one epilog"
    assert (tmp_path / "a").exists()


def test_another_mount_below_is_not_entered(tmp_path: Path) -> None:
    theirs = put(tmp_path / "claim" / "results", ALICE)
    folder = tmp_path / "tmp"
    (folder / "mnt").mkdir(parents=True)
    bind = ["unshare", "--mount", "sh", "-c"]
    code = (
        "import sys, time; from pathlib import Path\n"
        "from redbox_slurmpod.node.leftover_files import LeftoverFiles\n"
        "LeftoverFiles(lambda uid: uid, until=time.monotonic() + 60).remove_from(Path(sys.argv[1]))"
    )
    script = f'mount --bind {theirs.parent} {folder}/mnt || exit 77; exec {sys.executable} -c "$0" {folder}'
    ended = subprocess.run([*bind, script, code], capture_output=True, text=True, check=False)
    if ended.returncode in {1, 77} and not ended.stderr.startswith("Traceback"):
        pytest.skip(f"no mount can be made here: {ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    assert theirs.exists()


@pytest.mark.parametrize(
    ("root", "folders"),
    [
        ("/pods/u/volumes/kubernetes.io~empty-dir/tmp", ["/tmp", "/dev/shm"]),
        ("/pods/u/volumes/kubernetes.io~csi/pvc-1/mount", ["/dev/shm"]),
    ],
)
def test_a_claim_in_the_place_of_tmp_is_left_alone(tmp_path: Path, root: str, folders: list[str]) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(root=root))
    assert [str(folder) for folder in emptied_folders(mounts)] == folders
