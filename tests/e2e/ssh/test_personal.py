"""A red-box of one's own: the page is typed by a user with the role `edit` alone, then it is broken."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import asyncssh
import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from tests.e2e.harness.cluster_storm import read_in_the_end
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.personal import (
    ACCOUNT,
    KEY,
    NAME,
    NAMESPACE,
    PersonalUser,
    personal_user,
)
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, is_whole
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(600)
PAGE = (CHECKOUT / "docs/users/personal.md").read_text()
SECTION = re.compile(r"^## \d\. .+?\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JOBS = 16
SEED = 20261124
SCRIPT = "for i in $(seq 1 20); do seq $i 200; sleep 0.1; done"
OUTPUT = "".join(f"{number}\n" for part in range(1, 21) for number in range(part, 201))


@pytest.fixture(scope="module")
def user(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PersonalUser]:
    """With red-box installed, by typing the page; in `mine.yaml` the bed's addresses replace the page's."""
    SlurmJobs.on(bed)
    with personal_user(bed, tmp_path_factory.mktemp("home")) as made:
        for section in SECTION.findall(PAGE)[:2]:
            for language, text in BLOCK.findall(section):
                if language == "yaml":
                    values = merged(yaml.safe_load(text), made.values())
                    (made.folder / "mine.yaml").write_text(yaml.safe_dump(values))
                if language == "sh":
                    made.types(text)
        yield made


def merged(page: dict[str, Any], bed: dict[str, Any]) -> dict[str, Any]:
    return {
        key: merged(page[key], bed[key]) if isinstance(page.get(key), dict) else bed.get(key, page.get(key))
        for key in page.keys() | bed.keys()
    }


def slurm_job(jobs: SlurmJobs, batch: str, **spec: Any) -> Applied:
    return jobs.apply(batch, namespace=NAMESPACE, endpoint=NAME, **spec)


def test_the_first_job_is_typed_and_prints_what_the_page_shows(user: PersonalUser) -> None:
    blocks = BLOCK.findall(SECTION.findall(PAGE)[2])
    typed, shown = ("".join(text for name, text in blocks if name == language) for language in ("sh", ""))
    printed = user.types(typed)
    assert re.sub(r"\d+", "0", shown.strip()) in re.sub(r"\d+", "0", printed)
    user.types("kubectl delete slurmjob first")


def test_it_has_no_right_beyond_its_namespace(user: PersonalUser) -> None:
    """The audience is computed, and no ClusterRole was made for it."""
    endpoint = user.endpoint()
    uid = endpoint["metadata"]["uid"]
    assert endpoint["status"]["audience"] == f"redbox.dev/ns/{NAMESPACE}/{uid}"
    found = json.loads(user.admin("get", "clusterrolebindings,rolebindings", "-A", "--output=json"))
    names = {
        (binding["metadata"]["name"], subject["name"])
        for binding in found["items"]
        for subject in binding.get("subjects", [])
        if subject.get("namespace") == NAMESPACE
    }
    assert names == {("person", "person")}


def test_a_session_leads_into_its_job_over_ssh(user: PersonalUser, jobs: SlurmJobs) -> None:
    job = slurm_job(jobs, "cd /tmp; sleep 600")
    job_id = job.starts()["jobID"]
    enter = f"kubectl exec {job.pod} -- redbox-companion exec --"
    shown = user.types(f"{enter} sh -c 'echo $SLURM_JOB_ID; id -un; pwd'")
    assert shown.split() == [job_id, ACCOUNT, "/tmp"]


@pytest.mark.usefixtures("user")
def test_a_slurmjob_of_another_namespace_cannot_use_it(jobs: SlurmJobs) -> None:
    job = jobs.apply("id -un", namespace="bob", endpoint=NAME)
    job.says("Submitted", "NoSuchEndpoint")
    assert job.get("pod", job.pod) == {}


@pytest.mark.nightly
def test_after_kills_and_a_lost_pod_each_job_has_run_once(user: PersonalUser, jobs: SlurmJobs) -> None:
    chance = random.Random(SEED)
    blows = [user.kill_redbox, user.kill_agents, user.delete_pod, user.kill_agents]
    applied: list[Applied] = []
    for number in range(JOBS):
        applied.append(slurm_job(jobs, SCRIPT, resources={"time": "5"}))
        if number % (JOBS // len(blows)) == chance.randrange(JOBS // len(blows)):
            blows[number // (JOBS // len(blows))]()
    for job in applied:
        # A submit that a kill left unanswered is held for 300 s.
        assert job.reaches("Succeeded", "Failed", "Cancelled", within_s=480)["phase"] == "Succeeded"
        job.has_in_slurm("COMPLETED")
        job.until(lambda status: status.get("companion", {}).get("done"), 200)
        log = read_in_the_end(job.whole_output)
        assert is_whole(log, OUTPUT), f"{job.name}: its log has {len(log)} bytes of {len(OUTPUT)}"


def test_a_login_node_that_is_rebooted_costs_no_job_and_runs_none_twice(
    user: PersonalUser, jobs: SlurmJobs
) -> None:
    name = "rebooted"
    running = slurm_job(jobs, f"until [ -e ~/{name}.end ]; do sleep 0.2; done; echo told")
    running.starts()
    user.power_off_login_node()
    try:
        waiting = slurm_job(jobs, "echo second")
        eventually(lambda: "no connection to" in user.log(), what="a red-box that names what is away")
    finally:
        user.power_on_login_node()
    user.login.run("touch", f"/home/{ACCOUNT}/{name}.end", user=ACCOUNT)
    for job, printed in ((running, "told\n"), (waiting, "second\n")):
        assert job.reaches("Succeeded", "Failed", "Cancelled", within_s=200)["phase"] == "Succeeded"
        job.has_in_slurm("COMPLETED")
        job.until(lambda status: status.get("companion", {}).get("done"), 200)
        assert read_in_the_end(job.whole_output).endswith(printed)
    user.login.run("rm", f"/home/{ACCOUNT}/{name}.end", user=ACCOUNT)


@pytest.mark.nightly
def test_without_a_key_jobs_go_on_and_are_stale_and_a_new_key_is_taken_without_a_restart(
    user: PersonalUser, jobs: SlurmJobs
) -> None:
    name = "goes-on"
    job = slurm_job(jobs, f"until [ -e ~/{name}.end ]; do sleep 0.2; done; echo done")
    job.starts()
    before = user.types("kubectl get pods --selector=app.kubernetes.io/component=redbox-server --output=name")
    good = (user.folder / "red-box.key").read_bytes()
    wrong = asyncssh.generate_private_key("ssh-ed25519").export_private_key()
    put_key(user, wrong)
    becomes_stale(user)
    assert user.condition("Reachable")[0] == "True"
    assert job.status["phase"] == "Running"
    user.login.run("touch", f"/home/{ACCOUNT}/{name}.end", user=ACCOUNT)
    put_key(user, good)
    assert job.reaches("Succeeded", within_s=300)["phase"] == "Succeeded"
    user.login.run("rm", f"/home/{ACCOUNT}/{name}.end", user=ACCOUNT)
    job.has_in_slurm("COMPLETED")
    assert (
        user.types("kubectl get pods --selector=app.kubernetes.io/component=redbox-server --output=name")
        == before
    )


def becomes_stale(user: PersonalUser) -> None:
    """An agent that began just before the kubelet brought the key has logged in with the one before."""
    for tries_left in reversed(range(5)):
        user.kill_agents()
        try:
            eventually(
                lambda: user.condition("Current") == ("False", "Stale"), 50, what="a stale SlurmEndpoint"
            )
        except AssertionError:
            if not tries_left:
                raise
        else:
            return


def put_key(user: PersonalUser, key: bytes, certificate: bytes | None = None) -> None:
    """Replace the Secret as the page says, and have the kubelet bring it into the pod now."""
    (user.folder / "new.key").write_bytes(key)
    more = ""
    if certificate is not None:
        (user.folder / "new.key-cert.pub").write_bytes(certificate)
        more = " --from-file=ssh-certificate=new.key-cert.pub"
    user.types(
        f"kubectl create secret generic {KEY} --type=kubernetes.io/ssh-auth "
        f"--from-file=ssh-privatekey=new.key{more}"
        " --dry-run=client --output=yaml | kubectl apply --filename=-\n"
        f"kubectl annotate --overwrite pod redbox-{NAME}-0 redbox.dev/looked-at={time.time():.0f}"
    )


def test_a_certificate_that_ends_within_a_day_is_a_condition(user: PersonalUser, jobs: SlurmJobs) -> None:
    """The site signs the key for some hours; its CA is a line of authorized_keys here."""
    authority = asyncssh.generate_private_key("ssh-ed25519")
    key = asyncssh.generate_private_key("ssh-ed25519")
    now = int(time.time())
    certificate = authority.generate_user_certificate(
        key, ACCOUNT, principals=[ACCOUNT], valid_after=now - 60, valid_before=now + 7200
    )
    line = f"cert-authority {authority.export_public_key('openssh').decode().strip()} red-box\n"
    user.login.run("sh", "-c", "cat >>~/.ssh/authorized_keys", stdin=line, user=ACCOUNT)
    put_key(user, key.export_private_key(), certificate.export_certificate())
    user.kill_agents()
    eventually(
        lambda: user.condition("CredentialsExpire") == ("True", "WithinADay"), 240, what="the condition"
    )
    user.kill_agents()
    assert slurm_job(jobs, "id -un").finishes()["phase"] == "Succeeded"


def test_when_the_namespace_goes_nothing_keeps_it(user: PersonalUser, jobs: SlurmJobs) -> None:
    """The last test of the file: the red-box is deleted while jobs of its SlurmJobs run."""
    job = slurm_job(jobs, "sleep 600")
    job.starts()
    kubectl: Kubernetes = user.admin
    kubectl("delete", "namespace", NAMESPACE, "--timeout=150s")
    user.login.run("scancel", f"--name={job.name}", user=ACCOUNT)
