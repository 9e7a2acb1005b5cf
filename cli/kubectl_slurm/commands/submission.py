"""`submit`: from a script to a SlurmJob, as sbatch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubectl_slurm.errors import BadUsage, JobTrouble, NotAnswered, ObjectNotFound, PluginError, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.options import Invocation, invocation
from kubectl_slurm.sbatch.manifest import (
    LARGEST_CONFIGMAP,
    BatchScript,
    Manifests,
    dependency_ids,
    in_options,
    manifests_of,
    read_script,
    wrapped,
)
from kubectl_slurm.sbatch.requested import Requested, read_command_line
from kubectl_slurm.slurmjobs.access import job_of_id, list_jobs
from kubectl_slurm.slurmjobs.following import (
    end_of,
    going_on,
    refused,
    until_begun,
    until_finished,
    until_submitted,
)
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.named_objects import check_names
from kubectl_slurm.slurmjobs.output import follow_output, write_stdout
from kubectl_slurm.terminal.documents import as_json, as_yaml
from kubectl_slurm.terminal.screen import note, one_line
from redbox_shared.job_end import EXIT_CANCELLED

HELP = """\
usage: kubectl slurm submit [options] SCRIPT [ARGUMENT...]
       kubectl slurm submit [options] --wrap COMMAND
       kubectl slurm submit [options] --container IMAGE [COMMAND...]

Submit a batch script to Slurm as a SlurmJob. Without SCRIPT it is read from stdin. Its #SBATCH lines count;
an option takes precedence over a line.

as sbatch:
  -J --job-name NAME        also begins the SlurmJob's name            -p --partition NAME
  -A --account NAME         -q --qos NAME        -t --time LIMIT        -C --constraint LIST
  -N --nodes N              -n --ntasks N        -c --cpus-per-task N   --ntasks-per-node N
  --mem SIZE                --mem-per-cpu SIZE   -G --gpus N            --gpus-per-node N    --gres LIST
  -a --array 0-9%4          -b --begin TIME      -H --hold              -D --chdir FOLDER
  -o --output FILE          -e --error FILE      --export NAME=VALUE,...
  -d --dependency TYPE:NAME,...   NAME is a SlurmJob or a Slurm job id; afterok, afterany, afternotok, after;
                            TYPE:NAME?TYPE:NAME for any of several SlurmJobs
  -W --wait                 wait for the end, and exit as the job did
  --parsable                print the SlurmJob's name alone
  others of sbatch are passed to it: --exclusive, --mail-type=END, --reservation=NAME

of this command:
  --follow                  print the output until the end, exit as the job did; Ctrl-C leaves the job alone
  --dry-run [-o yaml|json]  print the SlurmJob instead of creating it
  --collect PATH=PVC        copy PATH of the working directory into this PersistentVolumeClaim at the end
  --name NAME               the SlurmJob's whole name
  --cluster NAME            the SlurmCluster; needed where there are several
  --endpoint NAME           or the SlurmEndpoint of the namespace: a red-box of your own
  --env NAME=VALUE          a variable whose value may have commas
  --service-account NAME    the account that decides which Unix user the job is
  --backoff-limit N         how often a failed job is submitted again
  --namespace, --context, --kubeconfig, --as, --as-group   as for kubectl; -n is --ntasks here
"""
GLOBAL = ("namespace", "context", "kubeconfig", "as", "as-group")
STDIN = "stdin"


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    del command
    requested = read_command_line(words)
    if "help" in requested.flags:
        sys.stdout.write(HELP)
        return 0
    script = _script(requested)
    options = [*given, *(f"--{name}={value}" for name in GLOBAL for value in requested.own.get(name, ()))]
    if "dry-run" in requested.flags:
        _refuse_ids(requested)
        sys.stdout.write(_shown(requested, manifests_of(requested, script)))
        return 0
    call = invocation(options, environment)
    manifests = manifests_of(requested, script, _names_of_ids(call.kubectl, requested))
    check_names(call.kubectl, manifests.slurmjob["spec"])
    try:
        job = create(call.kubectl, manifests)
    except (NotAnswered, KeyboardInterrupt):
        note("It may have been submitted all the same: `kubectl slurm queue` shows whether it was.")
        raise
    return _report(call, requested, job)


def _script(requested: Requested) -> BatchScript | None:
    """None: the job is a container."""
    command = requested.last("wrap")
    given = [requested.script, command, requested.last("container")]
    if sum(source is not None for source in given) > 1:
        raise BadUsage("a job is one of SCRIPT, --wrap and --container")
    if requested.last("container") is not None:
        return None
    if command is not None:
        if requested.arguments:
            raise BadUsage(f"--wrap is the whole command: put {requested.arguments[0]!r} into it")
        return wrapped(command)
    return _read(requested.script)


def _read(path: str | None) -> BatchScript:
    if path is None or path == "-":
        if sys.stdin.isatty():
            note("Reading the batch script from the terminal; Ctrl-D ends it.")
        return read_script(sys.stdin.buffer.read(LARGEST_CONFIGMAP + 1), STDIN)
    try:
        with Path(path).open("rb") as file:
            return read_script(file.read(LARGEST_CONFIGMAP + 1), path)
    except OSError as error:
        raise BadUsage(f"{path} cannot be read: {error.strerror}") from error


def _shown(requested: Requested, manifests: Manifests) -> str:
    documents = [document for document in (manifests.config_map, manifests.slurmjob) if document is not None]
    match requested.format:
        case "json":
            return "".join(as_json(document) for document in documents)
        case "name":
            metadata = manifests.slurmjob["metadata"]
            return f"slurmjob.redbox.dev/{metadata.get('name') or metadata['generateName']}\n"
        case _:
            return as_yaml(*documents)


def _refuse_ids(requested: Requested) -> None:
    """A dry run asks no server, and in a SlurmJob a Slurm job id would be the name of another SlurmJob."""
    if job_id := next(dependency_ids(requested.sbatch.get("dependency")), None):
        raise BadUsage(f"--dependency: a dry run asks no server whose job {job_id} is: name its SlurmJob")


def _names_of_ids(kubectl: Kubectl, requested: Requested) -> dict[str, str]:
    """Of the ids that are SlurmJobs'; Slurm itself has the others, or refuses them. A note says which."""
    ids = list(dict.fromkeys(dependency_ids(requested.sbatch.get("dependency"))))
    jobs, names = list_jobs(kubectl) if ids else [], {}
    for job_id in ids:
        with suppress(ObjectNotFound):
            job = job_of_id(kubectl, jobs, job_id)
            of = {"cluster": job.cluster, "endpoint": job.endpoint}
            if all(requested.last(kind) in {None, name} for kind, name in of.items()):
                names[job_id] = job.name
        if "quiet" not in requested.flags:
            what = f"SlurmJob {names[job_id]}" if job_id in names else "no SlurmJob here, but a job of Slurm"
            note(f"--dependency: {job_id} is {what}.")
    return names


