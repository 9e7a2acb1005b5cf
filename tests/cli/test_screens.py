"""What stands on a terminal, wide and narrow, and what is printed where there is none."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from kubectl_slurm.terminal.screen import note
from tests.cli.factories import slurmcluster, slurmjob
from tests.cli.harness import PROGRAM, Kubectl, run, terminal


def test_the_queue_has_squeues_columns_on_a_terminal(kubectl: Kubectl) -> None:
    with terminal("queue", env=kubectl.environment()) as shown:
        assert shown.end() == 0
        heading, new, running, waiting = shown.lines
        assert heading.startswith("   JOBID  PARTITION  NAME         USER   ST")
        assert heading.endswith("NODES  NODELIST(REASON)")
        assert running.split()[:5] == ["12", "debug", "train-abc12", "alice", "R"]
        assert running.endswith("2  n[1-2]")
        assert waiting.startswith("13_[0-9]  debug      wait-def34   alice  PD")
        assert waiting.endswith("(Priority)")
        assert new.split() == ["-", "new-ghi56", "-", "0:00", "(NoSuchCluster)"]
        assert (shown.colour_of("PD"), shown.colour_of("alice")) == ("brown", "default")


def test_forty_columns_show_the_most_important_ones_in_whole_lines(kubectl: Kubectl) -> None:
    with terminal("queue", env=kubectl.environment(), columns=40) as shown:
        assert shown.end() == 0
        assert shown.lines == [
            "   JOBID  NAME         ST  NODELIST(REA…",
            "       -  new-ghi56    -   (NoSuchClust…",
            "      12  train-abc12  R   n[1-2]",
            "13_[0-9]  wait-def34   PD  (Priority)",
        ]


def test_a_long_name_leaves_room_for_the_reason(kubectl: Kubectl) -> None:
    waits = slurmjob(
        "heat-of-a-long-study-in-november-x7k2p", "Submitted", state="PENDING", reason="Priority"
    )
    kubectl.answers("jobs", [waits])
    with terminal("queue", env=kubectl.environment(), columns=40) as shown:
        assert shown.end() == 0
        assert shown.lines[1] == "heat-of-a-long-study-…  PD  (Priority)"


@pytest.mark.parametrize(
    "words", [["info"], ["history"], ["queue", "-A", "-o", "wide"], ["queue", "-t", "all"]]
)
@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_of_a_table_is_wider_than_the_terminal(
    kubectl: Kubectl, words: list[str], columns: int
) -> None:
    with terminal(*words, env=kubectl.environment(NO_COLOR="1"), columns=columns) as shown:
        assert shown.end() == 0
        lines = shown.raw.decode().splitlines()
        assert len(lines) > 1
        assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(kubectl: Kubectl, setting: dict[str, str]) -> None:
    with terminal("queue", env=kubectl.environment(**setting)) as shown:
        assert shown.end() == 0
        assert b"\x1b" not in shown.raw


def test_without_a_terminal_nothing_is_cut_and_nothing_has_a_colour(kubectl: Kubectl) -> None:
    name = "x" * 59
    kubectl.answers("jobs", [slurmjob(name, state="RUNNING")])
    ended = run(kubectl, "queue", env=kubectl.environment(COLUMNS="40"))
    assert ended.returncode == 0
    assert name in ended.stdout
    assert "\x1b" not in ended.stdout
    assert ended.stderr == ""


def test_a_strangers_text_cannot_change_the_terminal(kubectl: Kubectl) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2Jgone\nanother line"
    kubectl.answers("jobs", [slurmjob(state="RUNNING", nodeList=hostile, message=hostile)])
    ended = run(kubectl, "queue", "-o", "wide")
    assert "\x1b" not in ended.stdout
    assert "\x07" not in ended.stdout
    assert len(ended.stdout.splitlines()) == 2


def test_a_watched_queue_is_drawn_again_and_ctrl_c_ends_it(kubectl: Kubectl) -> None:
    with terminal("queue", "--watch=0.5", env=kubectl.environment()) as shown:
        shown.until(lambda lines: any("train-abc12" in line for line in lines))
        kubectl.answers("jobs", [slurmjob("other-mno90", state="RUNNING")])
        lines = shown.until(lambda lines: any("other-mno90" in line for line in lines))
        assert not any("train-abc12" in line for line in lines)
        shown.press(b"\x03")
        assert shown.end() == 130
        assert not any("Traceback" in line for line in shown.lines)


def test_a_watched_queue_outlives_an_api_server_that_does_not_answer(kubectl: Kubectl) -> None:
    with terminal("queue", "--watch=0.5", env=kubectl.environment()) as shown:
        shown.until(lambda lines: any("train-abc12" in line for line in lines))
        kubectl.forgets("jobs")
        lines = shown.until(lambda lines: "does not answer" in lines[0])
        assert any("train-abc12" in line for line in lines)
        kubectl.answers("jobs", [slurmjob("other-mno90", state="RUNNING")])
        shown.until(lambda lines: any("other-mno90" in line for line in lines))
        shown.press(b"\x03")
        assert shown.end() == 130


NO_KINDS = "error: the server does not have a resource type slurmjobs: could not find the requested resource"
EXPIRED = "error: You must be logged in to the server (Unauthorized)"


@pytest.mark.parametrize("words", [NO_KINDS, EXPIRED])
def test_a_watched_queue_outlives_what_an_api_server_refuses_while_it_starts(
    kubectl: Kubectl, words: str
) -> None:
    works = kubectl.program.read_text()
    with terminal("queue", "--watch=0.5", env=kubectl.environment()) as shown:
        shown.until(lambda lines: any("train-abc12" in line for line in lines))
        kubectl.becomes(f"#!/bin/sh\necho '{words}' >&2; exit 1\n")
        shown.until(lambda lines: "as it was" in lines[0])
        kubectl.becomes(works)
        shown.until(lambda lines: "Ctrl-C ends this." in lines[0])
        kubectl.becomes(f"#!/bin/sh\necho '{EXPIRED}' >&2; exit 1\n")
        assert shown.end() == 1
        assert "log in again" in " ".join(shown.lines)


def test_a_watched_queue_is_as_wide_as_the_terminal_is_now(kubectl: Kubectl) -> None:
    with terminal("queue", "--watch=0.5", env=kubectl.environment(NO_COLOR="1"), columns=100) as shown:
        shown.until(lambda lines: any("NODELIST(REASON)" in line for line in lines))
        shown.resize(40)
        lines = shown.until(lambda lines: any("NODELIST(REA…" in line for line in lines))
        assert not any("PARTITION" in line for line in lines)


def test_a_watched_queue_keeps_its_heading_on_a_low_screen(kubectl: Kubectl) -> None:
    kubectl.answers("jobs", [slurmjob(f"job-{number}", state="RUNNING") for number in range(50)])
    with terminal("queue", "--watch", env=kubectl.environment(), rows=10) as shown:
        lines = shown.until(lambda lines: any("more" in line for line in lines))
        assert len(lines) == 9
        assert lines[1].lstrip().startswith("JOBID")
        assert lines[-1] == "... and 44 more"


def test_a_state_that_slurm_has_not_is_refused(kubectl: Kubectl) -> None:
    ended = run(kubectl, "queue", "-t", "PD,RUNING")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no state RUNING" in ended.stderr


def test_a_submit_without_an_answer_may_have_been_one(kubectl: Kubectl) -> None:
    kubectl.program.write_text(
        "#!/bin/sh\necho 'Unable to connect to the server: Client.Timeout' >&2; exit 1\n"
    )
    ended = run(kubectl, "submit", "--wrap", "true")
    assert ended.returncode == 1
    assert "may have been submitted" in ended.stderr


def test_a_script_without_an_answer_stays_for_the_job_that_may_need_it(kubectl: Kubectl) -> None:
    works = kubectl.program.read_text()
    away = "echo 'Unable to connect to the server: Client.Timeout' >&2; exit 1"
    script = "#!/bin/sh\n" + "# filling\n" * 30_000
    for refusal, deletes in ((away, False), (away.replace("Unable to connect to", "Error from"), True)):
        kubectl.becomes(
            works.replace("*create*)", f"*create*) case $(cat) in *batchFrom*) {refusal} ;; esac;")
        )
        ended = run(kubectl, "submit", stdin=script)
        assert ended.returncode == 1
        assert any(" delete " in f" {call} " for call in kubectl.calls) is deletes
        assert ("may have been submitted" in ended.stderr) is not deletes


def test_a_submit_does_not_wait_for_a_dependency_that_a_person_has_to_create(kubectl: Kubectl) -> None:
    missing = "depends on SlurmJob ghost, which does not exist."
    pending = slurmjob(phase="Pending", jobID=None, reason="DependencyMissing", message=missing)
    kubectl.answers("job", pending)
    ended = run(kubectl, "submit", "-d", "afterok:ghost", "--wrap", "true")
    assert ended.returncode == 0
    assert ended.stdout == "slurmjob.redbox.dev/train-abc12 created\n"
    assert ended.stderr == f"train-abc12 is not in Slurm yet: {missing}\n"


def test_ctrl_c_while_a_job_is_followed_says_that_it_goes_on(kubectl: Kubectl) -> None:
    kubectl.answers(
        "job", slurmjob(phase="Submitted", state="PENDING", reason="Priority", message="It waits.")
    )
    with terminal("submit", "--follow", "--wrap", "sleep 9", env=kubectl.environment(), columns=120) as shown:
        shown.until(lambda lines: any("train-abc12 is Submitted. It waits." in line for line in lines))
        shown.press(b"\x03")
        assert shown.end() == 130
        text = " ".join(shown.lines)
        assert "train-abc12 goes on." in text
        assert "`kubectl slurm cancel train-abc12` cancels it" in text
        assert "Traceback" not in text


def test_a_terminal_without_unicode_shows_what_it_can(kubectl: Kubectl) -> None:
    kubectl.answers("jobs", [slurmjob(state="RUNNING", message="läuft…")])
    ended = run(kubectl, "queue", "-o", "wide", env=kubectl.environment(PYTHONIOENCODING="ascii"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("l\\xe4uft\\u2026\n")


def in_bash(kubectl: Kubectl, script: str) -> subprocess.CompletedProcess[str]:
    """The script has the program as $0."""
    return subprocess.run(
        ["bash", "-c", script, PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=kubectl.environment(),
    )


def test_a_broken_pipe_is_silent(kubectl: Kubectl) -> None:
    kubectl.answers("jobs", [slurmjob(f"job-{number}", state="RUNNING") for number in range(3000)])
    reader = "head -1; exit ${PIPESTATUS[0]}"
    script = f'set -o pipefail; "$0" queue | {{ {reader}; }}'
    ended = in_bash(kubectl, script)
    assert ended.stderr == ""
    assert ended.stdout.startswith("JOBID")


@pytest.mark.parametrize(
    "words", ["queue --help", "submit --help", "submit --dry-run --wrap true", "completion bash"]
)
def test_what_is_short_has_a_silent_broken_pipe_too(kubectl: Kubectl, words: str) -> None:
    """It is written when the program ends."""
    script = f'exec 3> >(exec true); wait $!; "$0" {words} >&3'  # nobody reads it any more
    ended = in_bash(kubectl, script)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("words", ["queue", "logs train-abc12", "submit --dry-run --wrap true", "--version"])
def test_a_full_disk_is_one_sentence(kubectl: Kubectl, words: str) -> None:
    kubectl.logs("train-abc12-job", "output\n")
    kubectl.answers("job", slurmjob("train-abc12", state="RUNNING"))
    ended = in_bash(kubectl, f'"$0" {words} >/dev/full')
    assert ended.returncode == 1
    assert ended.stderr == "kubectl slurm: the output cannot be written: No space left on device\n"


def test_a_kubectl_that_cannot_be_started_is_one_sentence(kubectl: Kubectl) -> None:
    kubectl.becomes("\x7fELF of another machine")
    ended = in_bash(kubectl, '"$0" queue')
    assert ended.returncode == 1
    assert ended.stderr == f"kubectl slurm: {kubectl.program}: Exec format error\n"


def test_other_forms_are_whole_documents(kubectl: Kubectl) -> None:
    as_json = json.loads(run(kubectl, "queue", "-o", "json").stdout)
    assert [item["metadata"]["name"] for item in as_json["items"]] == [
        "new-ghi56",
        "train-abc12",
        "wait-def34",
    ]
    assert yaml.safe_load(run(kubectl, "queue", "-o", "yaml").stdout) == as_json
    names = run(kubectl, "queue", "-o", "name", "-t", "all").stdout.split()
    assert "slurmjob.redbox.dev/done-jkl78" in names


@pytest.mark.parametrize("words", ["submit --wrap true", "cancel train-abc12", "suspend train-abc12"])
def test_a_job_id_cannot_change_the_terminal(kubectl: Kubectl, words: str) -> None:
    """A SlurmEndpoint is a tenant's own red-box, which may answer any id."""
    kubectl.answers("job", slurmjob("train-abc12", state="RUNNING", jobID="4711\x1b[2J\x9b2J"))
    ended = run(kubectl, *words.split())
    assert ended.returncode == 0
    assert "4711?[2J?2J" in ended.stdout


