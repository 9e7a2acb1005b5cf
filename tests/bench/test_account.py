"""How the account is made of what was read."""

from __future__ import annotations

import pytest

from redbox_bed.core.plan import Role
from tests.bench.account import rpcs_of, writes_of
from tests.bench.processor_time import ProcessorTime, ProcessTime, name_of, spent

SDIAG = """\
Remote Procedure Call statistics by message type
\tREQUEST_JOB_INFO                        ( 2003) count:7      ave_time:100    total_time:700
Remote Procedure Call statistics by user
\troot            (       0) count:40     ave_time:100    total_time:4000
\talice           (    2001) count:2      ave_time:100    total_time:200
"""
METRICS = """\
apiserver_request_total{code="201",resource="slurmjobs",subresource="",verb="POST"} 3
apiserver_request_total{code="200",resource="slurmjobs",subresource="status",verb="APPLY"} 4
apiserver_request_total{code="200",resource="pods",subresource="",verb="WATCH"} 50
apiserver_request_total{code="201",resource="subjectaccessreviews",subresource="",verb="POST"} 60
apiserver_request_total{code="201",resource="serviceaccounts",subresource="token",verb="POST"} 70
apiserver_request_duration_seconds_count{resource="pods",verb="POST"} 80
"""
ROLES = {"login": Role.LOGIN, "k1": Role.NODE}


@pytest.mark.parametrize(
    ("comm", "command", "name"),
    [
        ("redbox", "/opt/redbox/bin/python\0/opt/redbox/bin/redbox\0serve\0--config\0x\0", "redbox"),
        ("redbox", "/opt/redbox/bin/python\0/opt/redbox/bin/redbox\0check\0", None),
        ("agent", "/usr/bin/python3\0-I\0/usr/libexec/redbox/agent\0", "agent"),
        ("sudo", "/usr/bin/sudo\0-n\0-u\0alice\0--\0/usr/libexec/redbox/agent\0", None),
        ("python3", "python3\0-m\0redbox_operator\0run\0", "operator"),
        ("kube-apiserver", "/opt/bed/kube-apiserver\0", "apiserver"),
        ("munged", "/usr/sbin/munged\0", None),
    ],
)
def test_a_process_is_named_by_what_it_runs(comm: str, command: str, name: str | None) -> None:
    assert name_of(comm, command) == name


def test_rpcs_are_counted_by_user_and_once() -> None:
    assert rpcs_of(SDIAG) == 42


def test_reviews_tokens_and_watches_are_no_writes() -> None:
    assert writes_of(METRICS) == 7


def test_what_no_process_claims_is_the_rest_of_its_host() -> None:
    redbox, agent = ("login", "redbox", 10, 1), ("login", "agent", 11, 5)
    before = ProcessorTime({redbox: ProcessTime(100, 10)}, {"login": 1000}, {"login": 0})
    after = ProcessorTime(
        {redbox: ProcessTime(130, 15), agent: ProcessTime(20, 7)}, {"login": 1070}, {"login": 0}
    )
    used = spent(before, after, ROLES)
    assert (used["redbox"], used["squeue"], used["agent"], used["sbatch"]) == (30, 5, 20, 7)
    assert (used["login-rest"], used["all"]) == (8, 70)


def test_companions_are_what_pods_used_beyond_the_controllers() -> None:
    operator, kubelet = ("k1", "operator", 20, 1), ("k1", "kubelet", 21, 1)
    before = ProcessorTime(
        {operator: ProcessTime(50, 0), kubelet: ProcessTime(500, 0)}, {"k1": 2000}, {"k1": 300}
    )
    after = ProcessorTime(
        {operator: ProcessTime(60, 0), kubelet: ProcessTime(540, 9)}, {"k1": 2200}, {"k1": 410}
    )
    used = spent(before, after, ROLES)
    assert (used["operator"], used["pods"], used["kubelet"], used["containerd"]) == (10, 100, 40, 50)


def test_a_process_that_took_the_pid_of_another_is_counted_from_its_start() -> None:
    before = ProcessorTime({("login", "agent", 11, 5): ProcessTime(90, 0)}, {"login": 100}, {"login": 0})
    after = ProcessorTime({("login", "agent", 11, 8): ProcessTime(4, 0)}, {"login": 104}, {"login": 0})
    assert spent(before, after, ROLES)["agent"] == 4
