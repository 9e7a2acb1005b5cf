"""What `redbox init` writes on a fresh host, and what it leaves alone on the next run."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import os
import stat
from pathlib import Path

import pytest
import yaml

from redbox.core.domain import Role
from redbox.jobs.record.marks import read_secret
from redbox.server.certificates import (
    CertificateAndKey,
    facts_of,
    fits,
    is_issued_by,
    issue_server,
    make_authority,
)
from redbox.settings import load_settings
from redbox.setup.checks.pods import check_volumes_role
from redbox.setup.install import apply
from redbox.setup.install.apply import InstallError, read_existing, write_plan
from redbox.setup.install.layout import Layout
from redbox.setup.install.manifest import key_instructions, render_slurm_cluster
from redbox.setup.install.plan import InitOptions, InitPlan, plan_init

NOW = dt.datetime(2026, 9, 21, 12, tzinfo=dt.UTC)
OPTIONS = InitOptions("hpc1", "prod", ("login.example",), ("10.77.0.10",))
WITH_PODS = dataclasses.replace(OPTIONS, pods=True)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(
        tmp_path / "etc", tmp_path / "state", tmp_path / "run", tmp_path / "log", tmp_path / "libexec/agent"
    )


@pytest.fixture(autouse=True)
def _everything_is_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test hosts have no account redbox: all files belong to the account that runs the tests."""
    monkeypatch.setattr(apply, "owner_ids", lambda _: None)


def run_init(layout: Layout, options: InitOptions = OPTIONS, now: dt.datetime = NOW) -> InitPlan:
    plan = plan_init(options, read_existing(layout), layout, now)
    write_plan(plan, layout)
    return plan


def contents(layout: Layout) -> dict[str, bytes]:
    root = layout.configuration.parent
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_fresh_host_gets_all_that_the_server_needs(layout: Layout) -> None:
    run_init(layout)
    assert set(contents(layout)) == {
        "etc/redbox.yaml",
        "etc/agent.conf",
        "etc/tls/ca.crt",
        "etc/tls/ca.key",
        "etc/tls/server.crt",
        "etc/tls/server.key",
        "state/mark.secret",
        "libexec/agent",
    }
    settings = load_settings(layout.settings)
    assert settings.name == "hpc1"
    assert settings.jobs.mark_secret == layout.mark_secret
    assert [rule.service_accounts for rule in settings.mapping.rules] == [
        ("redbox-operator",),
        ("redbox-resourced",),
    ]
    assert len(read_secret(layout.mark_secret)) == 32
    server = CertificateAndKey(layout.certificate.read_bytes(), layout.key.read_bytes())
    assert fits(server)
    assert is_issued_by(server.certificate, layout.authority_certificate.read_bytes())


def test_secrets_are_readable_by_their_owner_only(layout: Layout) -> None:
    os.umask(os.umask(0))
    run_init(layout)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (layout.authority_key, layout.key, layout.mark_secret, layout.state, layout.certificate)
    }
    assert modes == {
        "ca.key": 0o600,
        "server.key": 0o600,
        "mark.secret": 0o600,
        "state": 0o700,
        "server.crt": 0o644,
    }


def test_the_service_reaches_its_files_whatever_the_umask_of_init_is(layout: Layout) -> None:
    before = os.umask(0o077)
    try:
        run_init(layout)
    finally:
        os.umask(before)
    folders = (layout.configuration, layout.certificate.parent, layout.agent.parent)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o755] * 3


def test_a_second_run_renews_the_certificate_and_leaves_all_else(layout: Layout) -> None:
    first = run_init(layout)
    before = contents(layout)
    later = NOW + dt.timedelta(days=300)
    second = run_init(layout, now=later)
    after = contents(layout)
    assert {name for name in after if after[name] != before[name]} == {
        "etc/tls/server.crt",
        "etc/tls/server.key",
    }
    assert second.manifest == first.manifest
    facts = facts_of(layout.certificate.read_bytes())
    assert facts.not_after == later + dt.timedelta(days=397)
    assert f"kept {layout.settings}: redbox init never overwrites settings" in "\n".join(second.notes)


def test_a_new_name_is_added_to_those_that_the_certificate_has(layout: Layout) -> None:
    run_init(layout)
    run_init(layout, dataclasses.replace(OPTIONS, names=("alias.example",), addresses=()))
    facts = facts_of(layout.certificate.read_bytes())
    assert set(facts.names) == {"alias.example", "login.example"}
    assert facts.addresses == ("10.77.0.10",)


def test_settings_that_were_edited_stay(layout: Layout) -> None:
    run_init(layout)
    edited = layout.settings.read_text() + "# by hand\n"
    layout.settings.write_text(edited)
    layout.agent_settings.write_text("min_uid = 5000\n")
    run_init(layout)
    assert layout.settings.read_text() == edited
    assert layout.agent_settings.read_text() == "min_uid = 5000\n"


def test_an_agent_of_an_older_release_is_replaced(layout: Layout) -> None:
    run_init(layout)
    fresh = layout.agent.read_bytes()
    layout.agent.write_bytes(b"# old\n")
    run_init(layout)
    assert layout.agent.read_bytes() == fresh


