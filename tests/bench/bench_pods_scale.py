"""resourced with 200 virtual nodes and 10,000 running pods on Slurm.

The API objects are real; red-box is simulated.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.virtual_pods import SUBMITTED
from tests.bench.bench_virtual_scale import (
    ALICE,
    AT_ONCE,
    CLUSTER,
    NODES,
    PODS,
    PODS_OF_ALICE,
    PROGRESS_STEP,
    Scale,
    measure,
    reaches,
    say,
)
from tests.bench.benchmark import Trial, benchmark
from tests.bench.rows import Figure, Target
from tests.bench.virtual_jobs import administrator
from tests.bench.virtual_redbox import CONTAINER
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.resourced_process import rendered
from tests.e2e.harness.virtual_delivery import TOLERATIONS, InBed, install

OF_PODS = (
    (
        "validatingadmissionpolicybinding,validatingadmissionpolicy",
        "redbox-pods",
        "redbox-slices",
        "redbox-volumes",
    ),
    ("clusterrolebinding,clusterrole", "redbox-resourced-runs-pods"),
    ("storageclass", "redbox-directory"),
    ("csidriver", "directory.redbox.dev"),
)
"""What the chart makes for pods alone; names are unique among these kinds."""


class PodScale(Scale):
    """Pods that run, in place of companions: red-box learns their uids once they are there."""

    def begin(self) -> None:
        self.redbox = self._redbox([], of_pods=True)
        self.resourced.start()
        reaches("virtual nodes", self._nodes, NODES)
        self.resourced.stop()
        uids = asyncio.run(self._make_pods())
        self.redbox.kill()
        self.redbox.wait()
        self.redbox = self._redbox(uids, of_pods=True)
        self.resourced.start()
        reaches("pods running", self._running, PODS)

    async def _make_pods(self) -> list[str]:
        free = asyncio.Semaphore(AT_ONCE)
        uids = []
        async with administrator(self.bed.places.kubeconfig) as objects, asyncio.TaskGroup() as group:
            made = [group.create_task(_pod(objects, free, number)) for number in range(PODS)]
            for done, pod in enumerate(made, start=1):
                uids.append(await pod)
                if done % PROGRESS_STEP == 0:
                    say(f"{done} of {PODS} pods made")
        return uids


async def _pod(objects: ObjectClient, free: asyncio.Semaphore, number: int) -> str:
    """Bound, and submitted, as resourced finds it after a restart; its uid, which is its job's key."""
    name = f"scale-{number}"
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"bench": "scale"}},
        "spec": {
            "nodeName": f"{CLUSTER}.p{number % NODES:03}",
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": TOLERATIONS,
            "containers": [{"name": CONTAINER, "image": "bed.local/nowhere:1"}],
        },
    }
    async with free:
        made = await objects.create(PODS_OF_ALICE, body)
        assert made is not None
        condition = {"type": SUBMITTED, "status": "True"}
        where = ResourcePath("Pod", name, ALICE)
        await objects.merge(where, {"status": {"conditions": [condition]}}, subresource="status")
        return str(made["metadata"]["uid"])


@benchmark(
    Figure(
        "pods-scale-memory",
        "resident memory",
        "MiB",
        Target("value", "<=", 300),
    ),
    Figure("pods-scale-cpu", "idle CPU, of one core", "%", Target("value", "<=", 5)),
    Figure("pods-scale-adopt", "kill -9 -> restarted, with all pods and jobs", "s"),
    Figure("pods-scale-submits", "jobs submitted again after the kill", "jobs", Target("value", "<=", 0)),
    takes_s=600,
    rounds=2,
)
@contextmanager
def pods_scale(bed: Bed) -> Iterator[Trial]:
    kubernetes = Kubernetes(bed)
    with tempfile.TemporaryDirectory() as folder:
        options = (f"--most-nodes={NODES}", "--pods", f"--pod-namespaces={ALICE}")
        resourced = InBed(bed, Path(folder), options)
        scale = PodScale(bed, Path(folder), resourced)
        install(kubernetes, bed)
        kubernetes.apply(rendered(bed, pods=True))
        try:
            scale.begin()
            before = float(scale.submits())
            yield Trial(
                lambda: {name.replace("virtual", "pods"): value for name, value in measure(scale).items()},
                notes={"redbox": "scripted", "submits-before": before},
            )
        except Exception as error:
            raise RuntimeError(f"{error!r}; resourced's log ends with {resourced.log[-1000:]}") from error
        finally:
            scale.end()
            for kinds, *names in OF_PODS:
                kubernetes("delete", kinds, *names, "--ignore-not-found")
