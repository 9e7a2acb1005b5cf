"""What Slinky's own tests assert, restated: which of ours says it, and that its manifests are taken.

Its end-to-end tests are kubectl commands against its chart's cluster; of its unit tests those that state
behaviour. A row without a test says why.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.build.pods.network import workers_service
from redbox_hosting.build.pods.worker import WorkerPlan, worker_pod
from redbox_kube.api import kinds
from tests.hosting.controllers.access_bench import AccessBench, at, bench
from tests.hosting.controllers.test_hosted_examples import SCHEMAS, pruned
from tests.hosting.factories import cell, node_set

ROOT = Path(__file__).parents[1]
CLUSTERS, EXAMPLES = "e2e/hosting/test_clusters.py", "e2e/hosting/test_examples.py"
SETS, REMOVAL = "hosting/controllers/test_node_sets.py", "hosting/controllers/test_node_set_removal.py"
UPDATES, WANTED = "hosting/controllers/test_node_set_updates.py", "hosting/nodeset/test_wanted.py"
SCALING, KINDS = "hosting/nodeset/test_scaling.py", "e2e/hosting/test_kinds.py"
RESTATED: dict[str, list[str] | str] = {
    # end to end
    "controller and restapi are ready": [f"{EXAMPLES}::test_the_commands_of_the_page_run_a_job"],
    "what each object makes is owned by it": ["hosting/test_slinky.py::test_all_is_owned_by_its_object"],
    "the login pods are ready": ["e2e/hosting/test_logins.py::test_a_user_submits_from_each_login_pod"],
    "slurmctld answers to a worker, and to itself": [f"{CLUSTERS}::test_a_job_runs_on_all_nodes"],
    "srun hostname is the node's name": [
        f"{CLUSTERS}::test_a_job_runs_on_all_nodes",
        f"{EXAMPLES}::test_a_job_of_a_user_is_accounted_and_leaves_nothing",
    ],
    "a node's address is a name that all pods resolve": [
        "hosting/test_slinky.py::test_a_worker_has_a_name_that_all_pods_resolve"
    ],
    "nodes become idle": [
        f"{EXAMPLES}::test_the_commands_of_the_page_run_a_job",
        f"{SETS}::test_workers_are_born_protected_and_idle_ones_are_available",
    ],
    "one worker, two, and one again": [
        f"{CLUSTERS}::test_a_scale_in_waits_for_the_job",
        f"{SETS}::test_idle_workers_go_from_the_highest_and_their_records_with_them",
    ],
    "a new jwt key is used": [
        "hosting/controllers/test_tokens.py::test_a_new_key_of_the_cluster_signs_all_tokens_again"
    ],
    "slurmrestd's plugins are those of the accounting or none": [
        "hosting/build/test_pods.py::test_slurmrestd_serves_an_accounting_only_where_there_is_one",
        "hosting/controllers/test_access.py::test_slurmrestd_serves_accounting_once_slurmctld_has_it",
    ],
    "sacctmgr has the cluster, an account and users": [
        f"{EXAMPLES}::test_a_job_of_a_user_is_accounted_and_leaves_nothing",
        "hosting/controllers/test_accounting_users.py::test_the_account_default_and_its_users_are_added",
    ],
    "metrics are served": "the pods of 26.05 serve Slurm's own; spec.metrics makes no ServiceMonitor",
    "pyxis": "no image of ours has it: an image of the user may",
    # units
    "processCondemned": [f"{REMOVAL}::test_the_protection_is_there_until_the_gate_has_passed"],
    "a condemned worker with a job stays": [f"{SETS}::test_a_worker_with_a_job_waits_for_its_end"],
    "syncCordon, syncPodUncordon": [
        f"{SETS}::test_a_cordoned_pod_is_drained_and_resumed",
        f"{REMOVAL}::test_the_drain_of_a_machine_ends_after_the_jobs_of_its_workers",
    ],
    "splitUpdatePods": [
        f"{UPDATES}::test_an_image_that_does_not_start_stops_after_one",
        "hosting/controllers/test_worker_plans.py::test_how_many_may_be_missing",
    ],
    "podsShouldBeOnNode": [f"{CLUSTERS}::test_each_selected_kubernetes_node_has_a_worker"],
    "syncSlurmNodeRecords": [
        f"{SCALING}::test_a_record_outlives_its_pod_while_something_needs_it",
        "hosting/controllers/test_node_set_faults.py::test_a_deleted_node_set_leaves_no_record",
    ],
    "sanitizeSlurmReason": [f"{WANTED}::test_a_reason_of_ours_is_one_short_line"],
    "the order in which workers go": [
        f"{SCALING}::test_the_order_of_removal",
        f"{SCALING}::test_of_equal_workers_the_higher_ordinal_and_then_the_newer_goes",
    ],
    "deadlines of pods": [f"{SCALING}::test_a_deadline_is_the_end_of_the_last_job_unless_somebody_set_it"],
    "drain and undrain by slurmrestd": ["hosting/slurm/test_client.py::test_writes"],
    "the states of a node": [
        "hosting/slurm/test_client.py::test_a_node_is_read_with_its_states_and_identity"
    ],
    "slurm.conf of an external slurmctld": [
        "hosting/build/test_slurm_conf.py::test_what_clients_of_an_external_slurmctld_read"
    ],
    "extraConf of a NodeSet": ["hosting/build/test_node_conf.py::test_the_options_of_a_node"],
    "a node's size from its limits": [
        "hosting/build/test_node_conf.py::test_the_size_of_a_node_follows_from_limits"
    ],
    "immutable fields": [f"{KINDS}::test_what_must_not_change_does_not_and_replicas_are_scaled"],
}
CONTAINER = {"image": "a", "env": [{"name": "a", "value": "b"}], "resources": {"limits": {"cpu": "1"}}}
TEMPLATE = {"metadata": {"labels": {}, "annotations": {}}, "spec": {"nodeSelector": {}, "tolerations": []}}
SERVICE = {"metadata": {"labels": {}}, "spec": {"type": "ClusterIP"}, "port": 1, "nodePort": 30000}
KEY = {"name": "a", "key": "b", "optional": False}
KEYS = {"slurmKeyRef": KEY, "jwtKeyRef": KEY, "jwtHs256KeyRef": KEY, "jwksKeyRef": KEY}
AT = {"external": True, "externalConfig": {"host": "a", "port": 1}}
REF = {"name": "a"}
MONITOR = {"enabled": True, "labels": {}, "interval": "1m", "endpoints": [{"path": "/metrics/jobs"}]}
SPECS: dict[str, dict[str, Any]] = {
    "Controller": {
        **(KEYS | AT),
        **dict.fromkeys(("slurmctld", "reconfigure", "logfile"), CONTAINER),
        **{f"{each}ScriptRefs": [REF] for each in ("prolog", "epilog", "prologSlurmctld", "epilogSlurmctld")},
        "clusterName": "a",
        "accountingRef": REF,
        "configFileRefs": [REF],
        "inplaceReconfigure": True,
        "ha": {"enabled": True, "backups": 1},
        "template": TEMPLATE,
        "service": SERVICE,
        "extraConf": "A=1",
        "persistence": {"enabled": True, "existingClaim": "a", "storageClassName": "b", "accessModes": []},
        "metrics": {"enabled": True, "serviceMonitor": MONITOR},
    },
    "NodeSet": {
        "controllerRef": REF,
        "replicas": 1,
        "scalingMode": "StatefulSet",
        "slurmd": CONTAINER,
        "logfile": CONTAINER,
        "template": TEMPLATE,
        "extraConf": "Weight=2",
        "volumeClaimTemplates": [],
        "ssh": {"enabled": True, "extraSshdConfig": "", "sssdConfRef": KEY},
        "partition": {"enabled": True, "config": "State=UP"},
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%"},
            "scheduledUpdate": {"startTime": "2026-01-01T00:00:00Z", "duration": "30m", "flags": []},
        },
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        "revisionHistoryLimit": 0,
        "minReadySeconds": 1,
        "ordinalPadding": 2,
        "pinToNode": False,
        "workloadDisruptionProtection": True,
        "pruneSlurmNodeRecords": "Never",
        "oversubscribeNode": True,
    },
    "LoginSet": {
        "controllerRef": REF,
        "replicas": 1,
        "login": CONTAINER,
        "initconf": CONTAINER,
        "template": TEMPLATE,
        "rootSshAuthorizedKeys": "",
        "extraSshdConfig": "",
        "sssdConfRef": KEY,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        "service": SERVICE,
    },
    "RestApi": {
        "controllerRef": REF,
        "replicas": 1,
        "slurmrestd": CONTAINER,
        "template": TEMPLATE,
        "service": SERVICE,
    },
    "Accounting": {
        **(KEYS | AT),
        "slurmdbd": CONTAINER,
        "template": TEMPLATE,
        "extraConf": "",
        "service": SERVICE,
        "storageConfig": {"host": "a", "port": 1, "database": "b", "username": "c", "passwordKeyRef": KEY},
    },
    "Token": {
        "jwtKeyRef": KEY,
        "jwtHs256KeyRef": KEY,
        "username": "a",
        "lifetime": "15m",
        "refresh": True,
        "secretRef": KEY,
    },
}
"""Every field of Slinky's six kinds."""


