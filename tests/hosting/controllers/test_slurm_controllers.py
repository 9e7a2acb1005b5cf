"""A Controller at the API server of the tests: what is made, and what its status says."""

from __future__ import annotations

import base64
import json

import pytest

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.application import HostingOperator
from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.owned import MANAGED_BY
from tests.hosting.controllers.controller_bench import (
    SLURM,
    SLURM_PLACE,
    api,
    at,
    change,
    condition,
    crashed,
    digest_of,
    eventually,
    image_of,
    operator,
    put_slurmctld_pod,
    roll_out,
)
from tests.kube.fakes import FakeApiServer

__all__ = ["api", "operator"]
REFERENCE = {"apiVersion": names.CONTROLLERS.api_version, "kind": "Controller", "name": "slurm", "uid": "1"}
OWNED = {"labels": {MANAGED_BY: "test"}, "ownerReferences": [REFERENCE]}


async def test_a_controller_brings_up_its_objects_and_waits_for_them(api: FakeApiServer) -> None:
    api.put(SLURM, spec={})
    await eventually(lambda: at(kinds.STATEFUL_SET, "slurm-controller") in api.objects)
    assert at(kinds.DEPLOYMENT, "slurm-control") in api.objects
    assert set(api.names("Secret")) == {
        "slurm-authority",
        "slurm-control-tls",
        "slurm-controller-tls",
        "slurm-keys",
    }
    mounted = api.objects[at(kinds.CONFIG_MAP, "slurm-config")]
    digest = mounted["metadata"]["annotations"][names.ANNOTATION_CONFIG_HASH]
    assert f"Licenses=redbox-config-{digest}:1" in mounted["data"]["slurm.conf"]
    record = api.objects[at(kinds.CONFIG_MAP, f"slurm-config-{digest}")]
    assert record["immutable"] is True
    await eventually(lambda: condition(api, "Ready").get("status") == "False")
    assert "slurm-controller to be ready" in condition(api, "Ready")["message"]
    assert condition(api, "Degraded")["status"] == "False"
    assert condition(api, "Progressing")["status"] == "True"


async def test_a_forged_record_of_what_runs_adds_no_partition(api: FakeApiServer) -> None:
    digest = "f" * 32
    conf = f"PartitionName=evil Nodes=ALL State=UP\nLicenses=redbox-config-{digest}:1\n"
    labels = {MANAGED_BY: api.client.field_manager}
    owner = SlurmController.model_validate({"metadata": {"name": "slurm", "uid": "1"}, "spec": {}})
    references = [owner.owner_reference(names.CONTROLLERS)]
    forged = at(kinds.CONFIG_MAP, f"slurm-config-{digest}")
    api.put(forged, data={"slurm.conf": conf}, metadata={"labels": labels, "ownerReferences": references})
    api.put(SLURM, metadata={"uid": "1"}, spec={}, status={"configHash": digest})
    mounted = at(kinds.CONFIG_MAP, "slurm-config")
    await eventually(lambda: mounted in api.objects)
    assert "evil" not in api.objects[mounted]["data"]["slurm.conf"]


