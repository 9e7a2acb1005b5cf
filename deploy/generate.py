"""Makes what deploy/ holds twice, so that neither half is ever the older one.

The chart's CRDs and the schema of its SlurmClusters come from the operator's models, its README from schema
and values, the plain manifests from the chart, and so does what the tests expect it to render. The pod of a
red-box in chart-personal and chart-slurm is that of the chart.

`make generate` writes them; with --check, those that are not as they would be made are named, and it ends
with 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from redbox_bed.core.places import Places
from redbox_bed.programs.helm import ensure_helm
from redbox_errors.page import errors_page
from redbox_hosting.api.crds import hosting_crds
from redbox_hosting.api.field_names import field_names_module
from redbox_hosting.signals_page import signals_page
from redbox_operator.api.crds import all_crds
from redbox_reference.kinds_page import kinds_page
from redbox_resourced.translation.reference_page import pods_page

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "chart"
CRDS = CHART / "crds" / "redbox.yaml"
HOSTING_CRDS = CHART / "hosting" / "crds.yaml"
"""Not in crds/, which Helm always installs."""
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"
POD = Path("templates/_redbox-pod.tpl")
PERSONAL_CHART, SLURM_CHART = DEPLOY / "chart-personal", DEPLOY / "chart-slurm"
MADE_FROM_CHART = "{{/* Made by `make generate` from deploy/chart; do not edit. */}}\n"
MANIFESTS = DEPLOY / "manifests.yaml"
KINDS = DEPLOY.parent / "docs/reference/kinds.md"
HOSTING_KINDS = DEPLOY.parent / "docs/reference/hosting-kinds.md"
HOSTING_BEGIN = """\
# The kinds of hosted Slurm, field by field

Generated from the CRDs by `make generate`. Slurm clusters that Kubernetes runs are in development: fields may
change between commits.
"""
HOSTING_FIELDS = DEPLOY.parent / "cli/kubectl_slurm/slinky/known_fields.py"
HOSTING_SIGNALS = DEPLOY.parent / "docs/reference/hosting-signals.md"
PODS = DEPLOY.parent / "docs/reference/pods.md"
ERRORS = DEPLOY.parent / "docs/reference/errors.md"
DASHBOARDS = DEPLOY / "dashboards.yaml"
DATA_SOURCE = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
EXAMPLES = DEPLOY.parent / "tests" / "deploy" / "chart"

NAMESPACE = "redbox-system"
REGISTRY = "registry.example.org/red-box"
MANIFESTS_BEGIN = f"""\
# Red Box without Helm: what the chart installs by its defaults. Made by `make generate`; do not edit.
#
#   sed 's|{REGISTRY}|YOUR-REGISTRY|' deploy/manifests.yaml | kubectl apply --server-side -f -
#
# Then apply the SlurmCluster that `redbox init` printed. An upgrade is the same command with the newer file.
# To remove Red Box, first run, with your own kubeconfig, what the chart's hook runs:
#
#   redbox-operator uninstall --namespace {NAMESPACE}
#
# Without it SlurmJobs keep a finalizer that is never removed. Then delete these objects.
---
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""
NO_SPEC_OF_OURS = "x-kubernetes-"
REQUIRED = object()  # no default


def crds() -> str:
    """All CRDs, as `redbox-operator crds` prints them."""
    return yaml.safe_dump_all(all_crds(), sort_keys=False)


def kinds() -> str:
    """Every field of every kind, for people."""
    return kinds_page(all_crds())


class _PlainDumper(yaml.SafeDumper):
    """Without anchors: not every reader of CRDs knows them."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def crds_of_hosting() -> str:
    """The CRDs of hosted Slurm, each leaf in one line: pods have many fields."""
    return yaml.dump_all(
        hosting_crds(), Dumper=_PlainDumper, sort_keys=False, default_flow_style=None, width=200
    )


def kinds_of_hosting() -> str:
    """Every field of every kind of hosted Slurm, for people."""
    return kinds_page(hosting_crds(), HOSTING_BEGIN)


def schema() -> str:
    """The schema of the values, with the SlurmCluster's own spec in its place."""
    written: dict[str, Any] = json.loads(SCHEMA.read_text())
    for crd in all_crds():
        if crd["metadata"]["name"] == "slurmclusters.redbox.dev":
            properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
            fields = _strict(properties["spec"])
            # Of a red-box in the cluster the chart fills in what is required.
            required = {"required": fields.pop("required")}
            written["definitions"]["slurmClusterFields"] = fields
            written["definitions"]["slurmCluster"] = {
                "allOf": [{"$ref": "#/definitions/slurmClusterFields"}],
                **required,
            }
    return json.dumps(written, indent=2, ensure_ascii=False) + "\n"


def _strict(node: Any) -> Any:  # noqa: ANN401 (any JSON)
    """The same schema for a person's eyes: no field that it does not know, nothing of Kubernetes' own."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _strict(value) for key, value in node.items() if not key.startswith(NO_SPEC_OF_OURS)}
    if made.get("type") == "object" and isinstance(made.get("properties"), dict):
        made["additionalProperties"] = False
    return made


def readme() -> str:
    """The values as tables: names and defaults from values.yaml, what they mean from the schema."""
    described = json.loads(SCHEMA.read_text())
    redbox = described["definitions"]["redbox"]
    of_redboxes = _table(_rows(redbox, described, _defaults(redbox, described)))
    return readme_of(CHART).replace("{{REDBOX_VALUES}}", of_redboxes)


def readme_of(chart: Path) -> str:
    described = json.loads((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    text = (chart / "README.md.in").read_text()
    return text.replace("{{VALUES}}", _table(_rows(described, described, values)))


def _table(rows: Iterator[tuple[str, str, str]]) -> str:
    lines = [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in rows]
    return "\n".join(["| value | default | what it means |", "|---|---|---|", *lines])


def _defaults(node: Mapping[str, Any], root: Mapping[str, Any]) -> object:
    """The defaults that the schema states, for values under names of an administrator's own."""
    if "default" not in node and "$ref" in node:
        node = root["definitions"][node["$ref"].rpartition("/")[2]]
    if "default" not in node and "properties" in node:
        return {name: _defaults(child, root) for name, child in node["properties"].items()}
    return node.get("default", REQUIRED)


