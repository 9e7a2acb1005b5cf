"""The commands that end: hooks of pods and programs of slurmctld. They start often, and import little."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from redbox_slurmpod.node.epilog import epilog
from redbox_slurmpod.node.instance_id import OwnRecord, ensure_record
from redbox_slurmpod.node.pre_stop import PreStop
from redbox_slurmpod.pod import this_pod
from redbox_slurmpod.poke import poke


def pre_stop() -> None:
    pod = this_pod()
    PreStop(pod.node, pod.uid).run()


def instance_id() -> None:
    pod = this_pod()
    record = OwnRecord(pod.node, pod.uid, pod.address, os.environ.get("REDBOX_KEYS", ""))
    ensure_record(record)


HOOKS: Mapping[str, Callable[[], None]] = {
    "epilog": epilog,
    "instance-id": instance_id,
    "poke": poke,
    "pre-stop": pre_stop,
}
