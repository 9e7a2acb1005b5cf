"""Lines of users: what is refused, with its reason, and that no value begins a line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from redbox_hosting.api.daemons import AccountingSpec
from redbox_hosting.build.config.node_conf import node_options, worker_size
from redbox_hosting.build.config.slurm_conf import cluster_files
from redbox_hosting.build.config.slurmdbd_conf import DatabaseAddress, slurmdbd_conf
from redbox_shared.hosted_settings import keys
from redbox_shared.hosted_settings.keys import LOADS_CODE, NOT_BUILT, NOT_LISTED, RELIED_ON
from redbox_shared.hosted_settings.lines import BARE, NOT_BARE, SYNTAX
from tests.hosting.factories import inputs, node_set

DATABASE = DatabaseAddress("db", 3306, "slurm_acct_db", "slurm", "secret")


def refused(text: str) -> list[str]:
    return [str(refusal) for refusal in cluster_files(inputs({"extraConf": text})).refused]


@pytest.mark.parametrize(
    ("line", "what", "why"),
    [
        ("PluginDir=/home/alice", "PluginDir", LOADS_CODE),
        ("plugindir=/home/alice", "plugindir", LOADS_CODE),
        ("PlugStackConfig=/tmp/x", "PlugStackConfig", LOADS_CODE),
        ("JobSubmitPlugins=lua", "JobSubmitPlugins", LOADS_CODE),
        ("TaskProlog=/tmp/x", "TaskProlog", LOADS_CODE),
        ("RebootProgram=/tmp/x", "RebootProgram", LOADS_CODE),
        ("MailProg=/tmp/x", "MailProg", LOADS_CODE),
        ("Include /etc/passwd", "Include /etc/passwd", LOADS_CODE),
        ("Include=/etc/passwd", "Include", LOADS_CODE),
        ("SlurmctldHost=evil", "SlurmctldHost", RELIED_ON),
        ("AuthType=auth/none", "AuthType", RELIED_ON),
        ("ReturnToService=2", "ReturnToService", RELIED_ON),
        ("StateSaveLocation=/tmp", "StateSaveLocation", RELIED_ON),
        ("SuspendTime=10", "SuspendTime", RELIED_ON),
        ("SuspendProgram=/tmp/x", "SuspendProgram", LOADS_CODE),
        ("SlurmctldParameters=idle_on_node_suspend", "SlurmctldParameters", RELIED_ON),
        ("Prolog=/tmp/x", "Prolog", keys.USE_FIELD),
        ("NodeName=n[1-9]", "NodeName", keys.STATIC_NODE),
        ("TopologyPlugin=topology/tree", "TopologyPlugin", NOT_BUILT),
        ("PrologFlags=X11", "PrologFlags", NOT_BUILT),
        ("BrandNewKey=1", "BrandNewKey", NOT_LISTED),
        ("MpiDefault=evil", "MpiDefault=evil", "it can be none, pmix, pmi2"),
        ("KillWait=5 PluginDir=/x", "KillWait=5 PluginDir=...", "write each key in a line of its own"),
        ("KillWait=5 \\", "KillWait=5 \\", SYNTAX),
        ("KillWait=5 # why", "KillWait=5 # why", SYNTAX),
        ("just words", "just words", SYNTAX),
        ("PartitionName=a,b Nodes=ALL", "PartitionName=a,b", "it is not a name"),
        ("PartitionName=p Alternate=q", "partition p: Alternate", NOT_LISTED),
        ("NodeSet=x Feature=x Weight=1", "NodeSet=x Weight", NOT_LISTED),
        ('Licenses="a:1 ReturnToService=2"', 'Licenses="a:1 ReturnToService=2"', NOT_BARE),
        ("Licenses=a=1", "Licenses=a=1", NOT_BARE),
        ('LaunchParameters="a, b"', 'LaunchParameters="a, b"', NOT_BARE),
        (
            'PartitionName=p Nodes="w ReturnToService=2"',
            'partition p: Nodes="w ReturnToService=2"',
            "it is not a list of nodes",
        ),
    ],
)
def test_a_line_is_refused_by_its_name_with_the_reason(line: str, what: str, why: str) -> None:
    assert refused(line) == [f"{what} is refused: {why}"]
    text = cluster_files(inputs({"extraConf": line})).files["slurm.conf"]
    assert "evil" not in text
    assert "/tmp/x" not in text
    assert "PluginDir" not in text
    assert "ReturnToService=2" not in text


def test_no_key_is_both_allowed_and_refused() -> None:
    assert keys.SLURM_KEYS.keys() & keys.REFUSED.keys() == set()
    assert all(key == key.lower() for key in keys.REFUSED)
    used = {line.partition("=")[0].lower() for line in cluster_files(inputs()).files["slurm.conf"].split()}
    ours = used - keys.SLURM_KEYS.keys() - {"nodeset", "feature"}
    assert ours <= keys.REFUSED.keys(), "each key that we rely on is refused by name"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("slurm.conf", RELIED_ON),
        ("cgroup.conf", RELIED_ON),
        ("plugstack.conf", LOADS_CODE),
        ("job_submit.lua", LOADS_CODE),
        ("topology.yaml", NOT_BUILT),
        ("slurm.key", NOT_LISTED.replace("keys", "files")),
    ],
)
def test_a_file_that_is_not_allowed_is_refused(name: str, why: str) -> None:
    files = cluster_files(inputs(config_files={name: "x"}))
    assert [str(refusal) for refusal in files.refused] == [f"file {name!r} is refused: {why}"]
    assert files.files.get(name) != "x"


def test_a_users_file_reads_no_other_file() -> None:
    files = cluster_files(inputs(config_files={"gres.conf": "Name=gpu\n INCLUDE /etc/slurm/slurm.key\n"}))
    assert files.refused[0].what == "file 'gres.conf': INCLUDE /etc/slurm/slurm.key"


@pytest.mark.parametrize("text", ["Incl\\\nude /etc/slurm/slurm.key\n", "Name=gpu \\ \nCount=1", "x\\"])
def test_no_line_of_a_users_file_goes_on_in_the_next(text: str) -> None:
    files = cluster_files(inputs(config_files={"gres.conf": text}))
    assert [refusal.why for refusal in files.refused] == [RELIED_ON]
    assert files.files["gres.conf"] != text


@pytest.mark.parametrize("name", ["slurm.key", "gres.conf", "a/b", "..", "a b", "x\ny", "x.lua"])
def test_a_script_cannot_take_the_place_of_a_file(name: str) -> None:
    files = cluster_files(inputs(scripts={"Prolog": {name: "#!/bin/sh\n"}}))
    assert len(files.refused) == 1
    assert "Prolog" not in files.files["slurm.conf"]


@pytest.mark.parametrize("config", ["MaxTime=1\nPluginDir=/x", "State=UP\tX=\r"])
def test_the_options_of_a_node_sets_partition_are_one_line(config: str) -> None:
    with pytest.raises(ValidationError):
        node_set(partition={"enabled": True, "config": config})


# ------------------------------------------------------------------------------------------------ injection
PIECES = st.one_of(
    st.sampled_from(list("\n\r\t =#\\\"',-[]\x00\x0b\x0c\x85\u2028")),
    st.characters(codec="utf-8"),
    st.sampled_from(["PluginDir=/evil", "Include /evil", "PartitionName=evil", "KillWait=1", "Nodes=ALL"]),
    st.sampled_from(['"a ReturnToService=2"', '"a State=CLOUD CPUs=64"']),
)
LINE = re.compile(r"[A-Za-z]+=[^\n]*")
QUOTED = {"licenses": "Licenses=", "launch": "LaunchParameters=", "nodes": "PartitionName=p Nodes="}
FIELDS = (
    *QUOTED,
    "clusterName",
    "extraConf",
    "partition",
    "maxTime",
    "qos",
    "accounts",
    "nodeSet",
    "config",
    "script",
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FIELDS), st.lists(PIECES, min_size=1, max_size=12).map("".join))
def test_no_field_of_a_user_injects_a_line(field: str, text: str) -> None:
    text = QUOTED.get(field, "") + text
    try:
        case = {
            "clusterName": lambda: inputs({"clusterName": text}),
            "extraConf": lambda: inputs({"extraConf": text}),
            "partition": lambda: inputs({"redbox": {"partitions": [{"name": text}]}}),
            "maxTime": lambda: inputs({"redbox": {"partitions": [{"name": "p", "maxTime": text}]}}),
            "qos": lambda: inputs({"redbox": {"partitions": [{"name": "p", "qos": text}]}}),
            "accounts": lambda: inputs({"redbox": {"partitions": [{"name": "p", "allowAccounts": [text]}]}}),
            "nodeSet": lambda: inputs({"redbox": {"partitions": [{"name": "p", "nodeSets": [text]}]}}),
            "config": lambda: inputs(node_sets=(node_set(partition={"enabled": True, "config": text}),)),
            "script": lambda: inputs(scripts={"Prolog": {text: "#!/bin/sh\n"}}),
        }["extraConf" if field in QUOTED else field]()
    except ValidationError:
        return  # the API server refuses it, too
    files = cluster_files(case).files
    allowed = keys.SLURM_KEYS.keys() | {"partitionname", "nodeset", "prolog"}
    plain = {line.partition("=")[0] for line in cluster_files(inputs()).files["slurm.conf"].splitlines()}
    for line in files["slurm.conf"].split("\n")[:-1]:
        assert LINE.fullmatch(line)
        assert "\\" not in line
        assert "#" not in line
        key = line.partition("=")[0]
        assert key in plain or key.lower() in allowed
        unquoted = re.sub(r'="[^"]*"', "=x", line)
        if key == "NodeSet":
            assert re.fullmatch(r"NodeSet=\S+( (Feature|Nodes)=\S+)*", unquoted)
        elif key != "PartitionName":
            assert not re.search(r"=.*\s\w+=", unquoted), "a second key in a line"
    assert sum(line.startswith("AuthType=") for line in files["slurm.conf"].splitlines()) == 1


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(keys.NODE_KEYS)), st.lists(PIECES, min_size=1, max_size=12).map("".join))
def test_no_option_of_a_node_set_adds_another_one(key: str, text: str) -> None:
    try:
        nodes = node_set(extraConf=f"{key}={text}")
    except ValidationError:
        return  # the API server refuses it, too
    for option in node_options(nodes, worker_size(nodes)).text.split(" "):
        name, _, value = option.partition("=")
        assert name in {*keys.NODE_KEYS.values(), "CPUs", "RealMemory"}
        assert BARE.fullmatch(value)


# ------------------------------------------------------------------------------------------------ slurmdbd
def test_slurmdbd_conf() -> None:
    spec = AccountingSpec.model_validate({"extraConf": "PurgeJobAfter=12month\nPluginDir=/x\n"})
    made = slurmdbd_conf("acct", spec, DATABASE)
    assert [str(refusal) for refusal in made.refused] == [f"PluginDir is refused: {LOADS_CODE}"]
    assert made.text.splitlines() == [
        "DbdHost=acct-accounting-0",
        "DbdPort=6819",
        "SlurmUser=slurm",
        "AuthType=auth/slurm",
        "AuthInfo=use_client_ids",
        "AuthAltTypes=auth/jwt",
        "AuthAltParameters=jwt_key=/etc/slurm/jwt.key",
        "StorageType=accounting_storage/mysql",
        "StorageHost=db",
        "StoragePort=3306",
        "StorageLoc=slurm_acct_db",
        "StorageUser=slurm",
        "StoragePass=secret",
        "LogTimeFormat=iso8601_ms,format_stderr",
        "PidFile=/run/slurmdbd/slurmdbd.pid",
        "PurgeJobAfter=12month",
    ]


@pytest.mark.parametrize("password", ["a\nPluginDir=/x", "a b", 'a"b', "a#b", "a\\b", "", "x" * 257])
def test_a_password_that_slurmdbd_would_read_otherwise_is_refused_and_not_shown(password: str) -> None:
    database = DatabaseAddress("db", 3306, "d", "u", password)
    made = slurmdbd_conf("acct", AccountingSpec(), database)
    assert [refusal.what for refusal in made.refused] == ["the database's password"]
    assert "StoragePass=\n" in made.text
    assert not any(password and password in str(refusal) for refusal in made.refused)
