"""What a Controller's steps look at: its objects, and what its Slurm says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.build.config.slurm_conf import are_of
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.clusters.configuration import WantedConfiguration
from redbox_hosting.controllers.clusters.users.users_view import NO_USERS, UsersView
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import SlurmrestdError
from redbox_kube.api.objects import Object
from redbox_kube.controller.steps import StepFailed


@dataclass(frozen=True)
class ClusterWorld:
    """One snapshot."""

    controller: SlurmController
    cell: SlurmCell | None
    configs: Mapping[str, Object]
    """Our ConfigMaps by name."""
    daemons: Mapping[str, Object]
    """StatefulSets and Deployments by name."""
    pod: Object | None
    """Of slurmctld."""
    trials: Mapping[str, Object]
    """The pods that try configurations, by name."""
    control_ip: str
    client: SlurmrestdClient | None
    running: str
    """The digest of what slurmctld runs, empty where it was not read."""
    unread: SlurmrestdError | None
    """Why it was not."""
    release: str
    """Slurm's, empty where it was not read."""
    nodes: int | None
    oldest_slurmd: str | None
    """The release of the oldest one, as it was last read."""
    wanted: WantedConfiguration | None
    refusal: str
    """Why there is no wanted configuration."""
    users: UsersView = NO_USERS
    why_no_cell: str = ""
    """Why nothing can be built: its image names no release."""

    @property
    def built(self) -> SlurmCell:
        """For builders; raises StepFailed."""
        if self.cell is None:
            raise StepFailed(self.why_no_cell)
        return self.cell

    @property
    def before(self) -> str:
        """The digest of what slurmctld was last seen to run."""
        return self.running or self.controller.status.config_hash or ""

    def files_of(self, digest: str) -> Mapping[str, str] | None:
        """Of a configuration whose record is kept."""
        return recorded_files(self.configs, self.controller.name, digest)

    def refused(self, digest: str) -> str:
        """With which words Slurm has refused this configuration; empty if it has not."""
        return self._note(digest, names.ANNOTATION_REFUSED)

    def tried(self, digest: str) -> str:
        """How the trial of this configuration ended, unless by a refusal; empty if there was none."""
        return self._note(digest, names.ANNOTATION_TRIED)

    def _note(self, digest: str, annotation: str) -> str:
        record = self.configs.get(names.config_name(self.controller.name, digest)) or {"metadata": {}}
        return str((record["metadata"].get("annotations") or {}).get(annotation, ""))

    @property
    def on_trial(self) -> str:
        """The digest of the wanted configuration while it has to be tried; else empty.

        Where nothing is known to run there is nothing to keep, and slurmctld itself is the trial.
        """
        if self.wanted is None or not self.controller.spec.redbox.trial:
            return ""
        digest = self.wanted.digest
        if digest == self.before or self.files_of(self.before) is None:
            return ""
        return "" if self.refused(digest) or self.tried(digest) else digest

    @property
    def mounted(self) -> WantedConfiguration:
        """The wanted one, or what ran before while that is tried or refused; raises StepFailed."""
        if self.wanted is None:
            raise StepFailed(self.refusal)
        files = self.files_of(self.before)
        if files is not None and (self.on_trial or self.refused(self.wanted.digest)):
            return WantedConfiguration(self.before, dict(files))
        return self.wanted


def recorded_files(configs: Mapping[str, Object], cluster: str, digest: str) -> Mapping[str, str] | None:
    """Of a configuration whose record is kept; None where the record has something else."""
    record = configs.get(names.config_name(cluster, digest)) or {}
    files = dict(record.get("data") or {})
    return files if are_of(files, digest) else None
