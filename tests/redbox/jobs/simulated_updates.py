"""Updates of pods, as a simulated Slurm takes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import ActionResult, WorkloadManagerError
from redbox_api.pod_parts import PodUpdate


@dataclass(kw_only=True)
class SimulatedUpdates:
    """Those that were written for a runner, by mark."""

    updates: list[tuple[str, PodUpdate]] = field(default_factory=list)
    update_fault: WorkloadManagerError | None = None
    refuse_updates: str = ""

    async def update_pod(self, user: UnixUser, mark: str, _: str, update: PodUpdate) -> ActionResult:
        del user
        if self.update_fault is not None:
            raise self.update_fault
        self.updates.append((mark, update))
        return ActionResult(done=not self.refuse_updates, detail=self.refuse_updates)
