"""Daemons in the foreground, and waiting for them."""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGES = ("slurm-wlm", "munge", "slurmdbd", "mariadb-server-core", "iproute2")
LIMIT = 900  # seconds after which a job is considered hanging, on a machine with other work
APT_SECONDS = 300  # how long apt-get waits while other processes install packages
DIES_WITH_TESTS = ("setpriv", "--pdeathsig", "KILL")  # starts a command that ends when this process is killed


class NotAvailable(Exception):
    """The packages cannot be downloaded, or the network cannot be set up."""


def unpack_packages(folder: Path) -> dict[str, str]:
    """Unpack the packages that this machine lacks, with all they need; the environment in which they are found.

    They are not installed: nothing outside ``folder`` changes, and other processes do not find ``srun`` on their path
    (Lightning warns those that have not been started by it). Raises :class:`NotAvailable` without a network.
    """
    archives, root = folder / "archives", folder / "root"
    (archives / "partial").mkdir(parents=True)
    options = ["-o", f"Dir::Cache::archives={archives}", "-o", f"DPkg::Lock::Timeout={APT_SECONDS}"]
    install = ["install", "-y", "--no-install-recommends", "--download-only", *PACKAGES]
    done = subprocess.run(["apt-get", *options, *install], capture_output=True, text=True)
    if done.returncode:  # the lists of packages are missing or old: use new ones, which the system does not keep
        (folder / "lists" / "partial").mkdir(parents=True)
        options += ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", "Dir::Cache::pkgcache="]
        options += ["-o", "Dir::Cache::srcpkgcache="]
        subprocess.run(["apt-get", *options, "update"], capture_output=True)
        done = subprocess.run(["apt-get", *options, *install], capture_output=True, text=True)
    if done.returncode:
        raise NotAvailable(f"apt-get could not download {', '.join(PACKAGES)}: {done.stderr.strip()}")
    for archive in archives.glob("*.deb"):
        subprocess.run(["dpkg", "-x", archive, root], check=True)
    shutil.rmtree(archives)
    for program in (root / "usr" / "sbin").glob("slurm*-wlm"):  # as the alternatives of Debian do; SLURM reads its name
        program.with_name(program.name.removesuffix("-wlm")).symlink_to(program.name)
    libraries = root / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    path = [*(root / name for name in ("usr/bin", "usr/sbin", "bin", "sbin")), os.environ["PATH"]]
    return {
        "PATH": ":".join(map(str, path)),
        "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'slurm-wlm'}",
    }


def find_program(environment: Mapping[str, str], name: str) -> str:
    """The path of a program of the packages."""
    found = shutil.which(name, path=environment["PATH"])
    assert found is not None, f"{name} is not in the packages {', '.join(PACKAGES)}"
    return found


@contextmanager
def daemon(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a process that stays in the foreground, and stop it at the end, also when this process is killed."""
    with (folder / f"{Path(command[0]).name}.out").open("wb") as output:
        process = subprocess.Popen(
            [*DIES_WITH_TESTS, *command], cwd=folder, env=dict(environment), stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = LIMIT) -> None:
    """Wait until ``condition`` is true; fail with ``what`` after ``seconds``."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited {seconds:.0f} seconds until {what}"
        time.sleep(0.2)
