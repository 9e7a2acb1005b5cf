"""What cannot work as a pod's job is refused before anything is submitted."""

from __future__ import annotations

import pytest

from redbox.slurm.errors import RequestRefused
from redbox.slurm.submit.pod_check import MAX_FILES_BYTES, check_pod
from redbox_api.models import JobRequest
from tests.redbox.slurm.submit.factories import container, files, request


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (request(env={"A": "1"}), "env: .* pod.containers"),
        (request(array="0-3"), "array: .*leave out array"),
        (request(options=["--requeue"]), "options: leave out --requeue: .*never requeued"),
        (request(options=["--container=/oci"]), "options: leave out --container"),
        (request(files("../x")), r"pod.volumes\[v\].files: .*leaves its volume"),
        (request(files("a/../../x")), "leaves its volume"),
        (request(files("a//b")), "leaves its volume"),
        (request(files("a/./b")), "leaves its volume"),
        (request(files("a/..")), "leaves its volume"),
        (request(files("a/")), "leaves its volume"),
        (request(files("..a/x")), "begins with"),
        (request(files("a/" + "ä" * 128 + "/b")), "shorten it"),
        (request(files("a", "a-b", "b/c", "a/b/c")), "'a' is a file, and the folder of 'a/b/c'"),
        (request(files("a", "a")), "two files have the path 'a'"),
        (request(files("x" * 256)), "shorten it"),
        (
            request(files("x", content=bytes(MAX_FILES_BYTES + 1))),
            "pod.volumes: .*put large data on a volume",
        ),
        (
            request({"containers": [container(image="busybox:1")]}),
            r"pod.containers\[main\].image: .*docker://busybox:1",
        ),
        (
            request({"containers": [container(image="library://a/b")]}),
            "neither docker://IMAGE nor the absolute",
        ),
        (request({"containers": [container(image="docker://")]}), "neither docker://IMAGE nor the absolute"),
        (request({"containers": [container(image="docker://a@sha256:12")]}), "64 hexadecimal digits"),
        (request({"initContainers": [container(name="i", image="x")]}), r"pod.initContainers\[i\].image"),
        (request({"containers": [container(alwaysRestarts=True)]}), "alwaysRestarts: .*initContainers"),
        (request({"containers": [container(args=["x" * 131_072])]}), "args: .*file of a volume"),
        (
            request({"containers": [container(env=[{"name": "A", "value": "x" * 131_070}])]}),
            r"pod.containers\[main\].env: .*file of a volume",
        ),
        (
            request({"containers": [container(args=["x" * 100_000] * 11)]}),
            "command, args and env have .* together",
        ),
        (
            request(
                {
                    "volumes": [{"name": "e", "emptyDir": {}}],
                    "containers": [
                        container(mounts=[{"volume": "e", "mountPath": "/m", "subPath": "../../etc"}])
                    ],
                }
            ),
            "subPath of /m.*leaves its volume",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_its_field_with_the_cure(asked: JobRequest, words: str) -> None:
    with pytest.raises(RequestRefused, match=words):
        check_pod(asked)


DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(files("a/b", "a/c", "b", ".hidden/x")),
        request(files("a/..b", "a/b..", "a/.../b", "a/" + "x" * 255 + "/" + "y" * 255)),
        request({"containers": [container(image=f"docker://registry:5000/a/b:1@{DIGEST}")]}),
        request({"containers": [container(image="/images/a b.sif")]}),
        request({"containers": [container(env=[{"name": f"V{n}", "value": "x" * 500} for n in range(500)])]}),
        request({"containers": [container(name=f"c{n}") for n in range(64)]}),
        request(options=["--exclusive", "--no-requeue", "--signal=B:TERM@60"]),
        request(dependencies=[{"jobID": "7"}], hold=True, begin="now+1hour"),
    ],
)
def test_what_can_work_is_not_refused(asked: JobRequest) -> None:
    check_pod(asked)
