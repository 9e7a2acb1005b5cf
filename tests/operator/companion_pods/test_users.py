"""As whom companions run on Kubernetes' nodes."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from redbox_operator import cli
from redbox_operator.api.constants import PodRole
from redbox_operator.companion_pods.builder import CompanionProgram, companion_pod
from redbox_operator.companion_pods.users import CompanionUsers
from tests.operator.factories import slurm_cluster, slurm_job

CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}


def test_namespaces_have_users_of_their_own_and_keep_them() -> None:
    users = [CompanionUsers().user_of(f"team-{number}") for number in range(2000)]
    assert len(set(users)) == len(users)
    assert min(users) >= 1_000_000_000
    assert max(users) < 1_500_000_000
    assert users == [CompanionUsers().user_of(f"team-{number}") for number in range(2000)]


def test_an_administrator_chooses_the_range() -> None:
    users = {CompanionUsers(66000, 3).user_of(f"team-{number}") for number in range(100)}
    assert users == {66000, 66001, 66002}
    assert CompanionUsers(65532, 1).user_of("any") == 65532


def test_a_range_beyond_the_highest_user_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CompanionUsers(2_147_483_647, 1).user_of("any") == 2_147_483_647
    with pytest.raises(ValueError, match=r"first \+ count - 1 is 2147483648, .* lower first or count"):
        CompanionUsers(2_147_483_647, 2)
    words = ["run", "--image=i", "--namespace=n", "--first-companion-user=2147483647", "--companion-users=2"]
    monkeypatch.setattr(cli, "configure_log", lambda _: None)  # later tests' lines would go to a closed file
    ended = CliRunner().invoke(cli.app, words)
    assert ended.exit_code == 2
    assert "2147483648" in ended.output


def test_all_pods_of_a_job_are_of_their_namespace_s_user_and_so_are_its_results() -> None:
    job = slurm_job(results={"from": ["a"], "volume": CLAIM}, ports=[{"name": "a", "port": 8080}])
    user = CompanionUsers().user_of(job.namespace)
    for role in PodRole:
        cluster = slurm_cluster(delivery="Container" if role is PodRole.JOB else "Virtual")
        context = companion_pod(job, cluster, 1, CompanionProgram("image"), role)["spec"]["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (user, user)
        assert context.get("fsGroup", user) == user
