"""kubectl slurm on the bed: each command as a user types it, with the real kubectl, operator and Slurm."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import yaml

from tests.e2e.harness.kubectl_slurm import Plugin
from tests.e2e.harness.terminals import read_until, terminal
from tests.e2e.harness.waiting import eventually

# ---------------------------------------------------------------------------------------------- submitting


def test_a_script_is_submitted_followed_and_its_exit_code_passed_on(plugin: Plugin, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH -J Trains -t 5\n\n"
        'echo "$1 on $SLURM_JOB_NUM_NODES as $(id -un), $(squeue -h -n Trains -o %j)"\nexit 3\n'
    )
    ended = plugin("submit", "--follow", "-N", "2", str(script), "it's ok")
    assert ended.returncode == 3
    submitted, created, *output = ended.stdout.splitlines()
    job_id = re.fullmatch(r"Submitted batch job (\d+)", submitted)
    name = re.fullmatch(r"slurmjob.redbox.dev/(trains-\w+) created", created)
    assert job_id is not None
    assert name is not None
    assert output == ["it's ok on 2 as alice, Trains"]
    assert f"{name[1]} ended FAILED, exit code 3" in ended.stderr
    assert re.search(rf"{job_id[1]} +{name[1]} .* 3:0 +FAILED", plugin.well("history"))
    explained = plugin.well("explain", job_id[1])
    assert "It exited with code 3." in explained
    assert f"kubectl slurm logs {name[1]}" in explained
    assert plugin.well("logs", name[1]) == "it's ok on 2 as alice, Trains\n"


def test_ctrl_c_while_a_job_is_followed_leaves_it_running_and_says_how_to_cancel_it(plugin: Plugin) -> None:
    """On a terminal, which interrupts the kubectl that copies the log, too."""
    for words in (
        ["submit", "--follow", "--name", "lives", "--wrap", "echo begun; sleep 600"],
        ["logs", "-f", "lives"],
    ):
        variables = [f"{name}={value}" for name, value in plugin.env.items()]
        with terminal(["env", "--default-signal=INT", *variables, *plugin.argv(*words)]) as (process, screen):
            read_until(screen, rb"begun")
            os.write(screen, b"\x03")
            shown = read_until(screen, rb"follows it again")
            assert process.wait(60) == 130
        assert b"lives goes on. `kubectl slurm cancel lives` cancels it" in shown
        assert b"Traceback" not in shown
        assert " R " in plugin.well("queue", "lives")
    assert plugin.well("cancel", "--wait", "lives").endswith("ended CANCELLED\n")


def test_stdin_a_dependency_by_id_and_a_wait(plugin: Plugin) -> None:
    first = plugin.well("submit", "--wrap", "true").split()[3]
    script = "#!/bin/sh\necho $GREETING\n"
    second = plugin("submit", "--wait", "-d", f"afterok:{first}", "--export=GREETING=moo", stdin=script)
    assert second.returncode == 0, second.stderr
    assert plugin.well("logs", second.stdout.split()[3]) == "moo\n"


def test_a_job_of_sbatch_is_waited_for_by_its_id(plugin: Plugin) -> None:
    login = plugin.bed.host("login")
    plain = login.run(
        *("sbatch", "--parsable", "--hold", "--chdir=/tmp", "--output=/dev/null", "--wrap=true"), user="alice"
    ).stdout.strip()
    name = plugin.submitted("-d", f"afterok:{plain}", "--wrap", "echo moo")
    eventually(lambda: "(Dependency)" in plugin.well("queue", name), what="a job that waits for another")
    login.run("scontrol", "release", plain, user="alice")
    assert plugin.well("logs", "-f", name) == "moo\n"


def test_a_long_script_goes_into_a_config_map_that_ends_with_the_job(
    plugin: Plugin,
) -> None:
    script = "#!/bin/sh\necho long\n" + "# filling\n" * 30_000
    name = plugin.submitted("--name", "big", "--wait", stdin=script)
    assert plugin.well("logs", name) == "long\n"
    kubectl = plugin.bed.places.state / "bin/kubectl"

    def config_maps() -> str:
        words = [str(kubectl), "get", "configmaps", "--namespace=alice", "--output=name"]
        return subprocess.run(words, check=True, env=plugin.env, capture_output=True, text=True).stdout

    assert "configmap/big-script" in config_maps()
    words = [str(kubectl), "delete", "slurmjob", name, "--namespace=alice"]
    subprocess.run(words, check=True, env=plugin.env, capture_output=True)
    eventually(lambda: "configmap/big-script" not in config_maps())


def test_a_partition_that_is_not_there_is_refused_with_those_that_are(plugin: Plugin) -> None:
    typed = plugin("submit", "-p", "nowhere", "--wrap", "true")
    assert (typed.returncode, typed.stdout) == (1, "")
    assert "there is no partition nowhere: hpc1 has GPU_big, debug, long" in typed.stderr
    ended = plugin("submit", stdin="#!/bin/sh\n#SBATCH -p nowhere\n")
    assert ended.returncode == 65
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert "invalid partition" in line.lower()
    assert "The partitions of hpc1: GPU_big, debug, long." in line


def test_one_task_of_an_array_is_shown(plugin: Plugin) -> None:
    script = "#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID\n"
    name = plugin.submitted("--wait", "-a", "0-2", stdin=script)
    assert plugin.well("logs", name, "--task=1") == "task 1\n"
    missing = plugin("logs", name, "--task=9")
    assert (missing.returncode, missing.stdout) == (1, "")


def test_arguments_reach_a_script_in_any_language(plugin: Plugin, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("#!/usr/bin/env python3\n#SBATCH -J trains\nimport sys\nprint(sys.argv[1:])\n")
    arguments = ["--lr", "0.1", "it's $HOME", "", "--hold"]
    ended = plugin("submit", "--follow", str(script), *arguments)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == str(arguments)


def test_one_task_of_an_array_is_cancelled_and_explain_names_those_that_failed(nearby: Plugin) -> None:
    script = "#!/bin/sh\n[ $SLURM_ARRAY_TASK_ID = 0 ] && exit 7\nexec sleep 600\n"
    name = nearby.submitted("-a", "0-5%2", "-c", "1", "-t", "20", stdin=script)
    job_id = eventually(lambda: nearby.well("queue", "-o", "%A|%t", name).splitlines()[1].rpartition("|R")[0])
    failed = rf"Failed tasks: +0 \(FAILED, exit code 7\); `kubectl slurm logs {name}_0`"
    eventually(lambda: re.search(failed, nearby.well("explain", name)))
    assert "tasks 1, 4 are cancelled" in nearby.well("cancel", f"{job_id}_1", f"{name}_4")
    login = nearby.bed.host("login")
    left = ("squeue", "--noheader", "--array", "--format=%K", f"--jobs={job_id}", "--states=PD,R")
    assert sorted(login.run(*left, user="alice").stdout.split()) == ["2", "3", "5"]
    nearby.well("cancel", "--wait", name)


def test_any_of_several_dependencies_is_enough(plugin: Plugin) -> None:
    held = plugin.submitted("-H", "--wrap", "true")
    first = plugin.submitted("--wait", "--wrap", "true")
    either = plugin("submit", "--wait", "-d", f"afterok:{held}?afterok:{first}", "--wrap", "echo either")
    assert either.returncode == 0, either.stderr
    plugin.well("cancel", held)


def test_results_are_asked_for_by_path_and_claim(plugin: Plugin) -> None:
    shown = plugin.well("submit", "--dry-run", "-o", "yaml", "--collect", "plots=claim", "--wrap", "true")
    kubectl = [str(plugin.bed.places.state / "bin/kubectl"), "create", "--dry-run=server", "--filename=-"]
    ended = subprocess.run(
        [*kubectl, "--namespace=alice"],
        input=shown,
        capture_output=True,
        text=True,
        check=False,
        env=plugin.env,
    )
    assert ended.returncode == 0, ended.stderr
    assert yaml.safe_load(shown)["spec"]["results"]["from"] == ["plots"]


# ---------------------------------------------------------------------------------------------- actions


def test_a_job_is_held_released_and_cancelled(plugin: Plugin) -> None:
    name = plugin.submitted("-H", "--wrap", "sleep 600")
    eventually(lambda: "(JobHeldUser)" in plugin.well("queue", name))
    assert "kubectl slurm release" in plugin.well("explain", name)
    assert "is released" in plugin.well("release", name)
    eventually(lambda: " R " in plugin.well("queue", name))
    refused = plugin("hold", name)
    assert refused.returncode == 1
    assert "only waiting jobs are held" in refused.stderr
    cancelled = plugin.well("cancel", "--wait", name)
    assert re.fullmatch(rf"{name} \(.*\) is cancelled\n{name} \(.*\) ended CANCELLED\n", cancelled)
    explained = plugin.well("explain", name)
    assert "ended CANCELLED" in explained
    assert re.search(r"Stdout: +/\S+/slurm-\d+\.out\n", explained)
    assert name in plugin.well("history")
    assert "CANCELLED AT" in plugin.well("logs", name)
    assert "has ended" in plugin("cancel", name).stderr
    assert "is deleted" in plugin.well("cancel", "--delete", "--wait", name)
    gone = plugin("queue", name)
    assert (gone.returncode, gone.stdout) == (1, "")


def test_jobs_are_cancelled_by_partition_and_state(plugin: Plugin) -> None:
    held, elsewhere = (plugin.submitted("-H", "-p", name, "--wrap", "true") for name in ("long", "debug"))
    eventually(lambda: plugin.well("queue", held, elsewhere).count("PD") == 2)
    assert plugin.well("cancel", "--me", "-p", "long", "-t", "PD", "--wait").count(held) == 2
    assert "PD" in plugin.well("queue", elsewhere)
    plugin.well("cancel", elsewhere)


def test_a_running_job_is_suspended_by_a_cancel_which_is_said_and_resumed(plugin: Plugin) -> None:
    name = plugin.submitted("--wrap", "sleep 600")
    eventually(lambda: " R " in plugin.well("queue", name))
    assert "it is cancelled, and runs again from the beginning" in plugin.well("suspend", name)
    eventually(lambda: "(Suspended)" in plugin.well("queue", name))
    assert "is resumed" in plugin.well("resume", name)
    eventually(lambda: " R " in plugin.well("queue", "-o", "wide", name))
    plugin.well("cancel", name)


def test_a_requeue_runs_the_same_job_once_more_and_slurms_refusal_is_said(plugin: Plugin) -> None:
    name = plugin.submitted("--wrap", "sleep 600")
    stays = plugin.submitted("--no-requeue", "--wrap", "sleep 600")
    eventually(lambda: plugin.well("queue", name, stays).count(" R ") == 2)
    assert "is queued again: run 2" in plugin.well("requeue", name)
    refused = plugin("requeue", stays)
    assert refused.returncode == 1
    assert "was not requeued" in refused.stderr
    items = json.loads(plugin.well("queue", "-o", "json", name, stays))["items"]
    assert {item["metadata"]["name"]: item["status"]["run"] for item in items} == {name: 2, stays: 1}
    plugin.well("cancel", name, stays)


# ---------------------------------------------------------------------------------------------- looking


def test_the_queue_of_all_namespaces_and_mine(plugin: Plugin, running: str) -> None:
    everywhere = plugin.well("queue", "-A", "--me")
    assert re.search(rf"alice +\d+ +debug +{running} +alice +R", everywhere)
    assert plugin.well("queue", "-o", "name", running) == f"slurmjob.redbox.dev/{running}\n"


def test_partitions_are_listed(plugin: Plugin) -> None:
    names = [line.split()[0].rstrip("*") for line in plugin.well("info", "--noheader").splitlines()]
    assert sorted(names) == ["GPU_big", "debug", "long"]


def test_the_doctor_goes_the_whole_way(nearby: Plugin) -> None:
    ended = nearby("doctor")
    assert ended.returncode == 0, ended.stdout
    assert "ok service account default on hpc1: Unix user alice; accounts biology, physics" in ended.stdout
    assert {line[:2] for line in ended.stdout.splitlines()} == {"ok"}
    kubectl = [*nearby.inside, "kubectl", "get", "slurmcluster", "hpc1", "--output=json"]
    shown = subprocess.run(kubectl, check=True, env=nearby.env, capture_output=True, text=True).stdout
    assert {"operator", "requeue"} <= {*json.loads(shown)["status"]["operatorRoles"]}


def test_the_doctor_names_what_is_wrong_with_its_cure(plugin: Plugin) -> None:
    ended = plugin("doctor", "--service-account=stranger")
    assert ended.returncode == 1
    assert "cure:" in ended.stdout


def test_usage_and_the_start_of_the_job_behind_are_slurms_own(nearby: Plugin, running: str) -> None:
    """Slurm's scheduler computes starts each half minute, by the time limits of what runs."""
    node = json.loads(nearby.well("queue", "-o", "json", running))["items"][0]["status"]["nodeList"]
    behind = nearby.submitted("--exclusive", f"--nodelist={node}", "-t", "1", "--wrap", "true")

    def measured() -> re.Match[str] | None:
        return re.search(rf"{running} +\S+ +\d+% +1 +\d+:\d+ +\d+% +\S+M +100M +\d+%", nearby.well("top"))

    eventually(measured)
    expected = rf"Starts: +Slurm expects it to start at \S+, in about \d+ min, on {node} \("
    eventually(lambda: re.search(expected, nearby.well("explain", behind)))
    listed = rf"{behind} +alice +PD +20\S+ +{node} +\("
    assert re.search(listed, nearby.well("queue", "--start"))
    nearby.well("cancel", behind)


