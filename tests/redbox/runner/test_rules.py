"""Kubernetes' rules on variables, entry point, images and restarts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from redbox.runner.program.rules import (
    BackOff,
    ConfigRefused,
    ImageConfig,
    StartFailed,
    build_argv,
    container_environment,
    end_reason,
    expand,
    expand_strictly,
    find_credentials,
    grace_at,
    is_image_name,
    log_end,
    pod_environment,
    restarts,
    start_error,
)

IMAGE = ImageConfig(
    {"Entrypoint": ["/entry", "-x"], "Cmd": ["cmd"], "Env": ["A=of the image", "PATH=/bin", "my.dot=1"]}
)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(NONE)", "$(NONE)"),
        ("$(A", "$(A"),
        ("$A ${A} $", "$A ${A} $"),
        ("$()", "$()"),
        ("$(A)$(B)", "12\n"),
        ("$($(A))", "$($(A))"),
    ],
)
def test_references_are_expanded_as_kubelets_do(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2\n"}) == expanded


def test_a_variable_sees_only_those_before_it_and_none_of_the_image() -> None:
    entries = [
        {"name": "X", "value": "$(Y) $(A)"},
        {"name": "Y", "value": "y"},
        {"name": "Z", "value": "$(Y)$(X)"},
        {"name": "IP", "fromNode": "podIP"},
    ]
    values = pod_environment(entries, {"podIP": "10.0.0.1"})
    assert values == {"X": "$(Y) $(A)", "Y": "y", "Z": "y$(Y) $(A)", "IP": "10.0.0.1"}


def test_the_pods_variables_replace_the_images() -> None:
    values = container_environment(IMAGE, {"A": "of the pod"}, "web")
    assert values == {"A": "of the pod", "PATH": "/bin", "HOSTNAME": "web"}


@pytest.mark.parametrize(
    "own", [{"UID": "0"}, {"BASH_FUNC_mount%%": "() { id; }"}, {"APPEND_PATH": "/x"}, {"TEXT": "dos\r\nline"}]
)
def test_what_apptainer_would_change_is_refused_by_name(own: dict[str, str]) -> None:
    with pytest.raises(StartFailed, match=re.escape(next(iter(own)))):
        container_environment(IMAGE, own, "web")


@pytest.mark.parametrize(
    ("command", "args", "argv"),
    [
        ([], None, ["/entry", "-x", "cmd"]),
        ([], [], ["/entry", "-x", "cmd"]),
        ([], ["a", "$(A)"], ["/entry", "-x", "a", "1"]),
        (["c"], None, ["c"]),
        (["c"], ["a"], ["c", "a"]),
    ],
)
def test_a_command_replaces_the_entry_point_and_drops_its_arguments(
    command: list[str], args: list[str] | None, argv: list[str]
) -> None:
    assert build_argv({"image": "i", "command": command, "args": args}, IMAGE, {"A": "1"}) == argv


def test_a_container_without_any_command_does_not_start() -> None:
    with pytest.raises(StartFailed, match="no command specified"):
        build_argv({"image": "i"}, ImageConfig({}), {})


def test_a_sub_path_needs_all_its_variables() -> None:
    assert expand_strictly("$(A)/$$", {"A": "1"}) == "1/$"
    with pytest.raises(ConfigRefused, match="missing value for B"):
        expand_strictly("$(B)", {"A": "1"})


@pytest.mark.parametrize(
    ("image", "is_name"),
    [
        ("docker://busybox", True),
        ("docker://host:5000/team/app:1.2@sha256:" + "a" * 64, True),
        ("docker://Upper/Case", False),
        ("docker://busy box", False),
        ("docker://", False),
        ("oras://anything", True),
    ],
)
def test_names_of_images_are_checked(image: str, *, is_name: bool) -> None:
    assert is_image_name(image) is is_name


@pytest.mark.parametrize(
    ("image", "users"),
    [
        ("docker://busybox", ["hub"]),
        ("docker://library/busybox", ["hub"]),
        ("docker://host.example/team/app", ["team", "team2", "host"]),
        ("docker://host.example/other/app", ["host"]),
        ("docker://eu.gcr.example/app", ["wildcard"]),
        ("docker://elsewhere.example/app", []),
    ],
)
def test_credentials_of_the_longest_registry_that_matches_come_first(image: str, users: list[str]) -> None:
    registries: dict[str, Any] = {
        "https://index.docker.io/v1/": {"username": "hub"},
        "host.example": {"username": "host"},
        "host.example/team": [{"username": "team"}, {"username": "team2"}],
        "*.gcr.example": {"username": "wildcard"},
    }
    assert [login["username"] for login in find_credentials(image, registries)] == users


def test_restarts_wait_ten_seconds_doubled_to_five_minutes() -> None:
    backoff, now, pauses = BackOff(at_once_first=True), 0.0, []
    for _ in range(8):
        pauses.append(backoff.pause(now))
        now += pauses[-1] + 1
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]


def test_ten_minutes_without_a_failure_begin_the_back_off_again() -> None:
    backoff = BackOff(at_once_first=True)
    assert [backoff.pause(0), backoff.pause(1), backoff.pause(700), backoff.pause(701)] == [0, 10, 0, 10]


@pytest.mark.parametrize(
    ("policy", "kind", "code", "again"),
    [
        ("Never", "main", 1, False),
        ("Never", "init", 1, False),
        ("Never", "sidecar", 0, True),
        ("OnFailure", "main", 0, False),
        ("OnFailure", "main", 1, True),
        ("Always", "main", 0, True),
        ("Always", "init", 0, False),
        ("Always", "init", 1, True),
    ],
)
def test_the_restart_policy(policy: str, kind: str, code: int, *, again: bool) -> None:
    assert restarts(policy, kind, code) is again


def test_reasons_of_ends() -> None:
    ends = [(0, False), (1, False), (137, True), (0, True)]
    found = [end_reason(code, out_of_memory=oom) for code, oom in ends]
    assert found == ["Completed", "Error", "OOMKilled", "Completed"]


def test_an_error_of_apptainer_is_one_only_where_no_program_has_written() -> None:
    fatal = "WARNING: something\nFATAL:   stat /nope: no such file or directory\n"
    source = "source: /.singularity.d/env/10-docker2singularity.sh:3:49: reached EOF\n"
    assert start_error(255, source + fatal) == "stat /nope: no such file or directory"
    assert start_error(1, fatal) is None
    assert start_error(255, "hello\n" + fatal) is None
    assert start_error(255, "") is None


@pytest.mark.parametrize(
    ("after_end", "grace", "kept"), [(0, 30, 25), (60, 600, 25), (0, 10, 10), (-60, 30, 30), (600, 30, 30)]
)
def test_at_the_jobs_time_limit_the_grace_period_is_within_what_slurm_leaves(
    after_end: float, grace: float, kept: float
) -> None:
    assert grace_at(1000.0 + after_end, grace, "1000") == kept
    assert grace_at(1000.0 + after_end, grace, "") == grace


def test_a_cancel_by_slurm_leaves_time_for_the_last_report() -> None:
    """Of Kubernetes' default, which is Slurm's KillWait too; a longer one may be within its GraceTime."""
    found = [grace_at(0.0, grace_s, "", is_slurms=True) for grace_s in (10.0, 30.0, 600.0)]
    assert found == [10.0, 25.0, 600.0]


def test_an_error_of_apptainers_starter_is_one_too() -> None:
    starter = "ERROR  : Failed to create user namespace: not allowed to create user namespace\n"
    assert (
        start_error(255, starter) == "Failed to create user namespace: not allowed to create user namespace"
    )
    assert start_error(255, "\x1b[91mERROR  : no\x1b[0m\n") == "no"
    assert start_error(255, "ERROR: of the container's own program\n") is None


def test_a_fallback_message_is_the_end_of_the_log() -> None:
    log = "".join(f"{number}\n" for number in range(200))
    assert log_end(log).splitlines() == [str(number) for number in range(120, 200)]
    assert log_end("x" * 5000) == "x" * 2048