def test_the_agent_of_a_package_is_left_to_it(layout: Layout) -> None:
    layout.agent.parent.mkdir(parents=True)
    layout.agent.write_text("the package's")
    plan = run_init(layout, dataclasses.replace(OPTIONS, packaged=True))
    assert layout.agent.read_text() == "the package's"
    assert layout.agent_settings.exists()
    assert f"kept {layout.agent}: it belongs to the package red-box" in plan.notes


def test_the_sites_own_certificate_is_left_alone(layout: Layout) -> None:
    run_init(layout)
    site = make_authority("the site's CA", NOW)
    own = issue_server(site, ["login.example"], [], NOW)
    layout.certificate.write_bytes(own.certificate)
    layout.key.write_bytes(own.key)
    plan = run_init(layout)
    assert layout.certificate.read_bytes() == own.certificate
    assert any("replace it by the certificate of your CA" in note for note in plan.notes)


def test_a_certificate_that_is_somewhere_else_is_the_sites_own(layout: Layout) -> None:
    run_init(layout)
    own = issue_server(make_authority("the site's CA", NOW), ["login.example"], [], NOW)
    elsewhere = layout.configuration / "site.crt", layout.configuration / "site.key"
    elsewhere[0].write_bytes(own.certificate)
    elsewhere[1].write_bytes(own.key)
    text = layout.settings.read_text()
    text = text.replace(str(layout.certificate), str(elsewhere[0])).replace(
        str(layout.key), str(elsewhere[1])
    )
    layout.settings.write_text(text)
    before = contents(layout)
    run_init(layout)
    assert contents(layout) == before


def test_a_certificate_of_our_ca_is_renewed_where_the_server_reads_it(layout: Layout) -> None:
    run_init(layout)
    certificate, key = layout.configuration / "own.crt", layout.configuration / "own.key"
    text = layout.settings.read_text()
    for path, moved in ((layout.certificate, certificate), (layout.key, key)):
        text = text.replace(str(path), str(moved))
        path.rename(moved)
    layout.settings.write_text(text)
    later = NOW + dt.timedelta(days=300)
    run_init(layout, now=later)
    assert facts_of(certificate.read_bytes()).not_after == later + dt.timedelta(days=397)
    assert fits(CertificateAndKey(certificate.read_bytes(), key.read_bytes()))
    assert not layout.certificate.exists()


def test_the_mark_secret_of_the_settings_is_the_one(layout: Layout) -> None:
    """A second one, 'to copy to every standby', would sign no job that runs."""
    run_init(layout)
    moved = layout.state / "disk/mark.secret"
    moved.parent.mkdir()
    layout.mark_secret.rename(moved)
    text = layout.settings.read_text()
    layout.settings.write_text(text.replace(str(layout.mark_secret), str(moved)))
    assert f"kept {moved}: it signs the marks of jobs that run" in run_init(layout).notes
    moved.unlink()
    notes = "\n".join(run_init(layout).notes)
    assert f"{moved} is missing, the jobs.mark_secret of {layout.settings}: restore it" in notes
    assert not layout.mark_secret.exists()
    assert not moved.exists()


def test_a_link_to_a_mark_secret_is_never_replaced(layout: Layout) -> None:
    run_init(layout)
    layout.mark_secret.unlink()
    layout.mark_secret.symlink_to(layout.state / "not-mounted/mark.secret")
    run_init(layout)
    assert layout.mark_secret.is_symlink()


@pytest.mark.parametrize("missing", ["server.key", "server.crt"])
def test_half_of_the_sites_own_pair_is_left_alone(layout: Layout, missing: str) -> None:
    run_init(layout)
    own = issue_server(make_authority("the site's CA", NOW), ["login.example"], [], NOW)
    layout.certificate.write_bytes(own.certificate)
    layout.key.write_bytes(own.key)
    (layout.configuration / "tls" / missing).unlink()
    before = contents(layout)
    with pytest.raises(InstallError, match=f"{missing} is missing"):
        run_init(layout)
    assert contents(layout) == before


def test_a_certificate_of_our_ca_without_its_key_is_made_again(layout: Layout) -> None:
    run_init(layout)
    layout.key.unlink()
    run_init(layout)
    assert fits(CertificateAndKey(layout.certificate.read_bytes(), layout.key.read_bytes()))


def test_a_ca_that_ends_soon_says_how_to_replace_it(layout: Layout) -> None:
    run_init(layout)
    plan = run_init(layout, now=NOW + dt.timedelta(days=3300))
    assert any(note.startswith("the CA expires soon: remove") for note in plan.notes)


def test_the_manifest_carries_endpoint_audience_and_ca(layout: Layout) -> None:
    plan = run_init(layout)
    manifest = yaml.safe_load(render_slurm_cluster(plan.manifest))
    assert (manifest["apiVersion"], manifest["kind"]) == ("redbox.dev/v1alpha1", "SlurmCluster")
    assert manifest["metadata"]["name"] == "hpc1"
    assert manifest["spec"]["endpoint"] == "https://login.example:8443"
    assert manifest["spec"]["audience"].startswith("redbox.dev/hpc1/")
    assert manifest["spec"]["audience"] == load_settings(layout.settings).callers.clusters[0].audience
    assert base64.b64decode(manifest["spec"]["caBundle"]) == layout.authority_certificate.read_bytes()


