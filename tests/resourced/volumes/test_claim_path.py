"""Where a claim's volume is, and which claims are refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from redbox_kube.api.objects import Object
from redbox_resourced.volumes.claim_path import ClaimPending, ClaimRefused, claim_path, sub_path
from redbox_resourced.volumes.names import ANNOTATION_PATH
from tests.resourced.volumes.factories import FOLDER, claim, volume


@dataclass(frozen=True)
class Mount:
    """As `pods.mounts` has it."""

    to: str
    server: str = ""
    path: str = ""
    driver: str = ""
    volume_handle: str = ""


def foreign(annotations: dict[str, str] | None = None, **source: Any) -> Object:
    body = volume()
    body["metadata"]["annotations"] = annotations or {}
    del body["spec"]["csi"]
    body["spec"] |= source
    return body


def path(pv: Object, *mounts: Mount, cluster: str = "hpc1", account: str = "default") -> str:
    return claim_path(claim(bound=True), pv, cluster, mounts, account)


def test_the_folder_of_a_volume_of_ours() -> None:
    assert path(volume()) == FOLDER


def test_of_another_account_it_is_refused_by_name() -> None:
    with pytest.raises(ClaimRefused, match=r"claim data is a folder of .* default, .* has ci: use"):
        path(volume(), account="ci")


def test_of_another_cluster_it_is_refused() -> None:
    with pytest.raises(ClaimRefused, match="is a folder on hpc1, and this pod runs on hpc2"):
        path(volume(), cluster="hpc2")


def test_a_volume_that_only_looks_like_ours_is_refused() -> None:
    body = volume()
    body["metadata"]["annotations"] = {ANNOTATION_PATH: "/etc"}
    with pytest.raises(ClaimRefused, match="was not made by Red Box's provisioner"):
        path(body)


def test_a_claims_own_words_are_no_path() -> None:
    """Tenants write claims: only volumes are asked."""
    pvc = claim(bound=True)
    pvc["metadata"]["annotations"] |= {ANNOTATION_PATH: "/etc", "redbox.dev/service-account": "ci"}
    with pytest.raises(ClaimRefused, match="is a iscsi volume"):
        claim_path(pvc, foreign(iscsi={"iqn": "x"}), "hpc1", (), "default")
    with pytest.raises(ClaimRefused, match="service account default"):
        claim_path(pvc, volume(), "hpc1", (), "ci")


@pytest.mark.parametrize(
    "pv",
    [
        None,
        volume(claimRef=None),
        volume(claimRef={"namespace": "alice", "name": "data", "uid": "another"}),
        volume(claimRef={"namespace": "bob", "name": "data", "uid": claim()["metadata"]["uid"]}),
    ],
)
def test_a_claim_that_only_names_a_volume_waits(pv: Object | None) -> None:
    with pytest.raises(ClaimPending):
        claim_path(claim(bound=True), pv, "hpc1", (), "default")


def test_an_unbound_claim_waits() -> None:
    with pytest.raises(ClaimPending):
        claim_path(claim(), volume(), "hpc1", (), "default")


NFS = Mount("/projects", server="nfs.example.org", path="/export/projects")
CEPH = Mount("/ceph", driver="cephfs.csi.ceph.com", volume_handle="0001-site")
SMB = Mount("/smb/", driver="smb.csi.k8s.io", volume_handle="server#share#")
OF_A_SERVER = Mount("/all", driver="nfs.csi.k8s.io", volume_handle="server#")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"nfs": {"server": "nfs.example.org", "path": "/export/projects"}}, "/projects"),
        ({"nfs": {"server": "nfs.example.org", "path": "/export/projects/a/b/"}}, "/projects/a/b"),
        ({"csi": {"driver": "cephfs.csi.ceph.com", "volumeHandle": "0001-site"}}, "/ceph"),
        ({"csi": {"driver": "cephfs.csi.ceph.com", "volumeHandle": "0001-site/vol"}}, "/ceph/vol"),
        *(
            ({"csi": {"driver": "smb.csi.k8s.io", "volumeHandle": f"server#share#{rest}"}}, f"/smb/{folder}")
            for rest, folder in (
                ("pvc-1", "pvc-1"),
                ("pvc-1##", "pvc-1"),
                ("pvc-1##archive", "pvc-1"),
                ("team/data#pvc-1#", "team/data"),
                ("team/data#pvc-1#retain", "team/data"),
            )
        ),
        ({"csi": {"driver": "nfs.csi.k8s.io", "volumeHandle": "server#share#a#pvc-1#"}}, "/all/share/a"),
    ],
)
def test_a_file_system_that_both_mount(source: dict[str, Any], expected: str) -> None:
    assert path(foreign(**source), NFS, CEPH, SMB, OF_A_SERVER) == expected


@pytest.mark.parametrize(
    "source",
    [
        {"nfs": {"server": "nfs.example.org", "path": "/export/projects2"}},
        {"nfs": {"server": "other.example.org", "path": "/export/projects"}},
        {"nfs": {"server": "nfs.example.org", "path": "/export"}},
        {"csi": {"driver": "other", "volumeHandle": "0001-site"}},
        {"csi": {"driver": "cephfs.csi.ceph.com", "volumeHandle": "0001-site2"}},
        {"hostPath": {"path": "/etc"}},
    ],
)
def test_what_is_not_below_a_mount_is_refused_with_the_cure(source: dict[str, Any]) -> None:
    with pytest.raises(ClaimRefused, match=r"claim data is a .*pods.mounts of SlurmCluster hpc1"):
        path(foreign(**source), NFS, CEPH)


@pytest.mark.parametrize(
    "source",
    [
        {"nfs": {"server": "nfs.example.org", "path": "/export/projects/../../etc"}},
        {"csi": {"driver": "smb.csi.k8s.io", "volumeHandle": "server#share#../../etc"}},
    ],
)
def test_no_volume_leads_out_of_its_mount(source: dict[str, Any]) -> None:
    with pytest.raises(ClaimRefused, match=r"has `\.\.` in it"):
        path(foreign(**source), NFS, SMB)


def test_an_administrator_says_where_a_volume_is() -> None:
    pv = foreign({ANNOTATION_PATH: "/gpfs/data/"}, iscsi={"iqn": "x"})
    assert path(pv) == "/gpfs/data"


@pytest.mark.parametrize("written", ["gpfs/data", "/gpfs/../etc", "", "/a\nb"])
def test_an_annotation_that_is_no_path_is_refused(written: str) -> None:
    with pytest.raises(ClaimRefused, match=r"redbox\.dev/path"):
        path(foreign({ANNOTATION_PATH: written}, iscsi={}))


def test_a_block_device_is_refused() -> None:
    with pytest.raises(ClaimRefused, match="block device"):
        path(volume(volumeMode="Block"))


@pytest.mark.parametrize(("relative", "expected"), [("", "/v"), ("a/b", "/v/a/b"), ("./a", "/v/a")])
def test_a_sub_path_is_below_the_volume(relative: str, expected: str) -> None:
    assert sub_path("/v", relative) == expected


@pytest.mark.parametrize("relative", ["/etc", "..", "a/../../b", "a\0", "a\nb"])
def test_a_sub_path_never_leaves_it(relative: str) -> None:
    with pytest.raises(ClaimRefused, match="must be relative"):
        sub_path("/v", relative)
