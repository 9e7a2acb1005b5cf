#!/usr/bin/env python3
"""Submit a batch script as a SlurmJob, wait for its end, exit as it did: examples/recipes/submit.py FILE."""

import sys
from pathlib import Path

from kubernetes import client, config, watch

config.load_kube_config()
_, context = config.list_kube_config_contexts()
api, ends = client.CustomObjectsApi(), {"Succeeded", "Failed", "Cancelled"}
kind = ("redbox.dev", "v1alpha1", context["context"].get("namespace", "default"), "slurmjobs")
job = {
    "kind": "SlurmJob",
    "apiVersion": "redbox.dev/v1alpha1",
    "spec": {"batch": Path(sys.argv[1]).read_text()},
}
name = api.create_namespaced_custom_object(*kind, job | {"metadata": {"generateName": "python-"}})[
    "metadata"
]["name"]
for event in watch.Watch().stream(
    api.list_namespaced_custom_object, *kind, field_selector=f"metadata.name={name}"
):
    status = event["object"].get("status", {})
    if event["type"] == "DELETED":
        sys.exit(f"{name} was deleted, and its job cancelled")
    if status.get("phase") in ends:
        print(f"{name}: job {status.get('jobID')} ended as {status['phase']}: {status.get('message', '')}")
        # A job that Slurm ended, by its time limit for example, may have the exit code 0.
        sys.exit(0 if status["phase"] == "Succeeded" else status.get("exitCode") or 1)
