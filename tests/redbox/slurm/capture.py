"""Captures what a release of Slurm prints, for `captured.py` and the tests that read it.

    deploy/local/bed up --slurm 26.05 --no-kube
    .venv/bin/python -m tests.redbox.slurm.capture
    deploy/local/bed down

The bed gets another slurm.conf (one node of eight CPUs, a partition without nodes and one that is down) and a
set of jobs: every end that one node can make, arrays, a het job, and bob's, whose text forges records. Most
outputs are taken while jobs run and wait, sacct's once all have been cancelled. It takes some five minutes.

What ended jobs used is of another set of jobs, before, on the bed as it is; with `ended` it is all:

    .venv/bin/python -m tests.redbox.slurm.capture ended
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from redbox.slurm.commands import (
    counted_jobs,
    counted_nodes,
    ended_usage,
    sacct,
    sacctmgr,
    scontrol,
    sdiag,
    sinfo,
    squeue,
    srun,
    sstat,
)
from redbox.slurm.text.record_format import RecordFormat
from redbox.slurm.text.values import TIME_FORMAT
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from redbox_bed.slurm.daemons import MUNGED, SLURMCTLD, SLURMD
from tests.redbox.slurm.captured import FRAME, OUTPUTS, accounting_fields

SLURM_CONF = "/etc/slurm/slurm.conf"
DROPPED = ("NodeName=", "PartitionName=", "MinJobAge=", "KillWait=", "GresTypes=", "AccountingStorageTRES=")
OWN_CONF = """\
MinJobAge=600
KillWait=3
NodeName=n1 CPUs=8 RealMemory=4000 Feature=cpu,intel
PartitionName=debug Nodes=n1 Default=YES MaxTime=30 DefaultTime=10 State=UP
PartitionName=GPU_big Nodes=n1 MaxNodes=1 MaxTime=1440 State=UP
PartitionName=empty State=UP
PartitionName=off Nodes=n1 State=DOWN
"""
MARK = "rb1.{name}.1.aaaaaaaa.bbbbbbbbbbbbbbbbbbbb.cccccccccccccccc.dddddddddddddddddddd"
FORGED = "two\nlines|~R~\n7~F~7~"
FORGED_COMMENT = "x~F~y\n1~F~1~F~N/A\x1b[31m|" + MARK.format(name="key-1")
JOBS: dict[str, tuple[str, ...]] = {
    "timeout": ("exec sleep 1000", "-t1"),
    "ok": ("exit 0",),
    "exit1": ("exit 1",),
    "exit200": ("exit 200",),
    "exit72": ("exit 72",),
    "kill9": ("kill -9 $$",),
    "kill15": ("kill -15 $$",),
    "nodir": ("exit 0", "-D", "/nonexistent"),
    "running": ("exec sleep 1000", "-t20"),
    "cancelled": ("exec sleep 1000",),
    "cancelled_by_root": ("exec sleep 1000",),
}
TASK = "[ $SLURM_ARRAY_TASK_ID"
WAITING: dict[str, tuple[str, ...]] = {
    "held": ("exit 0", "-H"),
    "begin": ("exit 0", "--begin=now+1hour"),
    "deadline": ("exit 0", "--deadline=now+70seconds", "-t1", "-H"),
    "array": (
        f"{TASK} -le 2 ] && exit $SLURM_ARRAY_TASK_ID; exec sleep 1000",
        "--array=0-9%2",
    ),
    "array_held": ("exit 0", "--array=1-4000:3", "-H"),
    "array_cut": (f"{TASK} -le 1 ] && exit 0; exec sleep 1000", "--array=0-5%1"),
}
DRAINED: dict[str, tuple[str, ...]] = {
    "het": ("#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nexec sleep 1000",),
    "requeued": ("exec sleep 1000",),
}
HOLD = "head -c 50000000 /dev/zero | tail -n1 | sleep 12"
"""50 MB for longer than the bed's slurmds wait between two measurements."""
USED: dict[str, tuple[str, ...]] = {
    "requeued": ("[ ${SLURM_RESTART_COUNT:-0} = 0 ] && exec sleep 1000; exit 0", "-t20"),
    "busy": (f"timeout 5 sh -c 'while :; do :; done'; {HOLD}", "-c2", "--mem=200M", "-t5"),
    "nodes": (f"srun sh -c '{HOLD}'", "-N2", "-n2", "--mem=300M", "-t10"),
    "array": (f"{TASK} = 2 ] || exit 0; {HOLD}", "--array=1-3", "--mem=100M", "-t5"),
    "het": (f"#SBATCH --mem=100M\n#SBATCH hetjob\n#SBATCH --mem=200M\nsrun --het-group=0,1 sh -c '{HOLD}'",),
    "quick": ("exit 0",),
    "never": ("exit 0", "-H"),
}
REFUSED: dict[str, tuple[str, ...]] = {
    "bogus option": ("--bogus",),
    "unknown partition": ("-p", "nope"),
    "unknown account": ("-A", "nope"),
    "unknown qos": ("-q", "nope"),
    "too much memory": ("--mem=1T",),
    "bad time": ("-t", "nope"),
    "no such gres": ("--gres=nope:1",),
    "no such feature": ("-C", "nope"),
    "array too large": ("--array=0-99999",),
    "unknown reservation": ("--reservation=nope",),
    "unknown node": ("-w", "n99"),
    "bad begin": ("--begin=bogus",),
    "foreign cluster": ("-M", "foo"),
    "other uid": ("--uid=0",),
    "unknown licence": ("-L", "nope"),
    "bad mail type": ("--mail-type=nope",),
    "no value": ("--mail-type",),
}
BAD_SCRIPTS = {
    "abbreviated bogus": "#!/bin/sh\n#SBATCH --bogus\n",
    "dos lines": "#!/bin/sh\r\ntrue\r\n",
    "no shebang": "true\n",
    "empty": "",
}


