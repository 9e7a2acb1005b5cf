"""Text leaves a program only where `redbox_shared.printable` is called: no other place writes any.

A new place to write to belongs into one of these functions, or is added here with its own call.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.lint.names import PACKAGES, all_names, names_in
from tests.lint.sources import ROOT, sources

WRITES = ("print", "typer.echo", "click.echo", "sys.stdout.write", "sys.stderr.write", "self.out.write")
WRITERS = {
    ("redbox/redbox/commands/exit_codes.py", "say"),
    ("redbox/redbox/cli.py", "invoke"),
    ("companion/redbox_companion/exec_program.py", "main"),
    ("companion/redbox_companion/run.py", "run"),
    ("operator/redbox_kube/install/crd_commands.py", "say"),
    ("cli/kubectl_slurm/commands/completion.py", "print_candidates"),
    ("cli/kubectl_slurm/terminal/screen.py", "write"),
    ("cli/kubectl_slurm/terminal/screen.py", "note"),
    ("cli/kubectl_slurm/terminal/screen.py", "confirmed"),
    ("cli/kubectl_slurm/kubectl/program.py", "_write_stderr"),
}
OWN_WORDS = {
    ("redbox/redbox/cli.py", "_print_version"),
    ("redbox/redbox/setup/install/example_settings.py", ""),
    ("companion/redbox_companion/cli.py", "main"),
    ("companion/redbox_companion/cli.py", "_print"),
    ("operator/redbox_kube/runtime/version_option.py", "print_version"),
    ("operator/redbox_kube/install/crd_commands.py", "show"),
    ("cli/kubectl_slurm/cli.py", "_print"),
    ("cli/kubectl_slurm/commands/completion.py", "run"),
    ("cli/kubectl_slurm/commands/convert.py", "run"),
    ("cli/kubectl_slurm/commands/submission.py", "run"),
    ("cli/kubectl_slurm/terminal/screen.py", "clear"),
}
"""Fixed texts: versions, help, the CRDs; manifests, of a dry run or converted, are escaped by `documents`.

`convert` passes the text of other manifests through where `printable` would change nothing.
"""
OTHER_EDGES = {
    ("redbox/redbox/commands/output.py", "_cell"),  # tables on a terminal
    ("redbox/redbox/http/answers/problems.py", "document"),
    ("redbox/redbox/http/slurm_exposition.py", "_gauges"),
    ("redbox/redbox/http/slurm_exposition.py", "unavailable"),
    ("redbox/redbox_api/errors.py", "__init__"),
    ("redbox/redbox_api/log.py", "_printable"),
    ("redbox/redbox_shared/own_lines.py", "own_line"),
    ("redbox/redbox_shared/job_end.py", "encode_message"),
    ("operator/redbox_hosting/controllers/workers/acts/pod_status.py", "_write"),
    ("operator/redbox_kube/api/events.py", "body"),
    ("operator/redbox_kube/api/objects.py", "apply_status"),
    ("operator/redbox_kube/status/models.py", "_printable"),  # of StatusPart
    ("resourced/redbox_resourced/nodes/server_side_apply.py", "_send"),
    ("resourced/redbox_resourced/pods/reported/status_writes.py", "write"),
    ("resourced/redbox_resourced/pods_condition.py", "_write"),
}
OWN_OBJECTS = {
    ("operator/redbox_hosting/attach.py", "attach"),
    ("operator/redbox_kube/controller/owned.py", "_apply"),
    ("operator/redbox_kube/install/crd_upgrade.py", "upgrade_crds"),
    ("resourced/redbox_resourced/service_endpoints/reconciler.py", "_reconcile_pod"),
}
"""Applied as they are: a script of a ConfigMap must arrive unchanged."""
CHECKS_ONLY = {
    "operator/redbox_hosting/build/users/unix_lines.py",
    "redbox/redbox/jobs/submit/submit_request.py",
    "redbox/redbox/agents/transports/ssh_login.py",
    "companion/redbox_companion/redbox_client.py",
    "resourced/redbox_resourced/translation/pod_fields.py",
    "cli/kubectl_slurm/commands/completion.py",
}
"""They refuse or leave out what is not printable."""


def places(*names: str) -> set[tuple[str, str]]:
    return {(path, function) for path, function, name in all_names() if name in names}


def test_programs_write_only_in_functions_that_make_text_printable() -> None:
    assert places(*WRITES) == WRITERS | OWN_WORDS


def test_each_edge_calls_the_one_function() -> None:
    assert places("printable", "printable_texts") >= WRITERS | OTHER_EDGES


def test_what_is_applied_is_printable_or_an_object_of_our_own() -> None:
    applied = {(path, function) for path, function, name in all_names() if name.endswith("objects.apply")}
    assert applied - OTHER_EDGES == OWN_OBJECTS
    assert not places("printable", "printable_texts") & OWN_OBJECTS


def test_no_module_has_a_rule_of_its_own_for_what_is_printable() -> None:
    own = {path for path, _, name in all_names() if name.endswith(".isprintable")}
    assert own == {"redbox/redbox_shared/printable.py", *CHECKS_ONLY}


def test_events_and_logs_have_one_writer() -> None:
    kinds = {
        path
        for package in PACKAGES
        for path in sources(ROOT / package)
        if path.suffix == ".py" and '"kind": "Event"' in path.read_text()
    }
    assert kinds == {ROOT / "operator/redbox_kube/api/events.py"}
    configured = places("structlog.configure", "logging.basicConfig")
    assert configured == {("redbox/redbox_api/log.py", "configure_log")}


def test_each_model_of_a_status_makes_its_texts_printable() -> None:
    bases = {
        (node.name, ast.unparse(base))
        for path in sources(ROOT / "operator/redbox_operator/api")
        if path.name.endswith("_status.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    unprintable = {name for name, base in bases if base in {"BaseModel", "KubeModel"}}
    assert unprintable == set()


def test_a_bypass_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("def show(text):\n    sys.stdout.write(text)\n")
    assert ("show", "sys.stdout.write") in names_in(module)
