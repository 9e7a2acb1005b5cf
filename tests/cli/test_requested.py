"""sbatch's command line: read as sbatch reads it, up to the script."""

from __future__ import annotations

import pytest

from kubectl_slurm.errors import BadUsage
from kubectl_slurm.sbatch.requested import read_command_line


def refusal(*words: str) -> str:
    with pytest.raises(BadUsage) as caught:
        read_command_line(words)
    return str(caught.value)


def test_options_end_with_the_script_and_all_after_it_is_the_scripts() -> None:
    requested = read_command_line(["-n", "4", "job.sh", "-n", "5", "--wait"])
    assert requested.sbatch == {"ntasks": "4"}
    assert (requested.script, requested.arguments) == ("job.sh", ["-n", "5", "--wait"])
    assert requested.flags == set()


@pytest.mark.parametrize(
    "words", [["-pdebug"], ["-p", "debug"], ["--partition=debug"], ["--partition", "debug"]]
)
def test_a_value_is_attached_or_follows(words: list[str]) -> None:
    assert read_command_line([*words, "job.sh"]).sbatch == {"partition": "debug"}


def test_letters_without_values_are_joined_and_names_abbreviated() -> None:
    requested = read_command_line(["-HWN2", "--ntasks-per-n=1", "--exclusive", "job.sh"])
    assert requested.flags == {"hold", "wait"}
    assert requested.sbatch == {"nodes": "2", "ntasks-per-node": "1", "exclusive": None}


def test_output_is_a_format_only_beside_a_dry_run() -> None:
    dry = read_command_line(["--dry-run", "-o", "json", "job.sh"])
    assert (dry.format, dry.sbatch) == ("json", {})
    assert read_command_line(["-o", "json", "job.sh"]).sbatch == {"output": "json"}
    named = read_command_line(["--dry-run", "-o", "out-%j.txt", "job.sh"])
    assert (named.format, named.sbatch) == ("yaml", {"output": "out-%j.txt"})


def test_a_container_and_a_wrapped_command_need_no_script() -> None:
    requested = read_command_line(["--container", "docker://alpine", "cat", "/etc/os-release"])
    assert (requested.script, requested.arguments) == (None, ["cat", "/etc/os-release"])


def test_what_is_wrong_is_named_with_its_cure() -> None:
    assert "which of --mail-type, --mail-user?" in refusal("--mail", "job.sh")
    assert "no option --partitoin" in refusal("--partitoin=debug", "job.sh")
    assert "no option -y" in refusal("-y", "job.sh")
    assert "--partition needs a value" in refusal("--partition")
    assert "use --dry-run" in refusal("--test-only", "job.sh")
    assert "kubectl slurm --version" in refusal("-V")
    assert "--contiguous takes no value" in refusal("--contiguous=yes", "job.sh")
    assert "service account decides" in refusal("--uid=0", "job.sh")


def test_usage_is_the_help() -> None:
    assert "help" in read_command_line(["--usage"]).flags
