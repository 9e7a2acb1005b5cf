"""The bed for every test of this folder; it was brought up before the first of them (tests/conftest.py)."""

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import nullcontext

import pytest

from redbox_api.client import RedboxClient
from redbox_bed import status
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import take_away
from redbox_bed.hosts.host import Host
from tests.e2e.harness import hosted_switch, slurm_nodes, slurmjobs
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_server import RedboxServer
from tests.e2e.harness.slurmjobs import SlurmJobs
from tests.e2e.harness.virtual_chart import virtual_delivery


@pytest.fixture(scope="session")
def bed() -> Bed:
    """A bed that is up."""
    try:
        bed = Bed.open()
        down = [host.name for host in status.inspect(bed).hosts if not host.well]
    except BedError as error:
        pytest.fail(f"these tests need the bed: {error}", pytrace=False)
    if down:
        pytest.fail(
            f"these tests need the whole bed; {', '.join(down)} are not well: `deploy/local/bed up` repairs",
            pytrace=False,
        )
    return bed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed is shown with the state of its bed at that moment."""
    report = yield
    funcargs = getattr(item, "funcargs", {})
    if report.failed and "bed" in funcargs:
        report.sections.append(("The bed", slurm_nodes.state_of(funcargs["bed"])))
    return report


@pytest.fixture(autouse=True)
def _nodes_that_slurm_drained_are_resumed(bed: Bed) -> None:
    slurm_nodes.resume_what_slurm_drained(bed)


@pytest.fixture(scope="module")
def bare(bed: Bed) -> None:
    """What other files have installed is gone: these tests bring a red-box and controllers of their own."""
    slurmjobs.delivered.cache_clear()
    take_away(bed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hosted_switch.IS_HOSTED:
        hosted_switch.choose_core(config, items)


@pytest.fixture(scope="session")
def login(bed: Bed) -> Iterator[Host]:
    """The host that users log in to, or with BED_SLURM=hosted what does the same in a pod."""
    if not hosted_switch.IS_HOSTED:
        yield bed.host("login")
        return
    with hosted_switch.hosted_in_place_of_the_beds(bed) as login:
        yield login


@pytest.fixture
async def alice(server: RedboxServer) -> AsyncIterator[RedboxClient]:
    """Her, at the red-box that a file's `server` is."""
    async with server.client_of("alice") as client:
        yield client


@pytest.fixture
async def bob(server: RedboxServer) -> AsyncIterator[RedboxClient]:
    async with server.client_of("bob") as client:
        yield client


@pytest.fixture
def jobs(bed: Bed, login: Host) -> Iterator[SlurmJobs]:
    """SlurmJobs, on the Red Box that is installed."""
    jobs = SlurmJobs(Kubernetes(bed), login) if hosted_switch.IS_HOSTED else SlurmJobs.on(bed)
    yield jobs
    jobs.clean()


@pytest.fixture(scope="module", params=["Container", "Virtual"])
def delivery(request: pytest.FixtureRequest, bed: Bed) -> Iterator[str]:
    """How SlurmJobs are delivered: each test of a file that uses this runs both ways."""
    if not hosted_switch.IS_HOSTED:
        SlurmJobs.on(bed)
    with virtual_delivery(bed) if request.param == "Virtual" else nullcontext():
        yield request.param
