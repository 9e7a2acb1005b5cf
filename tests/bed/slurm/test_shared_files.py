"""The files that a cluster's hosts share, and the keys in them."""

import io
import stat
import tarfile
from pathlib import Path

from redbox_bed.core.places import Places
from redbox_bed.core.plan import Options, make_plan
from redbox_bed.slurm.shared_files import File, archive, cluster_files, host_key, user_key, write_known_hosts


def files(options: Options, index: int = 0) -> dict[str, File]:
    cluster = make_plan(options).clusters[index]
    return {file.path: file for file in cluster_files(cluster, "cgroup/v1", b"key")}


def test_secrets_are_their_daemons_alone() -> None:
    found = files(Options())
    for path, owner in (
        ("/etc/munge/munge.key", "munge"),
        ("/etc/slurm/jwt.key", "slurm"),
        ("/etc/slurm/slurmdbd.conf", "slurm"),
        ("/etc/ssh/ssh_host_ed25519_key", "root"),
    ):
        assert found[path].owner == owner
        assert found[path].mode & 0o077 == 0


def test_clusters_share_no_secret() -> None:
    first, second = (files(Options(hpc2=True), index) for index in (0, 1))
    for path in ("/etc/munge/munge.key", "/etc/slurm/jwt.key"):
        assert first[path].content != second[path].content


def test_without_accounting_there_is_no_slurmdbd_conf() -> None:
    assert "/etc/slurm/slurmdbd.conf" not in files(Options(accounting=False))


def test_no_rank_of_mpi_goes_on_while_another_still_starts() -> None:
    assert files(Options())["/etc/slurm/mpi.conf"].content == "PMIxCollFence=ring\n"


def test_an_archive_names_owners_so_that_the_tree_decides_their_numbers() -> None:
    packed = archive([File("/etc/munge/munge.key", b"secret", 0o400, "munge")])
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        (entry,) = tar.getmembers()
        assert (entry.name, entry.mode, entry.uname) == ("etc/munge/munge.key", 0o400, "munge")
        content = tar.extractfile(entry)
        assert content is not None
        assert content.read() == b"secret"


def test_keys_are_made_once_and_kept_from_others(tmp_path: Path) -> None:
    places = Places(state=tmp_path, cache=tmp_path / "cache")
    first = user_key(places)
    assert user_key(places) == first
    assert stat.S_IMODE((places.ssh / "id_ed25519").stat().st_mode) == 0o600
    assert first[1].startswith("ssh-ed25519 ")


def test_a_client_outside_knows_the_login_host_by_its_forwarded_port(tmp_path: Path) -> None:
    places = Places(state=tmp_path, cache=tmp_path / "cache")
    write_known_hosts(make_plan(Options(port_offset=1)), places)
    (line,) = (places.ssh / "known_hosts").read_text().splitlines()
    names, public = line.split(maxsplit=1)
    assert set(names.split(",")) == {"login", "10.77.0.10", "[127.0.0.1]:12223"}
    assert public == host_key(places, "login")[1]
