"""The commands that end: hooks of pods and programs of slurmctld. They start often, and import little."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redbox_slurmpod.node.epilog import epilog
from redbox_slurmpod.node.instance_id import ensure_instance_id
from redbox_slurmpod.node.pre_stop import PreStop
from redbox_slurmpod.pod import this_pod
from redbox_slurmpod.poke import poke


def pre_stop() -> None:
    pod = this_pod()
    PreStop(pod.node, pod.uid).run()


def instance_id() -> None:
    pod = this_pod()
    ensure_instance_id(pod.node, pod.uid, pod.address)


HOOKS: Mapping[str, Callable[[], None]] = {
    "epilog": epilog,
    "instance-id": instance_id,
    "poke": poke,
    "pre-stop": pre_stop,
}