def create(kubectl: Kubectl, manifests: Manifests) -> SlurmJobView:
    """The SlurmJob; the ConfigMap of its script is deleted with it."""
    if manifests.config_map is None:
        return SlurmJobView(_created(kubectl, manifests.slurmjob))
    config_map = _created(kubectl, manifests.config_map)
    name = config_map["metadata"]["name"]
    reference = {**manifests.slurmjob["spec"]["batchFrom"]["configMapKeyRef"], "name": name}
    spec = {**manifests.slurmjob["spec"], "batchFrom": {"configMapKeyRef": reference}}
    try:
        job = SlurmJobView(_created(kubectl, {**manifests.slurmjob, "spec": spec}))
    except NotAnswered:
        note(f"ConfigMap {name} has the script and stays: the SlurmJob may be there, and need it.")
        raise
    except PluginError:
        kubectl.outcome("delete", "configmap", "--wait=false", "--", name)
        raise
    owner = {"apiVersion": job.obj["apiVersion"], "kind": "SlurmJob", "name": job.name, "uid": job.uid}
    change = json.dumps({"metadata": {"ownerReferences": [owner]}})
    code, _, error = kubectl.outcome("patch", "configmap", "--type=merge", f"--patch={change}", "--", name)
    if code:
        note(f"ConfigMap {name} has the script and stays when {job.name} is deleted: {error.strip()}")
    return job


def _created(kubectl: Kubectl, manifest: dict[str, Any]) -> dict[str, Any]:
    try:
        return kubectl.json("create", "--filename=-", stdin=json.dumps(manifest))
    except Refusal as refusal:
        raise type(refusal)(in_options(str(refusal))) from refusal


def _report(call: Invocation, requested: Requested, job: SlurmJobView) -> int:
    current = job

    def newest() -> SlurmJobView:
        return current

    parsable, quiet = "parsable" in requested.flags, "quiet" in requested.flags
    with going_on(newest):
        current, unseen = _submitted(call.kubectl, job)
        if parsable:
            call.screen.write(current.name)
        elif current.in_slurm and not quiet:
            call.screen.write(
                f"Submitted batch job {one_line(current.job_id)}\nslurmjob.redbox.dev/{current.name} created"
            )
        if current.finished and not current.in_slurm:
            error = refused(call.kubectl, current)
            note(f"kubectl slurm: {in_options(str(error))}")
            return current.pod_exit_code()
        if not current.in_slurm:
            if not parsable and not quiet:
                call.screen.write(f"slurmjob.redbox.dev/{current.name} created")
            note(_not_in_slurm(current, unseen))
        if not {"follow", "wait"} & requested.flags:
            return 0
        try:
            current = _waited_for(call.kubectl, requested, current)
        except JobTrouble as trouble:
            note(f"kubectl slurm: {trouble}")
            return EXIT_CANCELLED
    code = current.pod_exit_code()
    if code or "follow" in requested.flags:
        note(end_of(current))
    return code


def _submitted(kubectl: Kubectl, job: SlurmJobView) -> tuple[SlurmJobView, Refusal | None]:
    """Once Slurm has it, or has refused it; or as it was created, and why no more is seen of it.

    Who took that for a failure of the submit would submit it twice.
    """
    try:
        return until_submitted(kubectl, job), None
    except Refusal as refusal:
        return job, refusal


def _not_in_slurm(job: SlurmJobView, unseen: Refusal | None) -> str:
    if unseen is not None:
        return f"{job.name} is created, and may be in Slurm: {unseen}"
    unanswered = "Red Box's operator has not answered: `kubectl slurm doctor` checks why"
    why = job.message or job.condition("Submitted").get("message") or unanswered
    return f"{job.name} is not in Slurm yet: {why}"


def _waited_for(kubectl: Kubectl, requested: Requested, job: SlurmJobView) -> SlurmJobView:
    if "follow" not in requested.flags:
        return until_finished(kubectl, job)
    begun = until_begun(kubectl, job)
    if not begun.in_slurm:
        return begun
    return until_finished(kubectl, follow_output(kubectl, begun, write_stdout, since=1))
