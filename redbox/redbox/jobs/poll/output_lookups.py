"""Looking for the outputs of jobs that may not have started.

It is bounded for each user, so that a hanging home delays no others. Each directory is listed once for all
jobs that write there. What is not known when a user's time is up is looked for again at the next query.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import structlog

from redbox.core.clock import with_deadline
from redbox.core.domain import JobKey, UnixUser
from redbox.core.output_patterns import output_glob
from redbox.core.workload_manager import JobOutput, WorkloadManagerError
from redbox.jobs.context import JobsComponent
from redbox.jobs.record.forgotten import output_of
from redbox.jobs.record.record import JobRecord

log = structlog.get_logger(__name__)
DIRECTORY_S, USER_S = 5.0, 10.0
DIRECTORIES_AT_ONCE = 4  # of each user


class OutputLookups(JobsComponent):
    """Asks whether jobs have written anything."""

    async def exist(self, records: Iterable[JobRecord]) -> dict[JobKey, bool]:
        """Whether the output of each job exists; those that cannot be found out now are left out."""
        outputs = {record.key: output for record in records if (output := output_of(record)) is not None}
        by_user: defaultdict[UnixUser, set[JobOutput]] = defaultdict(set)
        for output in outputs.values():
            by_user[output.user].add(output)
        answers = await asyncio.gather(*(self._of_user(user, wanted) for user, wanted in by_user.items()))
        found = {output: exists for answer in answers for output, exists in answer.items()}
        return {key: found[output] for key, output in outputs.items() if output in found}

    async def _of_user(self, user: UnixUser, outputs: Collection[JobOutput]) -> Mapping[JobOutput, bool]:
        """All that was found by the user's deadline."""
        found: dict[JobOutput, bool] = {}
        slots = asyncio.Semaphore(DIRECTORIES_AT_ONCE)

        async def find(directory: str, outputs: Sequence[JobOutput]) -> None:
            async with slots:
                try:
                    call = self._workload.find_outputs(user, outputs)
                    found.update(await with_deadline(self._clock, DIRECTORY_S, call))
                except (WorkloadManagerError, TimeoutError) as fault:
                    log.warning("%s: outputs in %s cannot be looked for: %s", user.name, directory, fault)

        async def find_everywhere() -> None:
            await asyncio.gather(*(find(*directory) for directory in _by_directory(outputs).items()))

        try:
            await with_deadline(self._clock, USER_S, find_everywhere())
        except TimeoutError:
            log.warning("%s: not all outputs were looked for within %.0f s", user.name, USER_S)
        return found


def _by_directory(outputs: Iterable[JobOutput]) -> Mapping[str, Sequence[JobOutput]]:
    directories: defaultdict[str, list[JobOutput]] = defaultdict(list)
    for output in outputs:
        directories[output_glob(output)[0]].append(output)
    return directories