def test_a_document_cannot_change_the_terminal(kubectl: Kubectl) -> None:
    """U+009B begins a sequence of control characters on terminals, as ESC [ does."""
    hostile = {"batch": "#!/bin/sh\n# \x1b[2J \x9b2J \x7f \u202e\n"}
    kubectl.answers("jobs", [slurmjob(state="RUNNING", spec=hostile)])
    shown = run(kubectl, "queue", "-o", "json").stdout
    assert all(letter.isprintable() for letter in shown.replace("\n", ""))
    assert json.loads(shown)["items"][0]["spec"] == hostile


def test_a_dry_run_shows_the_script_as_a_block_and_asks_no_server(
    kubectl: Kubectl,
) -> None:
    script = "#!/bin/bash\n#SBATCH -p long\necho 'a: b'\n"
    ended = run(kubectl, "submit", "--dry-run", "-o", "yaml", "-N", "2", stdin=script)
    assert "  batch: |\n    #!/bin/bash\n    #SBATCH -p long\n    echo 'a: b'\n" in ended.stdout
    assert yaml.safe_load(ended.stdout)["spec"] == {"batch": script, "resources": {"nodes": 2}}
    assert kubectl.calls == []


def test_a_dry_run_does_not_take_a_job_id_for_a_name(kubectl: Kubectl) -> None:
    ended = run(kubectl, "submit", "--dry-run", "-d", "afterok:12", "--wrap", "true")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "name its SlurmJob" in ended.stderr