def _rows(
    node: Mapping[str, Any], root: Mapping[str, Any], values: object, name: str = ""
) -> Iterator[tuple[str, str, str]]:
    if "$ref" in node:
        node = root["definitions"][node["$ref"].rpartition("/")[2]]
    if "properties" in node:
        for key, child in node["properties"].items():
            if isinstance(values, dict) and key in values:
                yield from _rows(child, root, values[key], f"{name}.{key}" if name else key)
        return
    default = "" if values is REQUIRED else f"`{json.dumps(values)}`"
    allowed = f" One of {', '.join(f'`{value}`' for value in node['enum'])}." if "enum" in node else ""
    yield name, default, f"{node['description']}{allowed}".replace("|", "\\|")


def copied_pod() -> str:
    """The templates that the charts have: a link between them has Helm warn at each installation."""
    return MADE_FROM_CHART + (CHART / POD).read_text()


def manifests() -> str:
    """The chart by its defaults, without a word of Helm."""
    lines = _rendered("--include-crds", "--no-hooks", "--set", f"images.registry={REGISTRY}").splitlines()
    return MANIFESTS_BEGIN + "\n".join(line for line in lines if "managed-by: Helm" not in line) + "\n"


def example(values: Path) -> str:
    """The chart by a file of values, but for the CRDs."""
    return _rendered("--values", str(values))


def grafana_json(dashboard: Mapping[str, Any]) -> str:
    """One dashboard as Grafana reads it; beside its queries all panels are alike."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    content = {
        "uid": dashboard["uid"],
        "title": dashboard["title"],
        "tags": ["slurm", "red-box"],
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "schemaVersion": 39,
        "templating": {
            "list": [DATA_SOURCE, *(_variable(source, *each) for each in dashboard["variables"].items())]
        },
        "panels": [_panel(source, number, panel) for number, panel in enumerate(dashboard["panels"])],
    }
    return json.dumps(content, ensure_ascii=False) + "\n"


def _variable(source: Mapping[str, str], name: str, query: str) -> Mapping[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": source,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(source: Mapping[str, str], number: int, panel: Mapping[str, Any]) -> Mapping[str, Any]:
    width, height, in_a_row = 8, 8, 3
    place = {"x": number % in_a_row * width, "y": number // in_a_row * height, "w": width, "h": height}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel.get("description", ""),
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.get("unit", "short"), "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + order), "expr": expression, "legendFormat": legend, "datasource": source}
            for order, (legend, expression) in enumerate(panel["queries"].items())
        ],
    }


def _rendered(*options: str) -> str:
    helm = ensure_helm(Places.of(), lambda text: print(text, file=sys.stderr))
    command = [
        str(helm),
        "template",
        "red-box",
        str(CHART),
        "--namespace",
        NAMESPACE,
        *options,
    ]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if ended.returncode:
        sys.exit(ended.stderr)
    lines = (line.rstrip() for line in ended.stdout.splitlines() if not line.startswith("# Source:"))
    return "".join(f"{line}\n" for line in lines)


def generated() -> Iterator[tuple[Path, Callable[[], str]]]:
    """Each file and how it is made, after those that it is made from."""
    yield from (
        (KINDS, kinds),
        (HOSTING_KINDS, kinds_of_hosting),
        (HOSTING_SIGNALS, signals_page),
        (HOSTING_CRDS, crds_of_hosting),
        (HOSTING_FIELDS, field_names_module),
        (PODS, pods_page),
        (ERRORS, partial(errors_page, DEPLOY.parent)),
        (CRDS, crds),
        (SCHEMA, schema),
        (README, readme),
        (SLURM_CHART / "README.md", partial(readme_of, SLURM_CHART)),
        (PERSONAL_CHART / POD, copied_pod),
        (SLURM_CHART / POD, copied_pod),
        (MANIFESTS, manifests),
    )
    for dashboard in yaml.safe_load(DASHBOARDS.read_text()):
        yield CHART / "dashboards" / f"{dashboard['uid']}.json", partial(grafana_json, dashboard)
    for values in sorted(EXAMPLES.glob("*.values.yaml")):
        rendered = values.with_name(values.name.replace(".values.", ".rendered."))
        yield rendered, partial(example, values)


def main(arguments: list[str]) -> int:
    """Write all, or check all."""
    stale = []
    for file, make in generated():
        made = make()
        if not file.exists() or file.read_text() != made:
            stale.append(file)
            if "--check" not in arguments:
                _replace(file, made)
    if "--check" in arguments and stale:
        print("not as `make generate` makes them:", *stale, sep="\n    ")
        return 1
    return 0


def _replace(file: Path, content: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as unfinished:
        unfinished.write(content)
    path = Path(unfinished.name)
    path.chmod(0o644)
    path.replace(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
