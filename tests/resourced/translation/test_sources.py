"""The one source of a volume, a projection and a variable is the one that becomes files and values."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from redbox_resourced.translation.errors import Unsupported
from tests.resourced.translation.factories import container, pod, program, secret

VALID: dict[str, Any] = {
    "emptyDir": {},
    "hostPath": {"path": "/scratch"},
    "persistentVolumeClaim": {"claimName": "c"},
    "secret": {"secretName": "s"},
    "configMap": {"name": "m"},
    "projected": {"sources": [{"secret": {"name": "s"}}]},
    "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]},
    "nfs": {"server": "a", "path": "/"},
    "unknown": {"path": "/"},
}
REFERENCES: dict[str, Any] = {
    "secrets": {"s": secret(k="1")},
    "config_maps": {"m": {"data": {"k": "2"}}},
    "claims": {"c": "/home/alice/v"},
}
SOURCES = st.dictionaries(st.sampled_from([*VALID]), st.booleans(), max_size=3).map(
    lambda chosen: {name: VALID[name] if is_there else None for name, is_there in chosen.items()}
)


@hypothesis.given(SOURCES)
@hypothesis.settings(max_examples=300, deadline=None)
def test_the_volume_of_a_job_is_that_of_the_only_source(volume: dict[str, Any]) -> None:
    names = {name for name, source in volume.items() if source is not None}
    given = pod(volumes=[{"name": "v", **volume}])
    if len(names) != 1 or names & {"nfs", "unknown"}:
        with pytest.raises(Unsupported) as refusal:
            program(given, **REFERENCES)
        assert names & {"nfs", "unknown"} or all(name in str(refusal.value) for name in names)
        return
    [made] = program(given, **REFERENCES).volumes
    [name] = names
    assert (made.empty_dir is not None) == (name == "emptyDir")
    if made.host_path is not None:
        assert made.host_path.path == {"hostPath": "/scratch", "persistentVolumeClaim": "/home/alice/v"}[name]
    if made.files is not None:
        assert made.files.secret == (name in {"secret", "projected"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]), "emptyDir and hostPath"),
        (
            pod(
                volumes=[
                    {
                        "name": "v",
                        "projected": {"sources": [{"secret": {"name": "s"}, "configMap": {"name": "m"}}]},
                    }
                ]
            ),
            "spec.volumes[v].projected: it has configMap and secret",
        ),
        (
            pod(container(envFrom=[{"secretRef": {"name": "s"}, "configMapRef": {"name": "m"}}])),
            "configMapRef and secretRef",
        ),
        (
            pod(
                container(
                    env=[
                        {
                            "name": "A",
                            "valueFrom": {
                                "secretKeyRef": {"name": "s", "key": "k"},
                                "configMapKeyRef": {"name": "m", "key": "k"},
                            },
                        }
                    ]
                )
            ),
            "configMapKeyRef and secretKeyRef",
        ),
        (
            pod(
                container(
                    env=[
                        {
                            "name": "A",
                            "value": "1",
                            "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}},
                        }
                    ]
                )
            ),
            "it has value and valueFrom",
        ),
    ],
)
def test_two_sources_are_refused_by_both_names(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Unsupported, match="keep") as refusal:
        program(given, **REFERENCES)
    assert words in str(refusal.value)