async def test_a_controller_outlives_its_node_sets(api: FakeApiServer) -> None:
    node_set = ResourcePath(names.NODE_SETS, "cpu", "hpc")
    api.put(node_set, spec={"controllerRef": {"name": "slurm"}, "replicas": 0})
    api.put(SLURM, spec={})
    await eventually(lambda: api.objects[SLURM]["metadata"].get("finalizers") == [names.FINALIZER_NODE_SETS])
    metadata = {**api.objects[SLURM]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    api.put(SLURM, metadata=metadata, spec={})
    await eventually(lambda: "deletion of its NodeSets: cpu" in condition(api, "Ready").get("message", ""))
    assert api.objects[SLURM]["metadata"]["finalizers"]
    api.remove(node_set)
    await eventually(lambda: not api.objects.get(SLURM, {"metadata": {}})["metadata"].get("finalizers"))


async def test_a_controller_whose_image_names_no_release_is_deleted_after_its_node_sets(
    api: FakeApiServer, operator: HostingOperator
) -> None:
    node_set = ResourcePath(names.NODE_SETS, "cpu", "hpc")
    api.put(node_set, spec={"controllerRef": {"name": "slurm"}, "replicas": 0})
    api.put(at(kinds.SERVICE, "slurm-control"), spec={"clusterIP": "127.0.0.1"}, metadata=OWNED)
    api.put(SLURM, metadata={"uid": "1"}, spec={"slurmctld": {"image": "slurm:latest"}})
    await eventually(lambda: "has no tag that begins with" in condition(api, "Image").get("message", ""))
    assert condition(api, "Ready")["message"].count("has no tag") == 1
    assert condition(api, "Network")["reason"] == condition(api, "Daemons")["reason"] == "Blocked"
    await eventually(lambda: SLURM_PLACE in operator.context.connections._clients)  # drains its nodes
    metadata = {**api.objects[SLURM]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    api.put(SLURM, {**api.objects[SLURM], "metadata": metadata})
    await eventually(lambda: "deletion of its NodeSets: cpu" in condition(api, "NodeSets").get("message", ""))
    api.remove(node_set)
    await eventually(lambda: not api.objects.get(SLURM, {"metadata": {}})["metadata"].get("finalizers"))


async def test_keys_of_a_cluster_that_ran_are_not_made_anew(api: FakeApiServer) -> None:
    ran = {"spec": {}, "status": {"configHash": "0123456789ab"}}
    api.put(SLURM, ran)
    await eventually(
        lambda: "Secret slurm-keys is gone: restore it" in condition(api, "Keys").get("message", "")
    )
    assert at(kinds.SECRET, "slurm-keys") not in api.objects


async def test_a_node_set_that_cannot_be_read_keeps_its_partition(api: FakeApiServer) -> None:
    node_set = ResourcePath(names.NODE_SETS, "cpu", "hpc")
    api.put(node_set, spec={"controllerRef": {"name": "slurm"}, "scalingMode": "OfLater"})
    api.put(SLURM, spec={})
    await eventually(
        lambda: "NodeSet cpu cannot be read" in condition(api, "Configuration").get("message", "")
    )
    metadata = {**api.objects[SLURM]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    api.put(SLURM, metadata=metadata, spec={})
    await eventually(lambda: "deletion of its NodeSets: cpu" in condition(api, "NodeSets").get("message", ""))
    assert api.objects[SLURM]["metadata"]["finalizers"]


async def test_keys_are_made_once(api: FakeApiServer) -> None:
    api.put(SLURM, spec={})
    await eventually(lambda: at(kinds.STATEFUL_SET, "slurm-controller") in api.objects)
    keys = api.objects[at(kinds.SECRET, "slurm-keys")]["data"]
    (own,) = json.loads(base64.b64decode(keys["slurm.jwks"]))["keys"]
    assert own["use"] == "default"
    same = {"uid": api.objects[SLURM]["metadata"]["uid"], "generation": 2}
    api.put(SLURM, metadata=same, spec={"extraConf": "KillWait=7"})
    await eventually(
        lambda: "KillWait=7" in api.objects[at(kinds.CONFIG_MAP, "slurm-config")]["data"]["slurm.conf"]
    )
    assert api.objects[at(kinds.SECRET, "slurm-keys")]["data"] == keys


async def test_a_new_image_replaces_slurmctld_and_then_control(api: FakeApiServer) -> None:
    slurmctld, control = at(kinds.STATEFUL_SET, "slurm-controller"), at(kinds.DEPLOYMENT, "slurm-control")
    api.put(SLURM, spec={})
    await eventually(lambda: control in api.objects)
    roll_out(api, kinds.STATEFUL_SET, kinds.DEPLOYMENT)
    await eventually(lambda: "an answer of Slurm" in condition(api, "Ready").get("message", ""))
    newer = "registry.example.org/redbox-slurm:26.05.1"
    api.put(slurmctld, {**api.objects[slurmctld], "status": {}})
    change(api, {"slurmctld": {"image": newer}})
    await eventually(lambda: image_of(api, slurmctld) == newer)
    await eventually(lambda: "slurm-controller to be ready" in condition(api, "Ready")["message"])
    assert image_of(api, control) != newer
    roll_out(api, kinds.STATEFUL_SET)
    await eventually(lambda: image_of(api, control) == newer)


@pytest.mark.parametrize(
    ("field", "file"), [("configFileRefs", "mpi.conf"), ("prologScriptRefs", "prolog.sh")]
)
async def test_a_users_config_map_is_read_again_when_it_changes(
    api: FakeApiServer, field: str, file: str
) -> None:
    theirs, mounted = at(kinds.CONFIG_MAP, "theirs"), at(kinds.CONFIG_MAP, "slurm-config")
    api.put(SLURM, spec={field: [{"name": "theirs"}]})
    await eventually(lambda: "there is no ConfigMap theirs" in condition(api, "Ready").get("message", ""))
    for text in ("# one\n", "# two\n"):
        api.put(theirs, data={file: text})
        await eventually(lambda: mounted in api.objects)
        await eventually(lambda text=text: api.objects[mounted]["data"].get(file) == text)  # type: ignore[misc]


async def test_a_changed_configuration_changes_no_template(api: FakeApiServer) -> None:
    api.put(SLURM, spec={})
    await eventually(lambda: at(kinds.DEPLOYMENT, "slurm-control") in api.objects)
    daemons = (at(kinds.STATEFUL_SET, "slurm-controller"), at(kinds.DEPLOYMENT, "slurm-control"))
    before = [api.objects[where]["spec"]["template"] for where in daemons]
    roll_out(api, kinds.STATEFUL_SET, kinds.DEPLOYMENT)
    change(api, {"extraConf": "KillWait=7"})
    mounted = at(kinds.CONFIG_MAP, "slurm-config")
    await eventually(lambda: "KillWait=7" in api.objects[mounted]["data"]["slurm.conf"])
    await eventually(lambda: condition(api, "Slurm").get("observedGeneration") == 2)
    assert [api.objects[where]["spec"]["template"] for where in daemons] == before


async def test_the_kubelet_is_asked_for_each_configuration(api: FakeApiServer) -> None:
    api.put(SLURM, spec={})
    mounted = at(kinds.CONFIG_MAP, "slurm-config")
    await eventually(lambda: mounted in api.objects)
    pod = put_slurmctld_pod(api)
    await eventually(lambda: digest_of(api, pod) == digest_of(api, mounted))
    before = digest_of(api, pod)
    change(api, {"extraConf": "KillWait=7"})
    await eventually(lambda: digest_of(api, pod) == digest_of(api, mounted) != before)


async def test_slurmctlds_own_words_are_in_the_condition_and_a_repair_starts_it_immediately(
    api: FakeApiServer,
) -> None:
    api.put(SLURM, spec={"extraConf": "SelectTypeParameters=NOSUCH"})
    mounted = at(kinds.CONFIG_MAP, "slurm-config")
    await eventually(lambda: mounted in api.objects)
    pod = put_slurmctld_pod(api)
    await eventually(lambda: digest_of(api, pod) == digest_of(api, mounted))
    log = "redbox-slurmpod: started\n[2026-01-01T00:00:00.000] fatal: Bad SelectTypeParameters: NOSUCH\n"
    api.put(pod, {**api.objects[pod], "status": crashed(log)})
    await eventually(lambda: condition(api, "Degraded").get("status") == "True")
    assert condition(api, "Daemons")["message"] == (
        "slurmctld does not start: fatal: Bad SelectTypeParameters: NOSUCH"
    )
    assert condition(api, "Ready")["status"] == "False"
    change(api, {"extraConf": "SelectTypeParameters=CR_Core"})
    await eventually(lambda: pod not in api.objects)


async def test_the_end_of_a_pod_that_is_replaced_is_no_failure(api: FakeApiServer) -> None:
    api.put(SLURM, spec={})
    await eventually(lambda: at(kinds.CONFIG_MAP, "slurm-config") in api.objects)
    put_slurmctld_pod(api, ends=True, **crashed("fatal: killed"))
    change(api, {"extraConf": "KillWait=7"})
    await eventually(lambda: condition(api, "Daemons").get("observedGeneration") == 2)
    assert condition(api, "Degraded")["status"] == "False"


@pytest.mark.parametrize(
    ("log", "is_put_back"), [("fatal: Bad SelectTypeParameters\n", True), ("killed in the middle\n", False)]
)
async def test_a_slurmctld_that_cannot_start_gets_back_what_it_ran(
    api: FakeApiServer, log: str, *, is_put_back: bool
) -> None:
    api.put(SLURM, spec={})
    mounted = at(kinds.CONFIG_MAP, "slurm-config")
    await eventually(lambda: mounted in api.objects)
    good = digest_of(api, mounted)
    pod = put_slurmctld_pod(api)
    untried = {"extraConf": "SelectTypeParameters=NOSUCH", "redbox": {"trial": False}}
    change(api, untried, configHash=good)
    await eventually(lambda: digest_of(api, pod) == digest_of(api, mounted) != good)
    api.put(pod, {**api.objects[pod], "status": crashed(log)})
    await eventually(lambda: "does not start" in condition(api, "Daemons").get("message", ""))
    if is_put_back:
        await eventually(lambda: digest_of(api, mounted) == good)
        await eventually(lambda: pod not in api.objects)
        await eventually(lambda: "NOSUCH" not in api.objects[mounted]["data"]["slurm.conf"])
        await eventually(lambda: "fatal: Bad Select" in condition(api, "Configuration")["message"])
    else:
        tried = at(kinds.CONFIG_MAP, f"slurm-config-{digest_of(api, mounted)}")
        assert names.ANNOTATION_REFUSED not in api.objects[tried]["metadata"]["annotations"]


async def test_why_slurmctlds_pod_does_not_start_is_in_the_condition(api: FakeApiServer) -> None:
    api.put(SLURM, spec={})
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    put_slurmctld_pod(api, conditions=[unscheduled])
    await eventually(lambda: "Unschedulable: no room" in condition(api, "Ready").get("message", ""))


async def test_a_deleted_controllers_slurm_is_asked_no_more(
    api: FakeApiServer, operator: HostingOperator
) -> None:
    connections = operator.context.connections
    api.put(SLURM, spec={})
    await eventually(lambda: at(kinds.SERVICE, "slurm-control") in api.objects)
    service = api.objects[at(kinds.SERVICE, "slurm-control")]
    api.put(
        at(kinds.SERVICE, "slurm-control"), {**service, "spec": {**service["spec"], "clusterIP": "127.0.0.1"}}
    )
    await eventually(lambda: SLURM_PLACE in connections._clients)
    api.remove(SLURM)
    await eventually(lambda: SLURM_PLACE not in connections._clients)
    with pytest.raises(SlurmUnknown, match="its Controller was deleted"):
        connections.slurm_of(*SLURM_PLACE)


async def test_an_older_release_never_reads_the_state_of_a_newer_one(api: FakeApiServer) -> None:
    api.put(SLURM, spec={})
    slurmctld = at(kinds.STATEFUL_SET, "slurm-controller")
    await eventually(lambda: bool(condition(api, "Ready")))
    change(api, {"slurmctld": {"image": "slurm:24.11"}}, version="26.05.2")
    await eventually(lambda: "cannot go back to 24.11" in condition(api, "Daemons").get("message", ""))
    assert image_of(api, slurmctld).endswith("26.05")


async def test_a_line_that_loads_code_is_named_and_nothing_is_started(api: FakeApiServer) -> None:
    api.put(SLURM, spec={"extraConf": "JobSubmitPlugins=lua"})
    await eventually(lambda: condition(api, "Degraded").get("status") == "True")
    assert "JobSubmitPlugins is refused" in condition(api, "Configuration")["message"]
    assert condition(api, "Ready")["message"].count("JobSubmitPlugins is refused") == 1
    assert at(kinds.STATEFUL_SET, "slurm-controller") not in api.objects


async def test_a_field_that_is_not_built_is_named_while_the_cluster_runs(api: FakeApiServer) -> None:
    api.put(SLURM, spec={"ha": {"enabled": True}})
    await eventually(lambda: condition(api, "Degraded").get("status") == "True")
    assert "spec.ha is not built" in condition(api, "Configuration")["message"]
    await eventually(lambda: at(kinds.STATEFUL_SET, "slurm-controller") in api.objects)


async def test_a_secret_of_somebody_else_is_never_taken(api: FakeApiServer) -> None:
    theirs = {"data": {"slurm.jwks": "dGhlaXJz"}}
    api.put(at(kinds.SECRET, "slurm-keys"), **theirs)
    api.put(SLURM, spec={})
    await eventually(lambda: condition(api, "Keys").get("status") == "False")
    assert "does not belong" in condition(api, "Keys")["message"]
    assert at(kinds.STATEFUL_SET, "slurm-controller") not in api.objects


async def test_what_is_beyond_the_profile_plain_is_refused_by_name(api: FakeApiServer) -> None:
    slurmctld = at(kinds.STATEFUL_SET, "slurm-controller")
    spec = {"template": {"spec": {"hostNetwork": True}}}
    api.put(SLURM, spec=spec)
    refused = "Plain does not allow hostNetwork"
    await eventually(lambda: refused in condition(api, "Degraded").get("message", ""))
    assert slurmctld not in api.objects
    change(api, {**spec, "redbox": {"profile": "Privileged"}})
    await eventually(lambda: slurmctld in api.objects)
