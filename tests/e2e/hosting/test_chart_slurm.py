"""deploy/chart-slurm: from nothing to a job's end as alice, and what becomes of the release after that."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_shared.own_lines import PREFIX
from tests.e2e.harness.chart_slurm import (
    CHART,
    REDBOX,
    RELEASE,
    STORAGE_CLASS,
    ChartSlurm,
    bed_values,
    chart_slurm,
)
from tests.e2e.harness.hosted_slurm import NAMESPACE, hosting
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def chart(bed: Bed, request: pytest.FixtureRequest) -> Iterator[ChartSlurm]:
    with hosting(bed, request.param, database=True) as kubernetes, chart_slurm(bed, kubernetes) as chart:
        yield chart


def test_the_first_job_is_accepted_while_the_cluster_starts_and_runs_as_alice(chart: ChartSlurm) -> None:
    first = yaml.safe_load((CHECKOUT / "examples/first.yaml").read_text())["spec"]
    job = chart.submit(**first)
    log = job.log().splitlines()
    status = job.finishes()
    assert status["phase"] == "Succeeded"
    (greeting, *steps) = (line for line in log if not line.startswith(PREFIX))
    assert greeting.startswith("I am alice, job ")
    assert steps == ["step 1", "step 2", "step 3"]
    assert status["companion"].get("replaced") is None, "made with the CA, so `kubectl logs -f` has all"
    chart.is_ready()


def test_two_users_cannot_read_each_others_files(chart: ChartSlurm) -> None:
    assert chart.run("umask 0; echo 4711 > ~/secret; cat ~/secret") == ("Succeeded", "4711\n")
    phase, log = chart.run("id -un; cat /home/alice/secret", namespace="bob")
    assert phase == "Failed"
    assert "bob" in log.splitlines()  # stdout and stderr are read at once
    assert "4711" not in log
    assert "Permission denied" in log


def test_a_namespace_without_a_user_runs_nothing(chart: ChartSlurm) -> None:
    job = chart.submit("id", namespace="default")
    job.says("Submitted", "Refused")
    assert "no mapping rule matches it" in job.finishes()["message"]
    job.delete()


def test_red_box_has_nothing_to_find_fault_with(chart: ChartSlurm) -> None:
    script = "redbox check --output json; true"
    found = json.loads(
        chart.kubernetes(
            "exec", f"{REDBOX}-0", f"--namespace={NAMESPACE}", "-c", "redbox", "--", "sh", "-c", script
        )
    )
    assert [each for each in found if each["level"] != "note"] == []


def test_what_makes_the_keys_has_no_right_to_the_slurm_cluster(chart: ChartSlurm) -> None:
    """Whoever may create pods there may use its account, and the endpoint decides where tokens are sent."""
    account = f"--as=system:serviceaccount:{NAMESPACE}:{REDBOX}-keys"

    def may(verb: str, what: str, name: str) -> bool:
        asked = (f"--namespace={NAMESPACE}", "auth", "can-i", verb, f"{what}/{name}", account)
        try:
            return chart.kubernetes(*asked).strip() == "yes"
        except BedError:  # can-i ends with 1 where the answer is no
            return False

    assert may("patch", "secrets", REDBOX)
    assert not may("get", "secrets", f"{RELEASE}-keys")
    assert not any(may(verb, "slurmclusters.redbox.dev", RELEASE) for verb in ("get", "patch", "update"))
    published = chart.kubernetes.get("configmap", REDBOX, NAMESPACE)["data"]["ca.crt"]
    spec = chart.kubernetes.get("slurmclusters.redbox.dev", RELEASE)["spec"]
    assert base64.b64decode(spec["caBundle"]).decode() == published


def test_the_certificate_is_renewed_as_the_page_says_and_jobs_run_on(chart: ChartSlurm) -> None:
    before = chart.kubernetes.get("secret", REDBOX, NAMESPACE)["data"]
    uid = chart.kubernetes.get("pod", f"{REDBOX}-0", NAMESPACE)["metadata"]["uid"]
    job = chart.submit("sleep 20; id -un")
    job.starts()
    chart.kubernetes.patch("secret", REDBOX, {"data": {"tls.crt": ""}}, NAMESPACE)
    ours = f"--namespace={NAMESPACE}"
    chart.kubernetes(ours, "create", "job", f"--from=cronjob/{REDBOX}-keys", "renew-certificate")
    chart.kubernetes(ours, "wait", "job/renew-certificate", "--for=condition=Complete", "--timeout=2m")
    after = chart.kubernetes.get("secret", REDBOX, NAMESPACE)["data"]
    assert {name for name in before if before[name] != after[name]} == {"tls.crt", "tls.key"}
    assert (job.finishes()["phase"], job.log()) == ("Succeeded", "alice\n")
    chart.is_ready()
    assert chart.kubernetes.get("pod", f"{REDBOX}-0", NAMESPACE)["metadata"]["uid"] == uid
    chart.kubernetes.delete("job", "renew-certificate", namespace=NAMESPACE)


def test_what_is_missing_is_named_before_anything_is_made(chart: ChartSlurm) -> None:
    values = json.dumps(bed_values(chart.kubernetes))
    install = ("install", "other", str(CHART), "--values=-")
    with pytest.raises(BedError, match="serves hpc and not this namespace: run helm upgrade red-box"):
        chart.helm(*install, "--namespace=default", stdin=values)
    with pytest.raises(BedError, match=r"does not run in namespace elsewhere: set operator\.namespace"):
        chart.helm(*install, "--set=operator.namespace=elsewhere", stdin=values)
    set_default(chart, "false")
    try:
        with pytest.raises(BedError, match=r"no default StorageClass: set homes\.storageClass, controller"):
            chart.helm(*install, stdin=values)
    finally:
        set_default(chart, "true")
    assert [each["name"] for each in json.loads(chart.helm("list", "--output=json"))] == [RELEASE]


def set_default(chart: ChartSlurm, value: str) -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": value}
    chart.kubernetes.patch("storageclass", STORAGE_CLASS, {"metadata": {"annotations": annotations}})


def test_manifests_that_are_applied_twice_change_nothing(chart: ChartSlurm) -> None:
    """As Argo CD does. There is no key among them."""
    values = bed_values(chart.kubernetes)
    manifests = chart.manifests(values)
    assert manifests == chart.manifests(values)
    assert "Secret" not in {body["kind"] for body in yaml.safe_load_all(manifests)}
    assert "PRIVATE KEY" not in manifests
    before = objects(chart, manifests)
    secret = chart.kubernetes.get("secret", REDBOX, NAMESPACE)
    for _ in range(2):
        chart.kubernetes(f"--namespace={NAMESPACE}", "apply", "--filename=-", stdin=manifests)
        assert objects(chart, manifests) == before
    assert chart.kubernetes.get("secret", REDBOX, NAMESPACE) == secret
    chart.is_ready()


def objects(chart: ChartSlurm, manifests: str) -> dict[tuple[str, str], object]:
    """The specs of all of them."""
    found: dict[tuple[str, str], object] = {}
    for body in yaml.safe_load_all(manifests):
        kind, name = body["kind"], body["metadata"]["name"]
        live = chart.kubernetes.get(kind, name, NAMESPACE)
        found[kind, name] = (live["metadata"]["uid"], live["metadata"].get("generation"), live.get("data"))
    return found


def test_an_upgrade_applies_in_place(chart: ChartSlurm) -> None:
    values = bed_values(chart.kubernetes)
    workers = {name: pod["metadata"]["uid"] for name, pod in chart.slurm.workers().items()}
    job = chart.submit("sleep 20; id -un")
    job.starts()
    values["users"] = [*values["users"], {"name": "carol", "uid": 2003}]
    values["nodeSets"]["cpu"]["replicas"] = 3
    chart.install(values)
    eventually(
        lambda: (
            len(chart.slurm.workers()) == 3 and chart.slurm.status("nodeset", "cpu").get("readyReplicas") == 3
        )
    )
    found = {name: pod["metadata"]["uid"] for name, pod in chart.slurm.workers().items()}
    assert workers.items() <= found.items()
    assert (job.finishes()["phase"], job.log()) == ("Succeeded", "alice\n")
    login = f"{RELEASE}-login-0"
    eventually(
        lambda: "2003" in chart.slurm.run("sh", "-c", "getent passwd carol; true", pod=login), what="carol"
    )
    values["nodeSets"]["cpu"]["replicas"] = 2
    chart.install(values)
    chart.slurm.has_idle(2)


def test_what_is_kept_serves_the_next_release_and_an_uninstall_does_as_told(chart: ChartSlurm) -> None:
    """Last: it is uninstalled."""
    values = bed_values(chart.kubernetes)
    with pytest.raises(BedError, match="NodeSet cpu may have jobs: say what becomes of the workers"):
        chart.helm("uninstall", RELEASE)
    mark = chart.kubernetes.get("secret", REDBOX, NAMESPACE)["data"]["mark.secret"]
    job = chart.submit("sleep 15; echo done > ~/drained")
    job.starts()
    annotations = {"annotations": {"slurm.redbox.dev/uninstall-workers": "Drain"}}
    chart.kubernetes.patch("controllers.slurm.redbox.dev", RELEASE, {"metadata": annotations}, NAMESPACE)
    chart.helm("uninstall", RELEASE, "--wait", "--timeout=4m")
    # The garbage collector comes after Helm has seen the Controller's end.
    eventually(
        lambda: all("deletionTimestamp" in pod["metadata"] for pod in chart.kubernetes.list("pod", NAMESPACE))
    )
    chart.install(values)
    assert chart.run("cat ~/drained ~/secret") == ("Succeeded", "done\n4711\n")
    assert chart.kubernetes.get("secret", REDBOX, NAMESPACE)["data"]["mark.secret"] == mark
    seen = chart.slurm.run(
        "sacct", "--allusers", "--noheader", "--format=JobID%-10", "-X", "--starttime=now-1hour"
    )
    assert len(seen.split()) > 3
