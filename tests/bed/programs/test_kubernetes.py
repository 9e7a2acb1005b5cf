"""Which Go builds the cluster's programs, and as what version."""

from pathlib import Path

import pytest

from redbox_bed.core.errors import BedError
from redbox_bed.kube.kube_cluster import may_raise_limits
from redbox_bed.programs.golang import parse_go_version, required_version
from redbox_bed.programs.kube_e2e import MODULE as TESTS
from redbox_bed.programs.kubernetes import MODULE, version_flags


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.24rc1 linux/arm64", (1, 24)),
        ("go version devel go1.99-abcdef linux/amd64", None),
        ("", None),
    ],
)
def test_gos_version_is_read_from_its_own_words(text: str, version: tuple[int, int] | None) -> None:
    assert parse_go_version(text) == version


def test_the_programs_say_the_version_that_the_module_requires() -> None:
    version = required_version(MODULE / "go.mod", "k8s.io/kubernetes")
    assert version.startswith("v1.34.")
    assert f"component-base/version.gitVersion={version}" in version_flags(version)


def test_a_module_without_what_is_asked_for_is_refused(tmp_path: Path) -> None:
    modules = tmp_path / "go.mod"
    modules.write_text("module kube\n\nrequire k8s.io/kubectl v0.34.4\n")
    with pytest.raises(BedError, match="which version of k8s"):
        required_version(modules, "k8s.io/kubernetes")
    assert required_version(modules, "k8s.io/kubectl") == "v0.34.4"


@pytest.mark.parametrize(("mask", "may"), [("000001fffeffffff", False), ("000001ffffffffff", True)])
def test_the_capability_to_raise_limits_is_read_from_a_process_status(mask: str, *, may: bool) -> None:
    assert may_raise_limits(f"Name:\tpython\nCapPrm:\t0000000000000000\nCapEff:\t{mask}\n") is may


def test_the_tests_of_kubernetes_are_those_of_the_version_that_the_bed_runs() -> None:
    versions = {required_version(module / "go.mod", "k8s.io/kubernetes") for module in (MODULE, TESTS)}
    assert len(versions) == 1
