"""What a rule may say, and what is refused with its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from redbox.callers.mapping.mapping import MappingRules
from redbox.callers.mapping.rules import USER_NAME, MappingSettings, Rule, RulesDocument
from redbox.callers.mapping.rules_file import ActiveRules, read_rules
from redbox.core.yaml_document import DocumentError, parse_document, validate
from redbox.settings import load_settings, rules_in_force

GOOD = """\
rules:
  - cluster: prod
    namespaces: [physics]
    user: alice
"""

REFUSED: dict[str, tuple[str, str]] = {
    "no kind of caller": ("- {user: alice}", "exactly one of cluster, unix_users and tokens"),
    "two kinds": ("- {cluster: prod, tokens: [a], roles: [reader]}", "exactly one of"),
    "namespaces without a cluster": ("- {unix_users: [alice], namespaces: [a]}", "belong to cluster"),
    "an unknown key": ("- {cluster: prod, namespace: physics, user: a}", "namespace: there is no such key"),
    "a cluster's name": (
        "- {cluster: 'Prod!', namespaces: [a], user: a}",
        "rules[2].cluster: String should match",
    ),
    "an empty list": ("- {cluster: prod, namespaces: [], user: alice}", "an empty list matches no caller"),
    "no namespaces": ("- {cluster: prod, user: alice}", "the role submit needs namespaces"),
    "no user": ("- {cluster: prod, namespaces: [a]}", "the role submit needs a user"),
    "root": ("- {cluster: prod, namespaces: [a], user: root}", "a rule may not map callers to root"),
    "a number as user": (
        "- {cluster: prod, namespaces: [a], user: '2001'}",
        "not a valid name of a Unix user",
    ),
    "a bare number as user": ("- {cluster: prod, namespaces: [a], user: 2001}", "valid string (not '2001')"),
    "an option as user": ("- {cluster: prod, namespaces: [a], user: -x}", "not a valid name of a Unix user"),
    "a part as template": (
        "- {cluster: prod, namespaces: [a], user: 'k8s-{namespace}', allowed_group: staff}",
        "a template is the whole user",
    ),
    "an unknown template": (
        "- {cluster: prod, namespaces: [a], user: '{pod}', allowed_group: staff}",
        "one of {namespace} or {service_account}",
    ),
    "a template without bounds": (
        "- {cluster: prod, namespaces: [a], user: '{namespace}'}",
        "needs allowed_users or allowed_group",
    ),
    "a template in all namespaces": (
        "- {cluster: prod, user: '{namespace}', allowed_group: staff}",
        "the role submit needs namespaces",
    ),
    "a template to root": (
        "- {cluster: prod, namespaces: [a], user: '{namespace}', allowed_users: [root]}",
        "a rule may not map callers to root",
    ),
    "bounds without a template": (
        "- {cluster: prod, namespaces: [a], user: alice, allowed_group: staff}",
        "belong to a templated user",
    ),
    "a pattern that is not anchored": ("- {cluster: prod, namespaces: team-.*, user: a}", "must be anchored"),
    "a pattern that is anchored at one end": ("- {cluster: prod, namespaces: ^team-, user: a}", "anchored"),
    "an invalid pattern": (
        "- {cluster: prod, namespaces: '^team-($', user: a}",
        "not a regular expression",
    ),
    "an invalid namespace": (
        "- {cluster: prod, namespaces: [Team_A], user: a}",
        "not a valid name of a namespace",
    ),
    "an invalid account": (
        "- {cluster: prod, namespaces: [a], service_accounts: ['*'], user: a}",
        "not a valid name of a service account",
    ),
    "an unknown role": ("- {cluster: prod, namespaces: [a], user: a, roles: [admin]}", "not 'admin'"),
    "no roles": ("- {cluster: prod, namespaces: [a], user: a, roles: []}", "at least 1 item"),
    "operator and submit": (
        "- {cluster: prod, namespaces: [a], service_accounts: [b], user: a, roles: [operator, submit]}",
        "an operator submits nothing",
    ),
    "volumes and submit": (
        "- {cluster: prod, namespaces: [a], service_accounts: [b], user: a, roles: [volumes, submit]}",
        "the role volumes submits nothing",
    ),
    "the role volumes by namespace alone": (
        "- {cluster: prod, namespaces: [a], roles: [volumes]}",
        "needs a list of namespaces and of service_accounts",
    ),
    "an operator by namespace alone": (
        "- {cluster: prod, namespaces: [a], roles: [operator]}",
        "needs a list of namespaces and of service_accounts",
    ),
    "a reader with a user": ("- {cluster: prod, user: a, roles: [reader]}", "user is for the role submit"),
    "a user for a token": ("- {tokens: [a], user: alice}", "users of this host and tokens have theirs"),
    "a Slurm account that is an option": (
        "- {cluster: prod, namespaces: [a], user: a, accounts: [--uid=0]}",
        "String should match pattern",
    ),
    "uid 0": ("- {cluster: prod, namespaces: [a], user: a, min_uid: 0}", "greater than or equal to 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_rule_that_may_not_be_is_refused_with_its_line(case: str) -> None:
    written, words = REFUSED[case]
    text = f"{GOOD}\n  # the rule below is wrong\n  {written}\n"
    with pytest.raises(DocumentError) as refusal:
        validate(RulesDocument, parse_document(text, "rules.yaml"))
    assert str(refusal.value).startswith("rules.yaml line 7: rules[2]")
    assert words in str(refusal.value)


def test_every_flaw_is_told_at_once() -> None:
    text = "rules:\n- cluster: prod\n  namespaces: [physics]\n  user: root\n- tokens: []\nrule: 1\n"
    with pytest.raises(DocumentError) as refusal:
        validate(RulesDocument, parse_document(text, "rules.yaml"))
    assert [flaw.line for flaw in refusal.value.flaws] == [4, 5, 6]


@given(st.text(max_size=80))
def test_a_user_name_is_no_path_no_option_no_number_and_one_line(name: str) -> None:
    if USER_NAME.fullmatch(name):
        assert not set(name) & set(" /\\:\n\r\t\0,'\"$;|&<>")
        assert not name.startswith(("-", ".", "@"))
        assert not name.isdigit()


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_template_fills_the_whole_field(before: str, after: str) -> None:
    written = {
        "cluster": "prod",
        "namespaces": ["a"],
        "user": f"{before}{{namespace}}{after}",
        "allowed_group": "staff",
    }
    if before or after:
        with pytest.raises(ValidationError):
            Rule.model_validate(written)
    else:
        assert Rule.model_validate(written).is_template


@dataclass
class Source:
    """Rules of one file, and how often they were read."""

    path: Path
    reads: int = 0

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def read(self) -> MappingRules:
        self.reads += 1
        return MappingRules(read_rules(self.path, ["prod"]))


def in_force(path: Path) -> ActiveRules:
    return ActiveRules(Source(path))


def test_changed_rules_are_in_force_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    rules = in_force(path)
    path.write_text(GOOD.replace("alice", "bob"))
    rules.reload_if_changed()
    assert [rule.user for rule in rules.rules.rules] == ["bob"]


def test_a_bad_file_keeps_the_old_rules_and_says_which_line_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    rules = in_force(path)
    path.write_text(GOOD.replace("alice", "root") + "  - cluster: prod\n    namespaces: [b]\n    user: bob\n")
    assert not rules.reload()
    assert [rule.user for rule in rules.rules.rules] == ["alice"]
    assert [str(flaw) for flaw in rules.flaws] == [
        f"{path} line 4: rules[1].user: a rule may not map callers to root"
    ]
    path.write_text(GOOD)
    rules.reload_if_changed()
    assert rules.flaws == ()


@pytest.mark.parametrize("broken", ["rules: [", "", "\0", "- a"], ids=["cut", "empty", "binary", "list"])
def test_a_file_that_is_being_written_takes_nobodys_rules_away(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    rules = in_force(path)
    path.write_text(broken)
    rules.reload_if_changed()
    assert len(rules.rules.rules) == 1
    path.unlink()
    rules.reload_if_changed()
    assert len(rules.rules.rules) == 1
    assert "cannot be read: No such file" in str(rules.flaws[0])


def test_a_file_that_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    source = Source(path)
    rules = ActiveRules(source)
    rules.reload_if_changed()
    rules.reload_if_changed()
    assert source.reads == 1


def test_there_are_no_rules_to_begin_with_in_a_bad_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("rules: 1")
    with pytest.raises(DocumentError):
        in_force(path)


def test_a_rule_for_a_cluster_that_nobody_comes_from_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD.replace("prod", "pord"))
    with pytest.raises(DocumentError, match=r"line 2: rules\[1\].cluster: 'pord' is not one of .*\(prod\)"):
        in_force(path)


def test_rules_are_given_once() -> None:
    with pytest.raises(ValidationError, match="not in both"):
        MappingSettings(file=Path("/etc/redbox/rules.yaml"), rules=(Rule(unix_users=("*",)),))


SETTINGS = """\
name: hpc1
callers:
  clusters:
  - {name: prod, issuer: x, audience: redbox.dev/hpc1/abcdefgh12, jwks_file: /x}
