"""A runner as it is sent to a node, with a stand-in for Apptainer and the pods that tests make."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redbox.runner.program_source import runner_source
from redbox_api.pod_parts import PodProgram
from redbox_api.pod_report import ContainerReport, PodReport

BOX = "docker://box:1"
LIMIT_S = 60
REGISTRY = {
    BOX: {
        "Env": [f"PATH={os.environ['PATH']}", "OF_IMAGE=$HOME"],
        "Entrypoint": ["sh", "-c"],
        "Cmd": ["echo default"],
        "WorkingDir": "/",
    }
}


def container(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": BOX, "command": ["sh", "-c", script], **more}


class Run:
    """One pod that runs."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], scratch: Path) -> None:
        self.folder = folder
        self.process = process
        self.scratch = scratch

    def reports(self) -> list[PodReport]:
        path = self.folder / "report.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [PodReport.model_validate_json(line) for line in lines if line.endswith(b"\n")]

    def wait_for(self, condition: Callable[[PodReport], bool]) -> PodReport:
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and self.process.poll() is None:
            reports = self.reports()
            if reports and condition(reports[-1]):
                return reports[-1]
            time.sleep(0.02)
        raise AssertionError(self.reports()[-1:])

    def wait_done(self) -> PodReport:
        """Of a runner that is no longer this process's own."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            if (reports := self.reports()) and reports[-1].done:
                return reports[-1]
            time.sleep(0.02)
        raise AssertionError(self.reports()[-1:])

    def delete(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> PodReport:
        self.process.wait(LIMIT_S)
        report = self.reports()[-1]
        assert report.done
        assert list(self.scratch.iterdir()) == []
        assert not (self.folder / "pod.json").exists()
        return report

    def log(self, name: str, restart: int = 0) -> str:
        return (self.folder / "logs" / f"{name}-{restart}.log").read_text()


class Node:
    """A node with the stand-in in its PATH."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self._python = python
        (folder / "bin").mkdir()
        (folder / "scratch").mkdir()
        (folder / "runner.py").write_bytes(runner_source())
        program = Path(__file__).with_name("stand_in.py").read_text()
        (folder / "bin/apptainer").write_text(f"#!{sys.executable} -IS\n{program}")
        (folder / "bin/apptainer").chmod(0o755)
        self.serve(REGISTRY)
        self.cache = folder / "cache"
        self.program = folder / "runner.py"
        self.start_by: list[str] = []
        """Words before the runner's command."""
        self.path = f"{folder}/bin:{os.environ['PATH']}"
        self._runs = 0

    def serve(self, registry: dict[str, Any]) -> None:
        (self.folder / "bin/registry.json").write_text(json.dumps(registry))

    def start(
        self,
        *,
        images_within_s: float = 0.0,
        prepare: Callable[[Path], object] = lambda _: None,
        **pod: Any,
    ) -> Run:
        """`prepare` gets the private folder before the runner starts."""
        self._runs += 1
        private = self.folder / f"private-{self._runs}"
        private.mkdir(mode=0o700)
        values = {"name": "web", "namespace": "team", "uid": "u-1", "scratch": str(self.folder / "scratch")}
        program = PodProgram.model_validate({"restartPolicy": "Never", **values, **pod})
        document = program.model_dump(mode="json", by_alias=True)
        document["paths"] = {
            "logs": str(private / "logs"),
            "cache": str(self.cache),
            "keepDays": 30,
            "imagesWithinS": images_within_s,
        }
        (private / "pod.json").write_text(json.dumps(document))
        prepare(private)
        argv = [*self.start_by, self._python, "-IS", str(self.program), str(private)]
        process = subprocess.Popen(argv, env={"PATH": self.path}, cwd="/")
        return Run(private, process, self.folder / "scratch")

    def run(self, **pod: Any) -> PodReport:
        return self.start(**pod).wait()


def state_of(report: PodReport, name: str) -> ContainerReport:
    return next(row for row in report.containers if row.name == name)


def end_of(report: PodReport, name: str) -> tuple[int, str]:
    end = state_of(report, name).state.terminated
    assert end is not None, report
    return end.exit_code, end.reason


def reasons(report: PodReport, name: str) -> list[str]:
    return [event.reason for event in report.events if event.container == name]