def test_an_ended_job_has_its_efficiency_as_seff_shows_it(nearby: Plugin) -> None:
    """40 MB of 200, and at most one of two CPUs; the bed's slurmds measure every 5 s."""
    uses = "timeout 6 yes >/dev/null & head -c 40000000 /dev/zero | tail -n1 | sleep 11; wait"
    name = nearby.submitted("--wait", "-c", "2", "--mem=200M", "-t", "5", "--wrap", uses)
    ended = rf"{name} +0:(\d+) +(\d+)% +2 +0:(\d+) +(\d+)% +\S+M +200M +(\d+)%"
    found = eventually(lambda: re.search(ended, nearby("top", name).stdout))
    elapsed, time_share, cpu_time, cpu_share, memory_share = map(int, found.groups())
    assert elapsed >= 11
    assert time_share == round(elapsed / 3)
    part_of_a_second = 100 / (2 * elapsed)  # which its time does not show, and its share does, rounded
    assert abs(cpu_share - 100 * cpu_time / (2 * elapsed)) <= part_of_a_second + 0.5
    assert 0 < cpu_share <= 60
    assert 19 <= memory_share < 60
    shares = f"{cpu_share}% +{memory_share}% +{time_share}% +COMPLETED"
    assert re.search(rf"{name} .* {shares}", nearby.well("history", "--efficiency"))


