"""From what is asked for to a SlurmJob that the operator can read."""

from __future__ import annotations

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
    in_options,
    manifests_of,
    read_script,
    stem_of,
    wrapped,
)
from kubectl_slurm.sbatch.requested import read_command_line
from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.sbatch_options import read_options
from redbox_operator.api.slurmjob import LONGEST_NAME, SlurmJobSpec

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
    for wrong in ("singleton", "afterok", "afterok:a?afterok:b,afterok:c", "afterok:a?", "later:a", *never):
        with pytest.raises(BadUsage, match="--dependency"):
            made("-d", wrong)


def test_one_of_several_dependencies_is_enough() -> None:
    words = ["-d", "afterok:a:12?afterany:b"]
    assert list(dependency_ids(words[1])) == ["12"]
    given = made(*words, ids={"12": "first"}).slurmjob["spec"]
    assert given["dependsOn"] == [{"name": "a"}, {"name": "first"}, {"name": "b", "type": "afterany"}]
    assert given["dependsOnAny"] is True
    assert "dependsOnAny" not in spec("-d", "afterok:a,afterany:b")
    with pytest.raises(BadUsage, match="12 is none"):
        made(*words)


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


@pytest.mark.parametrize("line", ["#!/bin/bash -l", "#!/usr/bin/env python3", "#!/bin/tcsh"])
def test_arguments_go_to_the_script_whatever_its_interpreter(line: str) -> None:
    script = BatchScript(f"{line}\nx\n", "train.py")
    given = spec("-p", "long", "train.py", "--lr", "0.1", "it's $HOME", "", script=script)
    assert (given["batch"], given["arguments"]) == (script.text, ["--lr", "0.1", "it's $HOME", ""])


def test_arguments_of_a_container_are_its_command() -> None:
    given = spec("--container", "docker://alpine", "cat", "/etc/os-release", script=None)
    assert "arguments" not in given
    assert given["container"]["args"] == ["/etc/os-release"]


def test_a_sentence_about_fields_names_the_options_that_were_typed() -> None:
    words = 'spec.array: Invalid value: "x"; resources.memPerNode, spec.resources.nodes, workingDirectory: /x'
    assert in_options(words) == '--array: Invalid value: "x"; --mem, --nodes, --chdir: /x'
    assert in_options("spec.batch: Too long; partition: long") == "spec.batch: Too long; partition: long"


@pytest.mark.parametrize("option", ["-N", "-n", "--ntasks-per-node", "-c"])
def test_a_number_beyond_a_field_is_for_sbatch_to_judge(option: str) -> None:
    assert made(option, "99999999").slurmjob["spec"]["options"]


def test_a_wrapped_command_is_a_script_of_sh() -> None:
    assert wrapped("hostname").text.startswith("#!/bin/sh\n")
    assert wrapped("hostname").text.endswith("\nhostname\n")


def test_an_option_that_red_box_would_refuse_is_refused_here() -> None:
    with pytest.raises(RequestRefused):
        read_options(["--comment=x"])
    with pytest.raises(BadUsage):
        read_command_line(["--comment=x", "job.sh"])
