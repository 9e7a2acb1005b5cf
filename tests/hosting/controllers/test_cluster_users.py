"""Users: the ConfigMap that pods mount, its projection into them, and the Jobs that make homes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redbox_hosting.api import names
from redbox_hosting.application import HostingOperator
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object
from redbox_kube.runtime.clock import now
from tests.hosting.controllers.controller_bench import (
    SLURM,
    SLURM_PLACE,
    api,
    at,
    change,
    condition,
    eventually,
    operator,
    put_slurmctld_pod,
)
from tests.kube.fakes import FakeApiServer

__all__ = ["api", "operator"]
ALICE, BOB = "alice:x:2001:2001::/home/alice:/bin/sh\n", "bob:x:2002:2002::/home/bob:/bin/sh\n"
LOW = "low:x:12:12::/home/low:/bin/sh\n"
USERS: Object = {"users": {"configMapRef": {"name": "people"}}}
HOMES: Object = {**USERS, "homes": {"claimName": "homes"}}
MOUNTED = at(kinds.CONFIG_MAP, "slurm-users")


def put_people(api: FakeApiServer, *lines: str, **more: str) -> None:
    api.put(at(kinds.CONFIG_MAP, "people"), data={"passwd": "".join(lines), **more})


def put_claim(api: FakeApiServer, *modes: str) -> None:
    api.put(at(kinds.PERSISTENT_VOLUME_CLAIM, "homes"), spec={"accessModes": list(modes)})


def mounted(api: FakeApiServer) -> str:
    return str(api.objects.get(MOUNTED, {}).get("data", {}).get("passwd"))


def jobs(api: FakeApiServer) -> list[Object]:
    return api.of_kind("Job")


def end(api: FakeApiServer, how: str, message: str, *, at_time: str = "2026-01-01T00:00:00Z") -> None:
    """As Kubernetes ends a Job, with its pod."""
    (job,) = jobs(api)
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    labels = {names.LABEL_ROLE: "homes", names.LABEL_CLUSTER: "slurm"}
    ended = {"name": "homes", "state": {"terminated": {"message": message}}}
    api.put(
        at(kinds.POD, f"{name}-x"),
        metadata={"labels": labels, "ownerReferences": [reference]},
        status={"containerStatuses": [ended]},
    )
    done = {"type": how, "status": "True", "lastTransitionTime": at_time}
    api.put(at(kinds.JOB, name), {**job, "status": {"conditions": [done]}})


async def test_pods_get_the_good_lines_and_a_condition_names_the_others(api: FakeApiServer) -> None:
    put_people(api, ALICE, LOW, group="staff2:x:3000:alice\n")
    api.put(SLURM, spec={"redbox": USERS})
    await eventually(lambda: mounted(api) == ALICE)
    await eventually(lambda: condition(api, "UsersValid").get("status") == "False")
    assert condition(api, "UsersValid")["message"] == "passwd line 2: the uid 12 is below 500"
    assert condition(api, "Users")["status"] == "True"
    put_people(api, ALICE, BOB)
    await eventually(lambda: mounted(api) == ALICE + BOB)
    await eventually(lambda: condition(api, "UsersValid")["status"] == "True")


async def test_without_a_list_of_users_a_condition_says_who_sees_to_the_homes(api: FakeApiServer) -> None:
    put_claim(api, "ReadWriteMany")
    api.put(SLURM, spec={"redbox": {"homes": {"claimName": "homes"}}})
    await eventually(lambda: condition(api, "HomesValid").get("reason") == "NotMadeHere")
    assert "each home its user's with mode 0700" in condition(api, "HomesValid")["message"]
    assert jobs(api) == []


async def test_a_change_is_projected_into_all_pods_and_replaces_none(api: FakeApiServer) -> None:
    for role in ("slurmd", "login", "slurmdbd", "control"):
        labels = {names.LABEL_ROLE: role, names.LABEL_CLUSTER: "slurm"}
        api.put(at(kinds.POD, f"{role}-0"), metadata={"labels": labels})
    put_slurmctld_pod(api)
    put_people(api, ALICE)
    api.put(SLURM, spec={"redbox": USERS})

    def annotated() -> set[str]:
        digest = api.objects.get(MOUNTED, {"metadata": {}})["metadata"].get("annotations", {})
        wanted = digest.get(names.ANNOTATION_USERS, "none")
        return {
            pod["metadata"]["name"]
            for pod in api.of_kind("Pod")
            if pod["metadata"].get("annotations", {}).get(names.ANNOTATION_USERS) == wanted
        }

    with_users = {"slurm-controller-0", "slurmd-0", "login-0", "slurmdbd-0"}
    await eventually(lambda: annotated() == with_users)
    template = api.objects[at(kinds.STATEFUL_SET, "slurm-controller")]["spec"]["template"]
    put_people(api, ALICE, BOB)
    await eventually(lambda: mounted(api) == ALICE + BOB and annotated() == with_users)
    assert api.objects[at(kinds.STATEFUL_SET, "slurm-controller")]["spec"]["template"] == template


@pytest.mark.parametrize("data", [None, {"group": "a:x:1000:\n"}], ids=["deleted", "without passwd"])
async def test_users_that_cannot_be_read_are_those_of_before(
    api: FakeApiServer, operator: HostingOperator, data: Object | None
) -> None:
    put_people(api, ALICE)
    put_claim(api, "ReadWriteMany")
    api.put(SLURM, spec={"redbox": HOMES})
    await eventually(lambda: mounted(api) == ALICE and len(jobs(api)) == 1)
    if data is None:
        api.remove(at(kinds.CONFIG_MAP, "people"))
    else:
        api.put(at(kinds.CONFIG_MAP, "people"), data=data)
    operator.controllers[0].queue.add(SLURM_PLACE)
    await eventually(lambda: condition(api, "Users").get("status") == "False")
    assert "ConfigMap people" in condition(api, "Users")["message"]
    assert (mounted(api), len(jobs(api))) == (ALICE, 1)


async def test_a_job_makes_the_homes_and_a_new_user_has_a_new_one(api: FakeApiServer) -> None:
    put_people(api, ALICE)
    put_claim(api, "ReadWriteMany")
    api.put(SLURM, spec={"redbox": HOMES})
    await eventually(lambda: len(jobs(api)) == 1)
    (first,) = jobs(api)
    await eventually(
        lambda: condition(api, "Homes").get("message", "") == f"the Job {first['metadata']['name']}"
    )
    assert "the Job" not in condition(api, "Ready").get("message", "")
    end(api, "Complete", "1 homes made\n/home/alice belongs to the uid 0, and not to 2001")
    await eventually(lambda: condition(api, "Homes")["status"] == "True")
    await eventually(lambda: condition(api, "HomesValid")["status"] == "False")
    assert condition(api, "HomesValid")["message"] == "/home/alice belongs to the uid 0, and not to 2001"
    put_people(api, ALICE, BOB)
    before = first["metadata"]["name"]
    await eventually(lambda: [each["metadata"]["name"] != before for each in jobs(api)] == [True])


async def test_a_job_that_failed_says_why_and_is_made_again(
    api: FakeApiServer, operator: HostingOperator
) -> None:
    put_people(api, ALICE)
    put_claim(api, "ReadWriteMany")
    api.put(SLURM, spec={"redbox": HOMES})
    await eventually(lambda: len(jobs(api)) == 1)
    (first,) = jobs(api)
    end(api, "Failed", "no space", at_time=now().isoformat())
    await eventually(lambda: "no space" in condition(api, "Homes").get("message", ""))
    assert condition(api, "Degraded")["status"] == "True"
    end(api, "Failed", "no space", at_time=(now() - timedelta(minutes=2)).isoformat())
    operator.controllers[0].queue.add(SLURM_PLACE)
    await eventually(lambda: bool(jobs(api)) and jobs(api)[0]["metadata"]["uid"] != first["metadata"]["uid"])


async def test_a_claim_that_cannot_be_shared_is_named_and_stops_nothing(api: FakeApiServer) -> None:
    put_people(api, ALICE, "eve:x:2005:2005::/home/a/eve:/bin/sh\n")
    put_claim(api, "ReadWriteOnce")
    api.put(SLURM, spec={"redbox": HOMES})
    await eventually(lambda: condition(api, "HomesValid").get("status") == "False")
    assert condition(api, "HomesValid")["message"] == (
        "the claim homes is ReadWriteOnce: pods on other machines cannot mount it, so name a claim with "
        "ReadWriteMany; no folder is made for eve, whose home /home/a/eve is not directly in /home"
    )
    await eventually(lambda: len(jobs(api)) == 1)


async def test_a_claim_that_is_not_there_is_waited_for(api: FakeApiServer) -> None:
    put_people(api, ALICE)
    api.put(SLURM, spec={"redbox": HOMES})
    await eventually(lambda: "there is no claim homes" in condition(api, "Homes").get("message", ""))
    assert len(jobs(api)) == 1  # its pod is scheduled when the claim is there
    change(api, {"redbox": USERS})
    await eventually(lambda: not jobs(api))