def test_stderr_alone_is_red_boxs_where_kubernetes_cannot_tell(nearby: Plugin) -> None:
    name = nearby.submitted("--wait", "--wrap", "echo out; echo err >&2")
    assert nearby.well("logs", "--stderr", name) == "err\n"
    assert nearby.well("logs", "--stdout", name) == "out\n"


# ---------------------------------------------------------------------------------------------- bad input


def test_no_kubeconfig_an_expired_login_and_a_wrong_context_each_have_their_cure(
    plugin: Plugin, tmp_path: Path
) -> None:
    none = plugin("queue", env={"KUBECONFIG": "", "HOME": str(tmp_path)})
    assert (none.returncode, none.stderr.count("\n")) == (1, 1)
    assert "there is no kubeconfig" in none.stderr
    config = yaml.safe_load(plugin.bed.places.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": "expired"}
    (tmp_path / "expired").write_text(yaml.safe_dump(config))
    expired = plugin("queue", env={"KUBECONFIG": str(tmp_path / "expired")})
    assert "log in again" in expired.stderr
    assert "no context ghost" in plugin("queue", "--context=ghost").stderr


def test_a_login_programs_words_are_shown_and_its_failure_is_a_sentence(
    plugin: Plugin, tmp_path: Path
) -> None:
    config = yaml.safe_load(plugin.bed.places.kubeconfig.read_text())
    script = "echo 'open https://login.example.org' >&2; exit 1"
    execute = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    for user in config["users"]:
        user["user"] = {"exec": {**execute, "interactiveMode": "Never"}}
    (tmp_path / "login").write_text(yaml.safe_dump(config))
    ended = plugin("queue", env={"KUBECONFIG": str(tmp_path / "login")})
    assert "open https://login.example.org" in ended.stderr
    assert "log in again" in ended.stderr


def test_without_rights_the_missing_one_is_named(plugin: Plugin) -> None:
    ended = plugin("queue", "--as=eve")
    assert ended.returncode == 1
    assert "redbox-viewer" in ended.stderr


# ---------------------------------------------------------------------------------------------- completion


def test_kubectl_completes_names_of_jobs(plugin: Plugin, running: str) -> None:
    words = ["kubectl", "__complete", "slurm", "logs", "--namespace=alice", running[:4]]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, env=plugin.env)
    assert running in ended.stdout.splitlines()


def test_bash_completes_commands_and_names(plugin: Plugin, running: str) -> None:
    with terminal(["env", *(f"{name}={value}" for name, value in plugin.env.items()), "bash", "--norc"]) as (
        _,
        screen,
    ):
        os.write(screen, b"source <(kubectl-slurm completion bash); echo rea''dy\n")
        read_until(screen, rb"ready")
        os.write(screen, b"kubectl-slurm -n alice expl\t" + running[:4].encode() + b"\t")
        read_until(screen, rb"explain " + running.encode())
