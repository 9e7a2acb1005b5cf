"""A backup of state and database, and the cluster that is made of it after both were lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_examples import EXAMPLES, STORAGE, are_ready, hosted_examples, is_accounted
from tests.e2e.harness.hosted_slurm import NAMESPACE, SLURMCTLD, HostedSlurm, hosting
from tests.e2e.harness.kubernetes import Object
from tests.e2e.harness.volumes import claim_of_all, volume_of
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
BACKUPS, COMMENT = "slurm-backup", "begin-with-it"
CLAIMS = (f"state-{SLURMCTLD}", "data-acct-database-0")
NEW_VOLUMES = [f"{STORAGE}-{each}" for each in ("new-state", "new-data")]
UNTIL_RELEASED = "until [ -e /tmp/go ]; do sleep 0.2; done"


@pytest.fixture(params=["24.11", "26.05"])
def cluster(bed: Bed, request: pytest.FixtureRequest) -> Iterator[tuple[HostedSlurm, list[Object]]]:
    with hosting(bed, request.param, database=True) as kubernetes:
        claim_of_all(bed, NAMESPACE, BACKUPS)
        with hosted_examples(bed, kubernetes) as files:
            bodies = [body for file in files for body in file]
            for body in bodies:
                kubernetes.apply(json.dumps(body))
            slurm = HostedSlurm(kubernetes)
            are_ready(slurm)
            yield slurm, bodies
            with suppress(BedError):  # of a test that failed in the middle
                slurm.run("scancel", "--user=slurm")
        kubernetes.delete("persistentvolume", BACKUPS, *NEW_VOLUMES)


def back_up(slurm: HostedSlurm) -> tuple[str, int]:
    """By the CronJob of the docs: the folder of the backup, and the next job's id."""
    kubernetes = slurm.kubernetes
    images = {
        container["name"]: container["image"]
        for name in (SLURMCTLD, "acct-database-0")
        for container in kubernetes.get("pod", name, NAMESPACE)["spec"]["containers"]
    }
    _, cron = yaml.safe_load_all((EXAMPLES / "backup/cronjob.yaml").read_text())
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod["initContainers"][0]["image"], pod["containers"][0]["image"] = images["mariadb"], images["slurmctld"]
    cron["metadata"]["namespace"] = NAMESPACE
    kubernetes.apply(json.dumps(cron))
    here = f"--namespace={NAMESPACE}"
    kubernetes(here, "create", "job", "now", f"--from=cronjob/{BACKUPS}")
    kubernetes(here, "wait", "job/now", "--for=condition=Complete", "--timeout=100s")
    words = kubernetes(here, "logs", "job/now", "--container=state").split()
    kubernetes.delete("cronjob", BACKUPS, namespace=NAMESPACE)
    kubernetes.delete("job", "now", namespace=NAMESPACE)
    return words[1].rstrip(":").rpartition("/")[2], int(words[-1])


@contextmanager
def another_slurmctld(slurm: HostedSlurm) -> Iterator[None]:
    """Because of what the block does. At its end slurmctld saves all of its state, as every five minutes."""
    before = slurm.kubernetes.get("pod", SLURMCTLD, NAMESPACE)["metadata"]["uid"]
    yield

    def is_back() -> bool:
        pod = slurm.kubernetes.get("pod", SLURMCTLD, NAMESPACE)
        ready = [one["ready"] for one in pod.get("status", {}).get("containerStatuses", [])]
        return ready == [True] and pod["metadata"]["uid"] != before

    eventually(is_back, what="another slurmctld")


def lose(slurm: HostedSlurm) -> None:
    """As docs/administrators/hosted-backup.md says."""
    kubernetes = slurm.kubernetes
    kubernetes.delete("nodesets.slurm.redbox.dev", "cpu", namespace=NAMESPACE, wait=False)
    for worker in slurm.workers():
        forced = {"metadata": {"annotations": {"slurm.redbox.dev/force-delete": "restore"}}}
        kubernetes.patch("pod", worker, forced, NAMESPACE)
    kubernetes.delete("nodesets.slurm.redbox.dev", "cpu", namespace=NAMESPACE)
    kubernetes.delete("controllers.slurm.redbox.dev", "slurm", namespace=NAMESPACE)
    kubernetes.delete("accountings.slurm.redbox.dev", "acct", namespace=NAMESPACE)
    kubernetes.delete("persistentvolumeclaim", *CLAIMS, namespace=NAMESPACE)


def apply(slurm: HostedSlurm, bodies: list[Object], *kinds: str) -> None:
    for body in bodies:
        if body["kind"] in kinds:
            slurm.kubernetes.apply(json.dumps(body))


def accounted_state(slurm: HostedSlurm, job: str) -> str:
    """Empty while slurmdbd is not there."""
    sacct = ("sacct", "--allusers", "--noheader", "--parsable2", "--format=State", f"--jobs={job}", "-X")
    with suppress(BedError):
        return slurm.run(*sacct)
    return ""


def test_a_cluster_is_made_again_of_a_backup(bed: Bed, cluster: tuple[HostedSlurm, list[Object]]) -> None:
    slurm, bodies = cluster
    done = slurm.submit("true")
    slurm.reaches(done, "COMPLETED")
    is_accounted(slurm, done)
    with another_slurmctld(slurm):
        slurm.kubernetes.delete("pod", SLURMCTLD, namespace=NAMESPACE)
    running, held = slurm.submit(UNTIL_RELEASED), slurm.submit("true", "--hold")
    slurm.reaches(running, "RUNNING")
    saved = ("sh", "-c", f"until grep -qaF {COMMENT} /var/spool/slurmctld/job_state; do sleep 0.2; done")
    slurm.run("scontrol", "update", f"JobId={held}", f"Comment={COMMENT}")
    slurm.run(*saved)
    folder, next_id = back_up(slurm)
    assert int(held) <= next_id <= int(held) + 1
    later = slurm.submit("true")
    lose(slurm)

    for volume in NEW_VOLUMES:
        volume_of(bed, volume, storageClassName=STORAGE, capacity={"storage": "16Gi"})
    (controller,) = (body for body in bodies if body["kind"] == "Controller")
    first_id = next_id + 100_000
    source = {"claimName": BACKUPS, "path": folder, "firstJobId": next_id}
    controller["spec"]["redbox"]["restore"] = source
    apply(slurm, bodies, "Controller", "Accounting")
    words = f"firstJobId to {first_id} or more"
    eventually(lambda: words in slurm.condition("controller", "slurm", "Daemons")[1], what="the refusal")
    slurm.change("controller", "slurm", {"redbox": {"restore": {"firstJobId": first_id}}})
    eventually(slurm.is_ready, what="Ready")

    assert slurm.job(held)["Reason"] == "JobHeldUser"
    assert later not in slurm.run("squeue", "--all", "--noheader", "--format=%A").split()
    eventually(lambda: accounted_state(slurm, done) == "COMPLETED", what="the accounting of before")
    apply(slurm, bodies, "NodeSet", "ConfigMap")
    slurm.has_idle(2)
    slurm.run("scontrol", "release", held)
    assert slurm.reaches(held, "COMPLETED")["Restarts"] == "0"
    new = slurm.submit("true")
    assert int(new) >= first_id
    slurm.reaches(new, "COMPLETED")
    is_accounted(slurm, new)
    eventually(lambda: slurm.job(running)["Restarts"] == "1", what="the job that the backup had as running")
    slurm.run("scancel", running)
    with another_slurmctld(slurm):
        slurm.change("controller", "slurm", {"redbox": {"restore": None}})
    are_ready(slurm)
    assert int(slurm.submit("true")) > int(new)
