"""Hosts and a queue for all tests of this folder; skipped where they cannot be set up."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import pytest

from rdm.locks import lock_file
from tests.cluster.hosts import NAMESPACES, Host, check_networks, connected_hosts
from tests.cluster.processes import NotAvailable, unpack_packages
from tests.cluster.slurm import Queue, running_queue
from tests.cluster.torchrun import Run
from tests.scripts import ROOT

PREFIX, LOCK = "rdm-cluster-", "rdm-cluster.lock"
COUNTS = pytest.StashKey[Counter[str]]()


@pytest.fixture(scope="session")
def cluster_folder() -> Iterator[Path]:
    """The folder with all files of the daemons, removed at the end."""
    usable = os.getuid() == 0 and shutil.which("apt-get") is not None and shutil.which("unshare") is not None
    if not usable:
        pytest.skip("make test-cluster needs root, apt-get (Debian or Ubuntu) and unshare")
    if subprocess.run(["unshare", "--net", *NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("make test-cluster needs namespaces, which this machine (a container?) does not allow")
    # Names of networks and ports are those of the machine, so one test at a time.
    with lock_file(Path(gettempdir()) / LOCK):
        for folder_of_killed_tests in Path(gettempdir()).glob(f"{PREFIX}*"):
            shutil.rmtree(folder_of_killed_tests)
        with TemporaryDirectory(prefix=PREFIX) as folder:
            Path(folder).chmod(0o755)  # munged refuses a socket that others cannot reach
            yield Path(folder)


@pytest.fixture(scope="session")
def environment(cluster_folder: Path) -> dict[str, str]:
    """The environment of all commands: with the packages, this Python and this copy of rdm first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "PYTEST", "SLURM"))}
    try:
        packages = unpack_packages(cluster_folder)
    except NotAvailable as error:
        pytest.skip(f"make test-cluster: {error}")
    packages["PATH"] = f"{Path(sys.executable).parent}:{packages['PATH']}"
    os.environ["PATH"] = packages["PATH"]  # for ip
    return {**kept, **packages, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def hosts(cluster_folder: Path, environment: dict[str, str]) -> Iterator[list[Host]]:
    """Two hosts, ``node1`` and ``node2``."""
    try:
        check_networks()
    except NotAvailable as error:
        pytest.skip(f"make test-cluster: {error}")
    with connected_hosts(cluster_folder) as hosts:
        yield hosts


@pytest.fixture(scope="session")
def queue(cluster_folder: Path, environment: dict[str, str], hosts: list[Host]) -> Iterator[Queue]:
    """A SLURM queue with two nodes of four CPUs."""
    with running_queue(cluster_folder, environment, hosts) as queue:
        yield queue


@pytest.fixture(scope="session")
def uninterrupted(hosts: list[Host], environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on two hosts with DDP."""
    return Run(hosts, environment, tmp_path_factory.mktemp("uninterrupted") / "run", "trainer=ddp").finish()


@pytest.fixture(scope="session")
def counts(request: pytest.FixtureRequest) -> Counter[str]:
    """What was interrupted and compared, printed at the end."""
    return request.config.stash.setdefault(COUNTS, Counter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for what, count in config.stash.get(COUNTS, Counter()).items():
        terminalreporter.write_line(f"{count:>4} {what}")