@pytest.mark.parametrize("assertion", RESTATED)
def test_each_assertion_has_a_test_that_exists_or_the_reason(assertion: str) -> None:
    where = RESTATED[assertion]
    for each in [] if isinstance(where, str) else where:
        file, _, name = each.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), each
    assert where


@pytest.mark.parametrize("kind", SPECS)
def test_no_field_of_a_manifest_is_lost(kind: str) -> None:
    assert pruned(SPECS[kind], SCHEMAS[kind]["properties"]["spec"]) == []


@pytest.fixture
async def cluster() -> Any:
    async with bench() as made:
        made.put(names.CONTROLLERS, "slurm", accountingRef={"name": "acct"})
        made.put(names.ACCOUNTINGS, "acct", redbox={"database": {"enabled": True}})
        made.put(names.REST_APIS, "api", controllerRef={"name": "slurm"})
        made.register("slurm")
        yield made


@pytest.mark.parametrize(
    ("owner", "name", "owned"),
    [
        (names.CONTROLLERS, "slurm", (kinds.STATEFUL_SET, "slurm-controller")),
        (names.CONTROLLERS, "slurm", (kinds.SERVICE, "slurm-controller")),
        (names.CONTROLLERS, "slurm", (kinds.CONFIG_MAP, "slurm-config")),
        (names.REST_APIS, "api", (kinds.DEPLOYMENT, "api-restapi")),
        (names.REST_APIS, "api", (kinds.SERVICE, "api-restapi")),
        (names.ACCOUNTINGS, "acct", (kinds.STATEFUL_SET, "acct-accounting")),
        (names.ACCOUNTINGS, "acct", (kinds.SERVICE, "acct-accounting")),
    ],
)
async def test_all_is_owned_by_its_object(
    cluster: AccessBench, owner: kinds.Kind, name: str, owned: tuple[kinds.Kind, str]
) -> None:
    await cluster.has(lambda: cluster.is_there(*owned))
    (reference,) = cluster.api.objects[at(*owned)]["metadata"]["ownerReferences"]
    assert reference["uid"] == cluster.api.objects[at(owner, name)]["metadata"]["uid"]
    assert (reference["kind"], reference["controller"]) == (owner.name, True)


def test_a_worker_has_a_name_that_all_pods_resolve() -> None:
    pod, service = worker_pod(cell(), WorkerPlan(node_set(), 0, "rev")), workers_service(cell())
    assert pod["spec"]["hostname"] == pod["metadata"]["name"] == "w-0"
    assert pod["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