mapping:
"""
WITHIN = SETTINGS + "  rules:\n  - {cluster: prod, namespaces: [physics], user: alice}\n"


def users(rules: ActiveRules) -> list[str | None]:
    return [rule.user for rule in rules.rules.rules]


def of_settings(path: Path, written: str) -> ActiveRules:
    path.write_text(written)
    return rules_in_force(load_settings(path), path)


def test_rules_may_move_to_a_file_of_their_own_and_back_while_the_server_runs(tmp_path: Path) -> None:
    settings, file = tmp_path / "redbox.yaml", tmp_path / "rules.yaml"
    rules = of_settings(settings, WITHIN)
    file.write_text(GOOD.replace("alice", "bob"))
    settings.write_text(SETTINGS + f"  file: {file}\n  min_uid: 2000\n")
    rules.reload_if_changed()
    assert (users(rules), rules.rules.min_uid, rules.flaws) == (["bob"], 2000, ())

    file.write_text(GOOD.replace("alice", "carol"))
    rules.reload_if_changed()
    assert users(rules) == ["carol"]

    settings.write_text(WITHIN)
    rules.reload_if_changed()
    assert users(rules) == ["alice"]
    file.unlink()
    rules.reload_if_changed()
    assert users(rules) == ["alice"]


def test_a_file_that_is_named_before_it_is_there_leaves_the_old_rules_until_it_is(tmp_path: Path) -> None:
    settings, file = tmp_path / "redbox.yaml", tmp_path / "rules.yaml"
    rules = of_settings(settings, WITHIN)
    settings.write_text(SETTINGS + f"  file: {file}\n")
    rules.reload_if_changed()
    assert users(rules) == ["alice"]
    assert "rules.yaml" in str(rules.flaws[0])

    file.write_text(GOOD.replace("alice", "bob"))
    rules.reload_if_changed()
    assert (users(rules), rules.flaws) == (["bob"], ())


def test_settings_with_a_flaw_leave_the_rules_of_a_file_of_their_own(tmp_path: Path) -> None:
    settings, file = tmp_path / "redbox.yaml", tmp_path / "rules.yaml"
    file.write_text(GOOD)
    rules = of_settings(settings, SETTINGS + f"  file: {file}\n")
    settings.write_text("name: [")
    rules.reload_if_changed()
    assert users(rules) == ["alice"]
    assert "redbox.yaml" in str(rules.flaws[0])
