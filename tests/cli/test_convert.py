"""Slinky's manifests become ours: a corpus of them, and what is said of each field that differs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_slurm.slinky.conversion import Conversion, convert
from kubectl_slurm.slinky.documents import BadManifest, ManifestDocument, read_documents
from redbox_hosting.api.controller import ControllerSpec, SlurmController
from redbox_hosting.api.daemons import AccountingSpec, LoginSetSpec, RestApiSpec, TokenSpec
from redbox_hosting.api.nodeset import NodeSet, NodeSetSpec
from redbox_hosting.api.unbuilt import unbuilt_fields
from redbox_hosting.build.config.node_conf import node_options, worker_size
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.config.slurm_conf import ClusterInputs, cluster_files
from redbox_hosting.build.config.slurmdbd_conf import DatabaseAddress, slurmdbd_conf
from redbox_hosting.build.pods.login import LoginCell, sshd_set
from redbox_hosting.build.pods.slurmctld import slurmctld_set
from redbox_hosting.build.pods.worker import WorkerPlan, dropped_fields, worker_pod
from redbox_kube.status.models import KubeModel
from tests.cli.harness import PROGRAM
from tests.cli.schema_check import problems_of
from tests.hosting.controllers.test_hosted_examples import SCHEMAS
from tests.hosting.factories import cell
from tests.hosting.test_slinky import SPECS as EVERY_FIELD

FOLDER = Path(__file__).parent / "slinky"
FILES = ("controllers.yaml", "nodesets.yaml", "others.yaml")
MODELS: dict[str, type[KubeModel]] = {
    "Controller": ControllerSpec,
    "NodeSet": NodeSetSpec,
    "LoginSet": LoginSetSpec,
    "RestApi": RestApiSpec,
    "Accounting": AccountingSpec,
    "Token": TokenSpec,
}
NOTED = {
    "Controller former-key-name": ["spec.jwtHs256KeyRef dropped"],
    "Controller from-chart": [
        "spec.reconfigure dropped",
        "spec.logfile dropped",
        "spec.slurmctld.image, imagePullPolicy dropped",
        "spec.slurmctld.args dropped",
    ],
    "Controller settings": [
        "spec.extraConf dropped: SlurmctldParameters",
        "spec.extraConf changed: SlurmdDebug and SlurmctldDebug",
        "spec.extraConf dropped: TopologyPlugin",
        "spec.extraConf dropped: SuspendProgram",
        "spec.extraConf dropped: partition shared: OverSubscribe",
        "spec.extraConf dropped: NodeName",
        "spec.extraConf dropped: broken line",
    ],
    "Controller two-of-them": ["spec.ha dropped", "spec.persistence.existingClaim differs"],
    "Controller measured": ["spec.metrics.serviceMonitor dropped"],
    "Controller scripted": ["spec.configFileRefs not done: remove cgroup.conf"],
    "Controller his-own-account": [
        "spec.slurmctld.securityContext.runAsUser, runAsGroup dropped",
        "spec.template.spec.securityContext.fsGroup dropped",
        "spec.service.spec.externalIPs dropped",
    ],
    "NodeSet least": ["spec.replicas added"],
    "NodeSet from-chart": [
        "spec.logfile dropped",
        "spec.slurmd.image dropped",
        "spec.template.spec.tolerations dropped",
    ],
    "NodeSet gpu": [
        "spec.extraConf dropped: Gres",
        "spec.extraConf dropped: Topology",
        "spec.slurmd.securityContext.privileged dropped",
    ],
    "NodeSet everywhere": ["spec.scalingMode differs"],
    "NodeSet pinned": ["spec.pinToNode dropped"],
    "NodeSet scheduled": ["spec.updateStrategy.type changed", "spec.updateStrategy.scheduledUpdate dropped"],
    "NodeSet entered": ["spec.ssh dropped"],
    "NodeSet with-claims": ["spec.persistentVolumeClaimRetentionPolicy.whenScaled dropped"],
    "NodeSet on-the-host": [
        "spec.slurmd.securityContext.privileged dropped",
        "spec.slurmd.securityContext.capabilities.add dropped: BPF, SYS_ADMIN",
        "spec.template.spec.hostNetwork not done",
        "spec.template.spec.volumes[home].hostPath not done",
    ],
    "NodeSet spread": [
        "spec.template.metadata.annotations[nodeset.slinky.slurm.net/pod-deletion-cost] changed",
        "spec.template.metadata.annotations[topology.slinky.slurm.net/spec] dropped",
        "spec.template.spec.terminationGracePeriodSeconds dropped",
        "spec.template.spec.hostname differs",
        "spec.template.spec.topologySpreadConstraints not done",
    ],
    "NodeSet probed": [
        "spec.slurmd.command dropped",
        "spec.slurmd.lifecycle, livenessProbe, startupProbe dropped",
    ],
    "NodeSet with-sidecar": ["spec.template.spec.containers[slurmd].image dropped"],
    "NodeSet shared-partition": ["spec.partition.config dropped"],
    "NodeSet dumped": [
        "metadata creationTimestamp, finalizers, generation, resourceVersion, uid, annotations dropped",
        "status dropped",
        "metadata.labels[slinky.slurm.net/cluster] dropped",
    ],
    "LoginSet least": ["spec.service differs"],
    "LoginSet from-chart": [
        "spec.initconf dropped",
        "spec.sssdConfRef dropped",
        "spec.strategy.type changed",
        "spec.service differs",
        "spec.login.image dropped",
    ],
    "LoginSet rolling": ["spec.service differs"],
    "LoginSet powerful": ["spec.service differs", "spec.login.securityContext.privileged dropped"],
    "RestApi least": ["spec.service differs"],
    "RestApi from-chart": [
        "spec.service differs",
        "spec.slurmrestd.image dropped",
        "spec.slurmrestd.args dropped",
    ],
    "Accounting recorded": [
        "spec.extraConf dropped: StorageParameters",
        "spec.slurmdbd.image dropped",
        "spec.slurmdbd.args dropped",
    ],
    "Controller slurm": ["spec.redbox.tokens.users added: alice", "spec.redbox.tokens.users added: portal"],
    "Token root": ["spec.username not done"],
    "HorizontalPodAutoscaler least": ["spec.scaleTargetRef.apiVersion changed"],
    "ScaledObject gpu": ["spec.scaleTargetRef.apiVersion changed"],
    "ConfigMap files": ["all kept"],
    "Secret slurm-key": ["all kept"],
}
"""For each object of the corpus what is said of it, in this order; of the others nothing."""


def documents(*names: str) -> list[ManifestDocument]:
    return [each for name in names for each in read_documents((FOLDER / name).read_text(), name)]


def corpus(**options: str) -> Conversion:
    return convert(documents(*FILES), **options)


def of_kind(conversion: Conversion, kind: str) -> list[dict[str, Any]]:
    return [each for each in conversion.documents if isinstance(each, dict) and each["kind"] == kind]


def objects() -> list[dict[str, Any]]:
    return [each for kind in MODELS for each in of_kind(corpus(), kind)]


def name_of(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def said_of(name: str, conversion: Conversion) -> list[str]:
    return [str(note).partition(": ")[2] for note in conversion.notes if note.place == name]


def test_there_are_some_forty_of_all_kinds() -> None:
    assert len(documents(*FILES)) >= 40
    assert {each["kind"] for each in objects()} == MODELS.keys()


@pytest.mark.parametrize("manifest", objects(), ids=name_of)
def test_the_schema_takes_what_was_converted(manifest: dict[str, Any]) -> None:
    assert manifest["apiVersion"] == "slurm.redbox.dev/v1alpha1"
    schema = SCHEMAS[manifest["kind"]]["properties"]["spec"]
    assert problems_of(manifest["spec"], schema) == []


@pytest.mark.parametrize("manifest", objects(), ids=name_of)
def test_no_field_is_left_that_nothing_implements(manifest: dict[str, Any]) -> None:
    assert unbuilt_fields(MODELS[manifest["kind"]].model_validate(manifest["spec"])) == []


@pytest.mark.parametrize("document", documents(*FILES), ids=lambda each: name_of(each.value))
def test_each_difference_has_a_line(document: ManifestDocument) -> None:
    name = name_of(document.value)
    said, expected = said_of(name, corpus()), NOTED.get(name, [])
    assert len(said) == len(expected), said
    for line, beginning in zip(said, expected, strict=True):
        assert line.startswith(beginning)
        assert re.search(r": .{10}", line), "it has a reason"


@pytest.mark.parametrize("kind", MODELS)
def test_all_that_is_unbuilt_is_named(kind: str) -> None:
    """By the operator's own list, of a manifest with every field of Slinky's."""
    spec = {key: value for key, value in EVERY_FIELD[kind].items() if key != "storageConfig"}
    unbuilt: dict[str, dict[str, Any]] = {
        "Controller": {"ha": {"enabled": True}, "metrics": {"serviceMonitor": {"enabled": True}}},
        "NodeSet": {"pinToNode": True, "updateStrategy": {"type": "ScheduledUpdate"}},
        "LoginSet": {"strategy": {"type": "Recreate"}},
    }
    spec |= unbuilt.get(kind, {})
    named = [field.path.split()[0] for field in unbuilt_fields(MODELS[kind].model_validate(spec))]
    assert bool(named) == (kind in unbuilt)
    manifest = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": spec,
    }
    made = convert([ManifestDocument(manifest, "")])
    paths = " ".join(note.path for note in made.notes)
    assert [path for path in named if path.rpartition(".")[2] not in paths] == []
    (converted,) = made.documents
    assert isinstance(converted, dict)
    assert unbuilt_fields(MODELS[kind].model_validate(converted["spec"])) == []


@pytest.mark.parametrize("profile", ["Plain", "Privileged"])
def test_their_pods_are_built(profile: str) -> None:
    """Without a field that the operator leaves out or refuses, but for those that are said to be open."""
    made = corpus(profile=profile)
    is_open = {note.place for note in made.notes if note.outcome == "not done"}
    for manifest in of_kind(made, "NodeSet"):
        node_set = NodeSet.model_validate(
            {**manifest, "metadata": {**manifest["metadata"], "uid": "1", "resourceVersion": "1"}}
        )
        assert dropped_fields(node_set) == ()
        assert node_options(node_set, worker_size(node_set)).refused == ()
        if name_of(manifest) not in is_open:
            pod = worker_pod(cell({"redbox": {"profile": profile}}), WorkerPlan(node_set, 0, "r"))
            probe = pod["spec"]["containers"][0]["readinessProbe"].keys()
            assert len(probe & {"exec", "httpGet", "tcpSocket", "grpc"}) == 1
    for manifest in of_kind(made, "Controller"):
        slurmctld_set(cell({**manifest["spec"], "redbox": {"profile": profile}}))
    for manifest in of_kind(made, "LoginSet"):
        login = LoginCell(manifest["metadata"]["name"], "1", LoginSetSpec.model_validate(manifest["spec"]))
        sshd_set(cell({"redbox": {"profile": profile}}), login, "d")


def test_their_settings_are_taken() -> None:
    made = corpus()
    for manifest in of_kind(made, "Controller"):
        controller = SlurmController.model_validate(manifest)
        inputs = ClusterInputs(controller.name, "moved", controller.spec, SlurmRelease.R26_05)
        files = cluster_files(inputs)
        assert files.refused == ()
    lines = next(each for each in of_kind(made, "Controller") if each["metadata"]["name"] == "settings")
    assert "# not taken: TopologyPlugin=topology/tree\n" in lines["spec"]["extraConf"]
    assert "PartitionName=shared Nodes=fast MaxTime=1-0\n" in lines["spec"]["extraConf"]
    database = DatabaseAddress("db", 3306, "slurm", "slurm", "secret")
    for manifest in of_kind(made, "Accounting"):
        spec = AccountingSpec.model_validate(manifest["spec"])
        assert not slurmdbd_conf("acct", spec, database).refused


def test_the_privileged_profile_keeps_privileges_and_is_set() -> None:
    made = corpus(profile="Privileged", image="registry.example.org/slurm:26.05")
    assert all(each["spec"]["redbox"]["profile"] == "Privileged" for each in of_kind(made, "Controller"))
    (host,) = (each for each in of_kind(made, "NodeSet") if each["metadata"]["name"] == "on-the-host")
    assert host["spec"]["slurmd"]["securityContext"]["privileged"] is True
    assert host["spec"]["slurmd"]["image"] == "registry.example.org/slurm:26.05"
    assert not any(line.startswith("spec.template") for line in said_of("NodeSet on-the-host", made))


def converted(spec: dict[str, Any], kind: str = "NodeSet", name: str = "w", **more: Any) -> Conversion:
    metadata = {"name": name, **more}
    manifest = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}
    return convert([ManifestDocument(manifest, "")])


@pytest.mark.parametrize(
    ("kind", "name", "spec", "path"),
    [
        ("NodeSet", "w-0", {"replicas": 1}, "metadata.name"),
        ("NodeSet", "a.b", {"replicas": 1}, "metadata.name"),
        ("NodeSet", "w" * 41, {"replicas": 1}, "metadata.name"),
        ("Controller", "c", {"clusterName": "Lab"}, "spec.clusterName"),
        ("Controller", "c", {"external": True, "jwtHs256KeyRef": {"name": "a"}}, "spec.slurmKeyRef"),
        ("Accounting", "a", {}, "spec.storageConfig"),
        ("Token", "t", {"username": "alice"}, "spec.username"),
    ],
)
def test_what_the_api_server_would_refuse_is_open(
    kind: str, name: str, spec: dict[str, Any], path: str
) -> None:
    made = converted(spec, kind, name)
    assert [note.path for note in made.notes if note.outcome == "not done"] == [path]
    assert made.is_open


def run(*words: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
    given = stdin if isinstance(stdin, bytes) else stdin.encode()
    ended = subprocess.run(
        [PROGRAM, "convert", *words], check=False, input=given, capture_output=True, timeout=60
    )
    return subprocess.CompletedProcess(
        ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode()
    )


OTHERS = "# of others\nkind: Secret # theirs\napiVersion: v1\nmetadata: {name: k}\n"
LEAST = """\
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata: {name: w, annotations: {at: 2026-01-01T00:00:00Z, n: "007"}}
spec: {controllerRef: {name: slurm}, replicas: 2}
"""


def test_a_stream_is_converted_and_objects_of_others_keep_their_text() -> None:
    ended = run("-f", "-", stdin=f"---\n{OTHERS}---\n{LEAST}---\n---\n")
    assert ended.returncode == 0
    assert ended.stdout.startswith(OTHERS.removeprefix("# of others\n") + "---\n")
    theirs, ours = yaml.safe_load_all(ended.stdout)
    assert theirs["kind"] == "Secret"
    assert ours["metadata"]["annotations"] == {"at": "2026-01-01T00:00:00Z", "n": "007"}
    assert ours["spec"] == {"controllerRef": {"name": "slurm"}, "replicas": 2}
    assert ended.stderr.splitlines() == [
        "Secret k: all kept: it is no object of Slinky's operator",
        "1 of 2 objects converted.",
    ]


def test_a_list_of_kubectl_and_several_files_are_read(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.json"
    first.write_text(LEAST)
    second.write_text('{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod"}]}')
    ended = run("-f", str(first), "--filename", str(second))
    assert [each["kind"] for each in yaml.safe_load_all(ended.stdout)] == ["NodeSet", "Pod"]


def test_what_is_converted_twice_stays() -> None:
    once = run("-f", "-", stdin=LEAST).stdout
    again = run("-f", "-", stdin=once)
    assert (again.returncode, again.stdout) == (0, once)


def test_an_alias_is_a_copy() -> None:
    text = "apiVersion: slinky.slurm.net/v1beta1\nkind: NodeSet\nmetadata: {name: w}\n"
    text += "spec: {replicas: 1, slurmd: &a {image: x, env: []}, logfile: *a}\n"
    (made,) = yaml.safe_load_all(run("-f", "-", stdin=text).stdout)
    assert made["spec"] == {"replicas": 1, "slurmd": {"env": []}}


def test_an_open_field_has_an_exit_code_of_its_own() -> None:
    ended = run("-f", "-", stdin=LEAST.replace("name: w,", "name: w-1,"))
    assert ended.returncode == 1
    assert "NodeSet w-1: metadata.name not done: rename it" in ended.stderr


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        ("", "- has no manifest"),
        ("a: [", "stdin is not YAML: "),
        ("- 1", "stdin has a document that is a list"),
        ("text", "stdin has a document that is a str"),
        ("kind: Pod", "stdin has a document without apiVersion and kind"),
        (
            "nodesets: {gpu: {}}",
            "stdin has values of a chart, not manifests: render them first, `helm template",
        ),
        (b"\xff\xfe\x00", "stdin is not UTF-8 text"),
        ("[" * 50_000, "stdin has a document that is nested too deep"),
        ("a: &a [*a]", "stdin has a document with too many values, or nested too deep"),
        (BOMB, "stdin has a document with too many values, or nested too deep"),
        ("a: !!python/object:os.system x", "stdin is not YAML: could not determine a constructor"),
        ("a: 1\x00", "stdin is not YAML: "),
        ("{a: b}: c", "stdin is not YAML: found unhashable key"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(stdin: str | bytes, words: str) -> None:
    ended = run("-f", "-", stdin=stdin)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"kubectl slurm: {words}")


def test_a_file_that_is_not_there() -> None:
    ended = run("-f", "/nowhere/at-all.yaml")
    assert ended.returncode == 2
    assert ended.stderr == "kubectl slurm: /nowhere/at-all.yaml cannot be read: No such file or directory\n"


def test_a_terminal_sees_what_is_there() -> None:
    ended = run("-f", "-", stdin="apiVersion: v1\nkind: Secret\nmetadata: {name: a\u202eb}\n")
    assert "\u202e" not in ended.stdout + ended.stderr
    (made,) = yaml.safe_load_all(ended.stdout)
    assert made["metadata"]["name"] == "a\u202eb"


def test_documents_keep_their_lines() -> None:
    with pytest.raises(BadManifest, match="line 5, column"):
        list(read_documents("kind: A\napiVersion: v1\n---\nkind: B\n  a: b\n", "stdin"))