def test_with_pods_resourced_alone_gets_the_role_volumes(layout: Layout) -> None:
    run_init(layout, WITH_PODS)
    operator, resourced = load_settings(layout.settings).mapping.rules
    assert (operator.service_accounts, resourced.service_accounts) == (
        ("redbox-operator",),
        ("redbox-resourced",),
    )
    assert operator.roles == {Role.OPERATOR, Role.READER, Role.REQUEUE}
    assert resourced.roles == {Role.OPERATOR, Role.READER, Role.VOLUMES}
    assert list(check_volumes_role([operator, resourced])) == []


def test_without_pods_nobody_gets_the_role_volumes(layout: Layout) -> None:
    plan = run_init(layout)
    assert all(Role.VOLUMES not in rule.roles for rule in load_settings(layout.settings).mapping.rules)
    assert "pods" not in yaml.safe_load(render_slurm_cluster(plan.manifest))["spec"]


def test_the_manifest_enables_pods_if_they_are_wanted(layout: Layout) -> None:
    plan = run_init(layout, WITH_PODS)
    assert yaml.safe_load(render_slurm_cluster(plan.manifest))["spec"]["pods"] == {"enabled": True}


def test_settings_that_stay_without_the_role_volumes_are_a_note(layout: Layout) -> None:
    run_init(layout)
    notes = "\n".join(run_init(layout, WITH_PODS).notes)
    assert "redbox-resourced of cluster prod needs the role volumes" in notes
    assert "role volumes" not in "\n".join(run_init(layout).notes)


def test_settings_that_have_the_role_volumes_need_no_note(layout: Layout) -> None:
    run_init(layout, WITH_PODS)
    assert "role volumes" not in "\n".join(run_init(layout, WITH_PODS).notes)


def test_an_address_of_ipv6_makes_a_valid_endpoint(layout: Layout) -> None:
    plan = run_init(layout, InitOptions("hpc1", "prod", (), ("fd00::10",), port=9443))
    assert plan.manifest.endpoint == "https://[fd00::10]:9443"


def test_another_cluster_gets_the_same_audience_and_a_note(layout: Layout) -> None:
    first = run_init(layout)
    plan = run_init(layout, dataclasses.replace(OPTIONS, cluster="test"))
    assert plan.manifest.audience == first.manifest.audience
    assert any(note.startswith("add cluster test to callers.clusters") for note in plan.notes)


def test_no_folder_of_a_personal_install_is_writable_for_others_whatever_the_umask_is(tmp_path: Path) -> None:
    """Else they rename what is in it: the folder with the journal, for instance."""
    layout = Layout.personal(tmp_path / "home", tmp_path / "home/run")
    before = os.umask(0)
    try:
        run_init(layout, dataclasses.replace(OPTIONS, transport="self"))
    finally:
        os.umask(before)
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert tmp_path / "home/.local/state" in folders
    assert [folder for folder in folders if folder.stat().st_mode & 0o022] == []


def test_a_personal_install_needs_no_agent_file_and_no_root(tmp_path: Path) -> None:
    layout = Layout.personal(tmp_path, tmp_path / "run")
    plan = run_init(layout, dataclasses.replace(OPTIONS, transport="self"))
    assert any("redbox check --personal" in note for note in plan.notes)
    assert load_settings(layout.settings).agents.transport == "self"
    assert not layout.agent_settings.exists()
    assert all(path.is_relative_to(tmp_path) for path in (layout.settings, layout.mark_secret))


def test_how_to_get_the_keys_names_the_file_to_write(layout: Layout) -> None:
    instructions = key_instructions("prod", layout.cluster_keys("prod"))
    assert "kubectl get --raw /openid/v1/jwks > prod.jwks.json" in instructions
    assert str(layout.configuration / "prod.jwks.json") in instructions


def test_without_the_account_redbox_the_error_names_the_command_that_creates_it(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(apply, "SERVICE_ACCOUNT", "no-such-account-redbox")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with pytest.raises(InstallError, match="useradd --system"):
        run_init(layout)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("ca.crt", b"damaged", "not a certificate in PEM form"),
        ("server.key", b"damaged", "not a private key in PEM form"),
        ("server.key", make_authority("x", NOW).key, "is not the key of"),
    ],
)
def test_what_is_damaged_is_not_overwritten_but_named(
    layout: Layout, name: str, content: bytes, words: str
) -> None:
    run_init(layout)
    (layout.configuration / "tls" / name).write_bytes(content)
    before = contents(layout)
    with pytest.raises(InstallError, match=words):
        run_init(layout)
    assert contents(layout) == before


def test_a_directory_that_cannot_be_written_is_named(layout: Layout) -> None:
    layout.configuration.parent.joinpath("etc").write_text("a file")
    with pytest.raises(InstallError, match="cannot be written"):
        write_plan(plan_init(OPTIONS, read_existing(layout), layout, NOW), layout)
