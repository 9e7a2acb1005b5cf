"""What a runner, Slurm or a red-box says of a pod controls no terminal that shows the pod."""

from __future__ import annotations

import json

from redbox_api.models import Phase
from tests.resourced.pods.factories import died, pod_job, report
from tests.resourced.pods.pod_life_harness import pod_life, until

HOSTILE = "\x1b]0;owned\x07 \u202egnol \x9b2J"


async def test_status_and_events_of_a_pod_are_printable() -> None:
    async with pod_life() as life:
        life.create(restartPolicy="Never")
        await until(lambda: "pod-uid" in life.redbox.jobs)
        event = {"number": 1, "reason": "Failed", "message": HOSTILE, "at": "2026-11-21T13:59:00Z"}
        ended = died(3)
        ended["terminated"]["message"] = f"{HOSTILE}\nsecond"
        reported = report(main=ended, done=True, events=[event])
        life.redbox.change(pod_job(Phase.FAILED, reported, state="NODE_FAIL", message=HOSTILE))
        await until(lambda: life.status.get("phase") == "Failed")
        message = life.status["containerStatuses"][0]["state"]["terminated"]["message"]
        assert message == "?]0;owned? ?gnol ?2J\nsecond"
        assert json.dumps([life.status, life.api.events], ensure_ascii=False).isprintable()