class Capture:
    """One release, on the bed that is up."""

    def __init__(self, bed: Bed) -> None:
        self.release = bed.plan.options.release.value
        self.folder = OUTPUTS / self.release
        self.login, self.controller, self.node = (bed.host(name) for name in ("login", "ctl", "n1"))
        self.nodes = [bed.host(node.name) for node in bed.plan.clusters[0].nodes]
        self.ids: dict[str, str] = {}
        self.submits: list[dict[str, Any]] = []

    def take(self) -> None:
        self.take_ended()
        self.configure()
        self.submit_jobs()
        self.save_while_jobs_wait()
        self.save_accounting()
        self.save_submits()

    def take_ended(self) -> None:
        """What ended jobs used."""
        self.folder.mkdir(exist_ok=True)
        for name, (script, *options) in USED.items():
            self.sbatch(name, script, *options)
        self.wait("requeued", "RUNNING")
        self.login.run("scontrol", "requeue", self.ids["requeued"], user="alice")
        self.wait("requeued", "PENDING")  # for two minutes, by itself
        self.controller.run("scontrol", "update", f"jobid={self.ids['requeued']}", "starttime=now")
        self.login.run("scancel", self.ids["never"], user="alice")
        for name in USED:
            self.wait(name, *_ENDED)
        wait_until(self._accounting_is_complete, 60, "slurmdbd does not have every end")
        argv = ended_usage.jobs_argv(sorted(self.ids.values(), key=int))
        self.save("ended.txt", argv, sacct.ENVIRONMENT, user="alice")
        (self.folder / "ended-ids.json").write_text(json.dumps(self.ids, indent=1) + "\n")
        self.ids.clear()

    # ------------------------------------------------------------------------------- the cluster
    def configure(self) -> None:
        kept = self.controller.read(SLURM_CONF).decode().splitlines()
        lines = [line for line in kept if not line.startswith(DROPPED)]
        self.controller.write(SLURM_CONF, "\n".join([*lines, OWN_CONF]))
        self.controller.write("/etc/slurm/gres.conf", "")
        for host in self.nodes:
            host.kill(SLURMD.name)
        self.controller.kill(SLURMCTLD.name, signal.SIGTERM)
        self.controller.ensure(SLURMCTLD)
        self.node.ensure(SLURMD)
        wait_until(lambda: "idle" in self.shown("sinfo", "-h", "-n", "n1", "-o", "%T"), 60, "n1 is not idle")
        for line in (
            "add qos long",
            "modify user alice where account=physics set qos=long,normal",
            "modify user alice where account=biology set qos=normal",
        ):
            self.controller.run("sacctmgr", "-iQ", *line.split(), check=False)

    def shown(self, *argv: str) -> str:
        return self.controller.run(*argv, check=False).stdout

    def state(self, job: str) -> str:
        """Of a job, or of one task."""
        return self.shown("squeue", "-h", "-r", "-t", "all", "-j", self.ids.get(job, job), "-o", "%T").strip()

    def wait(self, job: str, *states: str) -> None:
        """Until squeue shows it, and all of it in one of these states."""

        def is_so() -> bool:
            shown = set(self.state(job).split())
            return bool(shown) and shown <= {*states}

        wait_until(is_so, _PATIENCE_S, f"{job} is not {' or '.join(states)}")

    # ------------------------------------------------------------------------------- jobs
    def sbatch(self, name: str, script: str, *options: str) -> None:
        mark = MARK.format(name=f"key-{len(self.ids)}")
        argv = ("sbatch", "--parsable", "-D", "/home/alice", "--export=ALL", f"--comment={mark}", "-J", name)
        done = self.login.run(*argv, *options, user="alice", stdin=f"#!/bin/sh\n{script}\n")
        self.ids[name] = done.stdout.strip()

    def submit_jobs(self) -> None:
        for name, (script, *options) in JOBS.items():
            self.sbatch(name, script, *options)
        forger = ("-D", "/home/bob", "--export=ALL", "--comment", FORGED_COMMENT, "-J", FORGED)
        done = self.login.run("sbatch", "--parsable", *forger, user="bob", stdin="#!/bin/sh\n")
        self.ids["forger"] = done.stdout.strip()
        ends = {*JOBS, "forger"} - {"timeout", "running"}
        cancelled = {"cancelled", "cancelled_by_root"}
        for name in cancelled | {"running"}:
            self.wait(name, "RUNNING")
        self.login.run("scancel", self.ids["cancelled"], user="alice")
        self.login.run("scancel", self.ids["cancelled_by_root"])
        for name in ends:
            self.wait(name, *_ENDED)
        for name, (script, *options) in WAITING.items():
            self.sbatch(name, script, *options)
        for task in ("array_4", "array_cut_2"):
            name, _, index = task.rpartition("_")
            self.wait(f"{self.ids[name]}_{index}", "RUNNING")
        self.login.run("scancel", self.ids["array_cut"], user="alice")
        self.controller.run("scontrol", "update", "node=n1", "state=drain", "reason=two words|and a bar")
        for name, (script, *options) in DRAINED.items():
            self.sbatch(name, script, *options)
        self.wait("timeout", "TIMEOUT")
        if self.release != "22.05":  # which lets the deadline of a held job pass
            self.wait("deadline", "DEADLINE")

    # ------------------------------------------------------------------------------- outputs
    def save(self, name: str, argv: list[str], env: Mapping[str, str] | None = None, user: str = "") -> None:
        done = self.login.run(*argv, user=user or "redbox", env=env, check=False)
        (self.folder / name).write_text(done.stdout)

    def save_while_jobs_wait(self) -> None:
        self.save("squeue.txt", squeue.all_jobs_argv(), squeue.environment(FRAME))
        self.save("states.txt", squeue.states_argv(), squeue.ENVIRONMENT)
        self.save("sinfo.txt", sinfo.nodes_argv(RecordFormat(sinfo.FIELDS, "~F~", "~R~")))
        self.save("partitions.txt", scontrol.partitions_argv())
        self.save("config.txt", scontrol.configuration_argv())
        self.save("federation.txt", scontrol.federation_argv())
        self.save("sacctmgr-config.txt", sacctmgr.configuration_argv())
        self.save("associations.txt", sacctmgr.associations_argv("alice"))
        self.save("sstat.txt", sstat.usage_argv([self.ids["running"]]), user="alice")
        self.save_counted()
        kinds = self.login.run(*srun.mpi_kinds_argv(), check=False)
        (self.folder / "mpi.txt").write_text(kinds.stdout + kinds.stderr)
        (self.folder / "ids.json").write_text(json.dumps(self.ids, indent=1) + "\n")

    def save_counted(self) -> None:
        """What Slurm's metrics are made of; where slurmctld has metrics, those of the same moment."""
        record_format = RecordFormat(counted_jobs.FIELDS, "~F~", "~R~")
        self.save("counted-jobs.txt", squeue.all_jobs_argv(), squeue.environment(record_format))
        self.save("counted-nodes.txt", counted_nodes.nodes_argv())
        self.save("counted-partitions.txt", scontrol.partitions_argv())
        self.save("sdiag.json", sdiag.json_argv())
        self.save("sdiag.txt", sdiag.text_argv())
        if self.release >= "25.11":
            for family in ("jobs", "nodes", "partitions", "scheduler", "jobs-users-accts"):
                own = ["curl", "--silent", "--fail", f"http://ctl:6817/metrics/{family}"]
                self.save(f"own-{family}.txt", own)

    def save_accounting(self) -> None:
        self.controller.run("scancel", "--user=alice")
        for name in ("running", "het", "array_held"):
            self.wait(name, *_ENDED)
        self.controller.run("scontrol", "update", "node=n1", "state=resume")
        wait_until(self._accounting_is_complete, 60, "slurmdbd does not have every end")
        self.save("sacct-fields.txt", sacct.field_names_argv())
        fields, texts = accounting_fields(self.release)
        ids = sorted(self.ids.values(), key=int)
        self.save("sacct.txt", sacct.jobs_argv(fields, ids), sacct.ENVIRONMENT)
        columns = sacct.text_columns(texts, sacct.TEXT_QUERIES[0].width)
        self.save("sacct-texts.txt", sacct.texts_argv(columns, ids), sacct.ENVIRONMENT)
        coded = [self.ids[name] for name in ("exit1", "exit200", "exit72")]
        text = self.login.run(*sacct.exit_codes_argv(coded), check=False).stdout
        kept = [_exit_and_end(job) for job in json.loads(text)["jobs"]]
        (self.folder / "sacct.json").write_text(json.dumps({"jobs": kept}, indent=1) + "\n")

    def _accounting_is_complete(self) -> bool:
        states = self.shown("sacct", "-nXP", "-j", ",".join(self.ids.values()), "-o", "State").split("\n")
        return not {"RUNNING", "PENDING", "COMPLETING"} & set(states)

    # ------------------------------------------------------------------------------- submits
    def submit(self, what: str, expect: str, *options: str, script: str = "#!/bin/sh\n", **more: Any) -> None:
        done = self.login.run(
            "/usr/bin/sbatch",
            "--parsable",
            *options,
            stdin=script,
            check=False,
            timeout=200,
            **{"user": "alice", **more},
        )
        said = {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        self.submits.append({"release": self.release, "what": what, "expect": expect, **said})

    def save_submits(self) -> None:
        for what, options in REFUSED.items():
            self.submit(what, "SubmitRejected", *options)
        for what, script in BAD_SCRIPTS.items():
            self.submit(what, "SubmitRejected", script=script)
        self.submit("user without account", "SubmitRejected", user="carol")
        self.submit("accepted", "SubmitAccepted", "-H")
        self.submit("accepted with a warning", "SubmitAccepted", "-H", "-n1", "--ntasks-per-node=2")
        for state in ("drain", "inactive"):
            with self.partition_is(state):
                self.submit(f"partition {state.replace('drain', 'drained')}", "SubmitUnavailable")
        with killed(self.login, MUNGED.name, lambda: self.login.ensure(MUNGED)):
            self.submit("munged dead", "SubmitUnavailable")
        self.submit("no slurm.conf", "SubmitUnavailable", env={"SLURM_CONF": "/nonexistent"})
        with stopped(self.controller, SLURMCTLD.name):
            self.submit("slurmctld stopped", "SubmitUnknown")
        would = self.login.run(*_TEST_ONLY, user="alice", stdin="#!/bin/sh\n", env=TIME_FORMAT, check=False)
        (self.folder / "test-only.txt").write_text(would.stderr)
        with killed(self.controller, SLURMCTLD.name, lambda: self.controller.ensure(SLURMCTLD)):
            self.submit("slurmctld dead", "SubmitUnavailable")
        file = OUTPUTS / "submits.json"
        others = [submit for submit in json.loads(file.read_text()) if submit["release"] != self.release]
        file.write_text(json.dumps(others + self.submits, indent=1, ensure_ascii=False) + "\n")

    @contextmanager
    def partition_is(self, state: str) -> Iterator[None]:
        self.controller.run("scontrol", "update", "partitionname=debug", f"state={state}")
        yield
        self.controller.run("scontrol", "update", "partitionname=debug", "state=up")


_PATIENCE_S = 180
_TEST_ONLY = ("sbatch", "--test-only")
_ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE"}


def _exit_and_end(job: Mapping[str, Any]) -> dict[str, Any]:
    """What `sacct.read_exit_codes` reads of a job's five kilobytes."""
    return {"job_id": job["job_id"], "exit_code": job["exit_code"], "time": {"end": job["time"]["end"]}}


@contextmanager
def killed(host: Host, daemon: str, restart: Callable[[], object]) -> Iterator[None]:
    host.kill(daemon)
    yield
    restart()


@contextmanager
def stopped(host: Host, daemon: str) -> Iterator[None]:
    process = host.daemon_process(daemon)
    assert process is not None
    process.send(signal.SIGSTOP)
    yield
    process.send(signal.SIGCONT)


if __name__ == "__main__":
    capture = Capture(Bed.open())
    capture.take_ended() if sys.argv[1:] == ["ended"] else capture.take()
