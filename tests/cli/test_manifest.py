"""From what is asked for to a SlurmJob that the operator can read."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kubectl_slurm.errors import BadUsage
from kubectl_slurm.sbatch.manifest import (
    LARGEST_BATCH,
    LARGEST_CONFIGMAP,
    LONGEST_STEM,
    BatchScript,
    Manifests,
    dependency_ids,
    manifests_of,
    read_script,
    stem_of,
    with_arguments,
    wrapped,
)
from kubectl_slurm.sbatch.requested import read_command_line
from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.sbatch_options import read_options
from redbox_operator.api.slurmjob import LONGEST_NAME, SlurmJobSpec
from redbox_shared.sbatch_options import read_directives

SCRIPT = BatchScript("#!/bin/bash\n#SBATCH -p long -J Big_Job\nsrun true\n", "/home/alice/train.sh")


def made(*words: str, script: BatchScript | None = SCRIPT, ids: dict[str, str] | None = None) -> Manifests:
    manifests = manifests_of(read_command_line(words), script, ids)
    SlurmJobSpec.model_validate(manifests.slurmjob["spec"])  # the operator and the CRD accept it
    return manifests


def spec(*words: str, script: BatchScript | None = SCRIPT) -> dict[str, Any]:
    return dict(made(*words, script=script).slurmjob["spec"])


def test_sbatchs_options_become_fields_of_the_same_meaning() -> None:
    words = (
        "-p debug -A physics -q high -N 2 -n 8 -c 4 -t 1-12:00:00 --mem 4G --gpus-per-node a100:2 --gres fs:1"
    )
    more = "-a 0-9%4 -o out-%j -e err-%j -D /scratch -b now+1hour -H"
    assert spec(*words.split(), *more.split()) == {
        "batch": SCRIPT.text,
        "partition": "debug",
        "account": "physics",
        "qos": "high",
        "resources": {
            "nodes": 2,
            "tasks": 8,
            "cpusPerTask": 4,
            "time": "1-12:00:00",
            "memPerNode": "4G",
            "gpusPerNode": "a100:2",
            "gres": "fs:1",
        },
        "array": "0-9%4",
        "output": "out-%j",
        "error": "err-%j",
        "workingDirectory": "/scratch",
        "begin": "now+1hour",
        "hold": True,
    }


def test_what_has_no_field_or_not_its_form_is_passed_to_sbatch_which_accepts_it() -> None:
    options = spec("-N", "2-4", "--mem=4GB", "-C", "gpu&big", "--exclusive", "-G", "4")["options"]
    assert options == ["--nodes=2-4", "--mem=4GB", "--constraint=gpu&big", "--exclusive", "--gpus=4"]
    assert read_options(options) == options


def test_the_scripts_lines_stay_the_scripts_and_only_its_name_is_read() -> None:
    manifest = made().slurmjob
    assert manifest["spec"] == {"batch": SCRIPT.text}
    assert manifest["metadata"] == {"generateName": "big-job-"}
    named = made("-J", "Other").slurmjob
    assert named["metadata"] == {"generateName": "other-"}
    assert named["spec"]["options"] == ["--job-name=Other"]
    assert made("--name", "exactly").slurmjob["metadata"] == {"name": "exactly"}
    assert made(script=BatchScript("#!/bin/sh\n", "a/run me.sh")).slurmjob["metadata"] == {
        "generateName": "run-me-"
    }


def test_any_job_name_becomes_one_that_kubernetes_takes() -> None:
    assert stem_of("Ärger mit_Namen!") == "rger-mit-namen"
    assert stem_of("...") == "job"
    assert len(stem_of("x" * 300)) == LONGEST_STEM
    assert LONGEST_STEM + len("-abcde") <= LONGEST_NAME


def test_dependencies_name_slurmjobs_and_ids_become_their_names() -> None:
    words = ["-d", "afterok:prepare:12,afterany:other"]
    assert list(dependency_ids(words[1])) == ["12"]
    assert made(*words, ids={"12": "first"}).slurmjob["spec"]["dependsOn"] == [
        {"name": "prepare"},
        {"name": "first"},
        {"name": "other", "type": "afterany"},
    ]
    assert made("-d", "afterok:12_3:prepare,afterany:7").slurmjob["spec"] | {"batch": ""} == {
        "batch": "",
        "dependsOn": [{"name": "prepare"}],
        "dependsOnJobs": [{"jobID": "12_3"}, {"jobID": "7", "type": "afterany"}],
    }
    assert list(dependency_ids("afterok:slurmjob/2024:20")) == ["20"]
    assert made("-d", "afterok:slurmjob/2024").slurmjob["spec"]["dependsOn"] == [{"name": "2024"}]
    never = ("after:12+30", "afterok:12_[1-3]", "afterok:Prepare")  # no SlurmJob has such a name: for ever
    for wrong in ("singleton", "afterok", "afterok:a?afterok:b", "later:a", *never):
        with pytest.raises(BadUsage, match="--dependency"):
            made("-d", wrong)


def test_a_folder_is_one_of_the_slurm_cluster() -> None:
    assert spec("-D", "{home}/run")["workingDirectory"] == "{home}/run"
    for relative in ("run", "~/run", "."):
        with pytest.raises(BadUsage, match="absolute path"):
            made("-D", relative)


def test_variables_and_results() -> None:
    given = spec(
        "--export=A=1,B=2", "--env", "C=x,y", "--collect", "plots/*=claim", "--collect", "a.txt=claim"
    )
    assert given["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2"},
        {"name": "C", "value": "x,y"},
    ]
    volume = {"persistentVolumeClaim": {"claimName": "claim"}}
    assert given["results"] == {"from": ["plots/*", "a.txt"], "volume": volume}
    for wrong in (
        ["--export=ALL"],
        ["--export=HOME"],
        ["--collect", "plots"],
        ["--collect=a=x", "--collect=b=y"],
    ):
        with pytest.raises(BadUsage):
            made(*wrong)


def test_a_container_has_its_command() -> None:
    words = ["--container", "/images/cow.sif", "sh", "-c", "echo $A"]
    manifest = made(*words, script=None).slurmjob
    container = {"image": "/images/cow.sif", "command": ["sh"], "args": ["-c", "echo $A"]}
    assert manifest["spec"]["container"] == container
    assert manifest["metadata"] == {"generateName": "cow-"}


def test_a_script_that_a_slurmjob_does_not_hold_goes_into_a_config_map() -> None:
    fits = BatchScript("#!/bin/sh\n" + "#" * (LARGEST_BATCH - 10), "job.sh")
    assert made(script=fits).config_map is None
    longer = BatchScript(fits.text + "#", "job.sh")
    manifests = made("--name", "long", script=longer)
    assert manifests.config_map is not None
    assert manifests.config_map["data"] == {"script.sh": longer.text}
    reference = manifests.slurmjob["spec"]["batchFrom"]["configMapKeyRef"]
    assert reference == {"name": manifests.config_map["metadata"]["name"], "key": "script.sh"}
    assert "batch" not in manifests.slurmjob["spec"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"echo hi\n", "does not look like a batch script"),
        (b"#!/bin/sh\r\ntrue\r\n", "dos2unix"),
        (b"#!/bin/sh\n\0", "NUL byte"),
        (b"#!/bin/sh\n\xff\n", "not UTF-8"),
        (b"#!" + b"x" * LARGEST_CONFIGMAP, "at most"),
    ],
)
def test_what_is_no_batch_script_is_refused_with_the_cure(data: bytes, words: str) -> None:
    with pytest.raises(BadUsage, match=words):
        read_script(data, "job.sh")


@pytest.mark.parametrize("shell", ["#!/bin/sh", "#!/bin/bash -l", "#!/usr/bin/env bash", "#! /bin/dash"])
def test_arguments_arrive_as_they_were_given(shell: str, tmp_path: Path) -> None:
    body = (
        '#SBATCH -n 1\n\nprintf "%s|" "$@"\necho "line $LINENO"\n'
        if "dash" not in shell
        else 'printf "%s|" "$@"\n'
    )
    arguments = ["a b", "$HOME", "it's", "", "*"]
    script = with_arguments(BatchScript(f"{shell}\n{body}", "job.sh"), arguments)
    file = tmp_path / "job.sh"
    file.write_text(script.text)
    file.chmod(0o755)
    ended = subprocess.run([file], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("a b|$HOME|it's||*|")
    if "bash" in shell:
        assert ended.stdout.endswith("line 5\n")  # as in the script that was given
    assert script.text.startswith(shell)


@pytest.mark.parametrize(
    "line",
    ["#!/usr/bin/env python3", "#!/bin/tcsh", "#!/bin/csh -f", "#!/usr/bin/env tcsh", "#!/usr/bin/fish"],
)
def test_arguments_need_a_shell_with_set(line: str) -> None:
    with pytest.raises(BadUsage, match="scripts of a shell"):
        with_arguments(BatchScript(f"{line}\n", "job.py"), ["a"])


def test_arguments_keep_all_the_lines_that_sbatch_reads() -> None:
    script = BatchScript("#!/bin/bash\n  # indented\n#SBATCH -N 4\n\t# a tab\n#SBATCH -p long\nsrun x\n", "x")
    lines = read_directives(with_arguments(script, ["a"]).text)
    assert [(line.name, line.value) for line in lines] == [("nodes", "4"), ("partition", "long")]


def test_a_wrapped_command_is_a_script_of_sh() -> None:
    assert wrapped("hostname").text.startswith("#!/bin/sh\n")
    assert wrapped("hostname").text.endswith("\nhostname\n")


def test_an_option_that_red_box_would_refuse_is_refused_here() -> None:
    with pytest.raises(RequestRefused):
        read_options(["--comment=x"])
    with pytest.raises(BadUsage):
        read_command_line(["--comment=x", "job.sh"])
