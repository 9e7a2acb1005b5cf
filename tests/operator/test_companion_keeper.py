"""What a companion is made of, and what it waits for."""

from __future__ import annotations

import pytest

from redbox_kube.objects import Where
from tests.operator.reconciler_stand import Stand

SOURCE = {"configMapKeyRef": {"name": "scripts", "key": "run.sh"}}
SCRIPTS = Where("ConfigMap", "scripts", "farm")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


async def test_a_script_that_is_missing_is_said_and_the_job_goes_on_once_it_is_there(stand: Stand) -> None:
    await stand.apply(batch=None, batchFrom=SOURCE)
    assert stand.conditions["Submitted"] == ("False", "ScriptMissing")
    assert "no ConfigMap scripts" in stand.status["message"]
    stand.api.put(SCRIPTS, {"metadata": {"name": "scripts", "namespace": "farm"}, "data": {"other": "x"}})
    await stand.look()
    assert "no key run.sh in ConfigMap scripts" in stand.status["message"]
    assert stand.pod_names == []
    stand.api.put(SCRIPTS, {"metadata": {"name": "scripts", "namespace": "farm"}, "data": {"run.sh": "x"}})
    await stand.look()
    assert stand.pod_names == ["cow-job"]
