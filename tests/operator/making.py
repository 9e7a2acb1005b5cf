"""SlurmJobs and SlurmClusters for tests, with as much said as a test says."""

from __future__ import annotations

import base64
from typing import Any

from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.kinds import SlurmJob


def slurm_cluster(**spec: Any) -> SlurmCluster:
    given = {
        "endpoint": "https://login.example:8443",
        "caBundle": base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode(),
        "audience": "redbox.dev/hpc1/4711",
    }
    return SlurmCluster.model_validate({"metadata": {"name": "hpc1"}, "spec": {**given, **spec}})


def slurm_job(name: str = "cow", **spec: Any) -> SlurmJob:
    metadata = {"name": name, "namespace": "farm", "uid": "0aa6-11", "generation": 1}
    what = {} if {"batch", "batchFrom", "container"} & spec.keys() else {"batch": "#!/bin/sh\necho moo\n"}
    said = {"cluster": "hpc1", **what, **spec}
    return SlurmJob.model_validate({"metadata": metadata, "spec": said})
