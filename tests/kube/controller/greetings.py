"""Greetings: each owns a ConfigMap with its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pydantic import Field

from redbox_kube.api.kinds import CONFIG_MAP, Kind
from redbox_kube.api.objects import Object
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.kube_object import ConditionedStatus, KubeObject, read_object
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.owned import DesiredObject, OwnedObjects
from redbox_kube.controller.status_reporter import StatusReporter, StatusVerdict
from redbox_kube.controller.steps import ReconcileStep, Reports, StepOutcome
from redbox_kube.controller.watched import WatchedKind
from redbox_kube.status.models import KubeModel
from redbox_kube.status.status_writer import StatusWriter


class GreetingSpec(KubeModel):
    text: str = Field(max_length=100, description="The text of the ConfigMap.")


class GreetingStatus(ConditionedStatus):
    config_map: str | None = Field(None, description="The name of the ConfigMap.")


class Greeting(KubeObject):
    spec: GreetingSpec
    status: GreetingStatus = GreetingStatus()


GREETINGS = Kind("example.dev", "v1", "greetings", "Greeting", model=Greeting)


@dataclass(frozen=True)
class World:
    greeting: Greeting
    config_maps: Mapping[str, Object]


class Greetings:
    def __init__(self, writer: StatusWriter, metrics: ControllerMetrics) -> None:
        self._owned = OwnedObjects(writer, GREETINGS, [CONFIG_MAP])
        greetings = WatchedKind(writer.objects, GREETINGS, reduced=partial(read_object, Greeting))
        steps = [ReconcileStep("ConfigMap", self._apply)]
        how = Reconciliation[Greeting, World](
            self._observe, steps, report=StatusReporter(writer, GREETINGS, status_of)
        )
        self.controller = Controller("greetings", greetings, how, metrics, watches=self._owned.watches)

    async def _observe(self, greeting: Greeting) -> World:
        return World(greeting, self._owned.of(greeting, CONFIG_MAP))

    async def _apply(self, world: World) -> StepOutcome:
        return StepOutcome(did=await self._owned.apply(world.greeting, [config_map_of(world.greeting)]))


def config_map_of(greeting: Greeting) -> DesiredObject:
    return DesiredObject(CONFIG_MAP, f"{greeting.name}-text", {"data": {"text": greeting.spec.text}})


def status_of(world: World, _: Reports) -> StatusVerdict:
    return GreetingStatus(config_map=next(iter(world.config_maps), None)), []
