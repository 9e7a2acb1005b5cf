"""Which configuration a cluster is to have, from its objects, users' ConfigMaps and what Slurm runs now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from redbox_hosting.api import names
from redbox_hosting.api.controller import ControllerSpec, SlurmController
from redbox_hosting.api.fields import ObjectRef
from redbox_hosting.build.config.partitions import DRAINING, EXCLUSIVE, RemovedPartition
from redbox_hosting.build.config.slurm_conf import (
    MARKER,
    ClusterInputs,
    SlurmdbdAddress,
    client_conf,
    cluster_files,
)
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.config_maps import files_of_config_map
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import SlurmrestdError
from redbox_hosting.slurm.snapshot import has_ended
from redbox_kube.controller.owned import revision
from redbox_kube.controller.steps import StepFailed
from redbox_shared.hosted_settings.keys import PARTITION_KEYS
from redbox_shared.hosted_settings.lines import ConfLine, pairs_of


@dataclass(frozen=True, slots=True)
class WantedConfiguration:
    """The files of /etc/slurm but for the keys."""

    digest: str
    files: dict[str, str]
    removing: tuple[str, ...] = ()
    """Partitions that nothing asks for any more and whose jobs have not ended."""


class Configurations:
    """Made at each reconciliation from what is there; nothing is kept between two."""

    def __init__(self, context: HostingContext) -> None:
        self._context = context

    async def wanted(
        self,
        controller: SlurmController,
        cell: SlurmCell,
        applied: Mapping[str, str] | None,
        client: SlurmrestdClient | None,
    ) -> WantedConfiguration:
        """`applied`: the files that slurmctld was seen to run. Raises StepFailed if a line is refused."""
        external = controller.spec.external_config
        if external:
            name = controller.spec.name_in_slurm(controller.namespace, controller.name)
            accounting = self.accounting(controller)
            munge = controller.spec.redbox.munge is not None
            text = client_conf(name, external.host, external.port, accounting, has_munge=munge)
            files = {"slurm.conf": text}
            return WantedConfiguration(revision(files)[:12], files)
        inputs = await self._inputs(controller, cell)
        made = cluster_files(inputs)
        kept = {line.name for line in made.partitions}
        gone = [line for line in partition_lines_of(applied) if line.name not in kept]
        if gone:
            removed = await _removed(gone, client)
            made = cluster_files(replace(inputs, removed_partitions=removed))
            gone = [each.line for each in removed if not each.can_go]
        if made.refused:
            raise StepFailed("; ".join(map(str, made.refused[:5])))
        return WantedConfiguration(made.digest, dict(made.files), tuple(line.name for line in gone))

    async def _inputs(self, controller: SlurmController, cell: SlurmCell) -> ClusterInputs:
        spec, namespace = controller.spec, controller.namespace
        if unreadable := self._context.watches.node_sets.unreadable_in(namespace):
            raise StepFailed(
                f"NodeSet {unreadable[0]} cannot be read: upgrade the operator, or correct the NodeSet; its "
                "partition would be removed"
            )
        return ClusterInputs(
            name=controller.name,
            namespace=namespace,
            spec=spec,
            release=cell.release,
            node_sets=tuple(self._context.watches.node_sets_of(controller.place)),
            accounting=self.accounting(controller),
            config_files=await self._contents(namespace, spec.config_file_refs or ()),
            scripts={
                key: await self._contents(namespace, refs or ()) for key, refs in _scripts_of(spec).items()
            },
        )

    def accounting(self, controller: SlurmController) -> SlurmdbdAddress | None:
        """Raises StepFailed while the Accounting does not exist: without it jobs would not be recorded."""
        ref = controller.spec.accounting_ref
        if ref is None or not ref.name:
            return None
        found = self._context.watches.accountings.get((controller.namespace, ref.name))
        if found is None:
            raise StepFailed(f"there is no Accounting {ref.name} in the namespace: create it")
        external = found.spec.external_config
        if external:
            return SlurmdbdAddress(external.host, external.port)
        return SlurmdbdAddress(names.accounting_name(found.name))

    async def _contents(self, namespace: str, refs: Iterable[ObjectRef]) -> dict[str, str]:
        """The files of users' ConfigMaps; of two with one name the later one counts."""
        files: dict[str, str] = {}
        for ref in refs:
            files |= await files_of_config_map(self._context.writer.objects, namespace, ref.name)
        return files


def _scripts_of(spec: ControllerSpec) -> dict[str, list[ObjectRef] | None]:
    return {
        "Prolog": spec.prolog_script_refs,
        "Epilog": spec.epilog_script_refs,
        "PrologSlurmctld": spec.prolog_slurmctld_script_refs,
        "EpilogSlurmctld": spec.epilog_slurmctld_script_refs,
    }


def files_named_by(spec: ControllerSpec) -> set[str]:
    """The users' ConfigMaps that a cluster is made of."""
    users = spec.redbox.users and spec.redbox.users.config_map_ref
    refs = [spec.config_file_refs, *_scripts_of(spec).values(), [users] if users else None]
    return {ref.name for each in refs for ref in each or ()}


def partition_lines_of(files: Mapping[str, str] | None) -> list[ConfLine]:
    """The partitions of a configuration that was written before."""
    found = []
    for line in (files or {}).get("slurm.conf", "").splitlines():
        pairs = pairs_of(line)
        if pairs and pairs[0][0] == "PartitionName":
            own = (pair for pair in pairs[1:] if pair == EXCLUSIVE or pair[0].lower() in PARTITION_KEYS)
            found.append(ConfLine("PartitionName", pairs[0][1], tuple(own)))
    return found


def running_digest(licenses: Iterable[str]) -> str:
    """Of the configuration that slurmctld runs, by its marker."""
    return next((name.removeprefix(MARKER) for name in licenses if name.startswith(MARKER)), "")


async def _removed(gone: Iterable[ConfLine], client: SlurmrestdClient | None) -> tuple[RemovedPartition, ...]:
    """With the number of their jobs, which is unknown where Slurm does not answer."""
    jobs = None
    if client is not None:
        try:
            jobs = await client.jobs()
        except SlurmrestdError:
            jobs = None

    def number_in(name: str) -> int | None:
        if jobs is None:
            return None
        return sum(name in job.partition.split(",") and not has_ended(job) for job in jobs)

    return tuple(
        RemovedPartition(line, draining=DRAINING in line.options, jobs=number_in(line.name)) for line in gone
    )
