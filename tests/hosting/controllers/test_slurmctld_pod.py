"""What is read of slurmctld's pod."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.controllers.clusters.slurmctld_pod import end_of_slurmctld, words_in

ENDED = {"exitCode": 1, "reason": "Error", "message": "slurmctld: fatal: no key"}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


def pod(state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    container = {"name": "slurmctld", "state": state, "lastState": last or {}}
    other = {"name": "sidecar", "state": {"terminated": {"exitCode": 9}}}
    return {"metadata": {"name": "slurm-controller-0"}, "status": {"containerStatuses": [other, container]}}


@pytest.mark.parametrize(
    ("state", "last", "why"),
    [
        ({"terminated": ENDED}, {}, "fatal: no key"),
        (BACK_OFF, {"terminated": ENDED}, "fatal: no key"),
        ({"running": {}}, {"terminated": ENDED}, ""),
        ({"waiting": {"reason": "ContainerCreating"}}, {"terminated": ENDED}, ""),
        ({"terminated": {"exitCode": 0}}, {}, ""),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, {}, "exit status 137 (OOMKilled)"),
        (BACK_OFF, {}, ""),
    ],
)
def test_an_end_is_one_until_slurmctld_is_started_again(
    state: dict[str, Any], last: dict[str, Any], why: str
) -> None:
    assert end_of_slurmctld(pod(state, last)) == why


def test_a_pod_without_a_status_has_not_ended() -> None:
    assert not end_of_slurmctld({"metadata": {}})


def test_the_last_errors_of_a_log_are_its_words() -> None:
    lines = [f"slurmctld: error: {number}" for number in range(5)]
    log = "\n".join([*lines, "slurmctld: debug: x", "[t] fatal: a\x1b[31m\u202e", ""])
    assert words_in(log) == "error: 3; error: 4; fatal: a?[31m?"
    assert len(words_in("fatal: " + "x" * 9000)) == 1024
    assert not words_in("slurmctld: started")