def test_partitions_have_limits_and_what_is_free_of_them(kubectl: Kubectl) -> None:
    lines = run(kubectl, "info").stdout.splitlines()
    assert lines[0].split() == [
        "PARTITION",
        "AVAIL",
        "TIMELIMIT",
        "NODES",
        "CPUS",
        "MEMORY",
        "GPUS",
        "STATES",
    ]
    assert lines[1].split() == [
        "debug*",
        "up",
        "30:00",
        "2/3",
        "9/12",
        "11.7G/11.7G",
        "0",
        "2",
        "idle,",
        "1",
        "mixed",
    ]
    assert lines[2].split()[:7] == ["long", "down", "infinite", "3/3", "12/12", "11.7G/11.7G", "0/2"]


def test_a_partition_that_is_not_there_is_named_with_those_that_are(kubectl: Kubectl) -> None:
    nowhere = run(kubectl, "info", "-p", "nowhere")
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert nowhere.stderr == "kubectl slurm: there is no partition nowhere: hpc1 has debug, long\n"
    one_is = run(kubectl, "info", "-p", "nowhere,long", "--noheader")
    assert (one_is.returncode, one_is.stdout.split()[0]) == (1, "long")


@pytest.mark.parametrize("watch", [[], ["--watch"]])
def test_a_queue_of_a_partition_that_is_not_there_names_it_with_those_that_are(
    kubectl: Kubectl, watch: list[str]
) -> None:
    ended = run(kubectl, "queue", "-p", "nowhere", *watch)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "kubectl slurm: there is no partition nowhere: hpc1 has debug, long\n"
    one_is = run(kubectl, "queue", "-p", "nowhere,debug", "--noheader")
    assert (one_is.returncode, len(one_is.stdout.splitlines())) == (1, 2)
    assert one_is.stderr == ended.stderr


def test_clusters_are_listed_only_for_a_partition_without_jobs(kubectl: Kubectl) -> None:
    """A call of kubectl takes as long as the queue itself."""
    assert len(run(kubectl, "queue", "-p", "debug", "--noheader").stdout.splitlines()) == 2
    assert not any("slurmclusters" in call for call in kubectl.calls)
    empty = run(kubectl, "queue", "-p", "long", "--noheader")
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "")
    assert any("slurmclusters" in call for call in kubectl.calls)


def test_where_clusters_are_out_of_sight_any_partition_may_be_there(kubectl: Kubectl) -> None:
    kubectl.forgets("clusters")
    ended = run(kubectl, "queue", "-p", "nowhere", "--noheader")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    kubectl.answers("clusters", [slurmcluster(), slurmcluster(partitionNames=[])])
    assert run(kubectl, "queue", "-p", "nowhere", "--noheader").returncode == 0


def test_a_sentence_of_strangers_words_cannot_change_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note("train: sbatch: \x1b]0;title\x07\x1b[2J\u202egone\n  cure: none")
    assert capsys.readouterr().err == "train: sbatch: ?]0;title??[2J?gone\n  cure: none\n"
