"""Training on two hosts with torchrun: equal to one host, and resumed exactly when a host was lost."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from rdm.app.run_folder import RunFolder
from rdm.training.checkpoints import load_archive
from tests.cluster.hosts import Host, kill_command
from tests.cluster.processes import LIMIT, wait_until
from tests.cluster.torchrun import SLOW, Run
from tests.same import assert_same_run, logged_rows

pytestmark = pytest.mark.cluster
STRATEGIES = ("ddp", "fsdp")


@pytest.fixture(scope="module")
def finished(
    hosts: list[Host], environment: dict[str, str], uninterrupted: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Uninterrupted runs of two processes, on one host and on two."""
    root = tmp_path_factory.mktemp("two_hosts")
    one = Run(hosts[:1], environment, root / "one", "trainer=ddp").finish()
    sharded = Run(hosts, environment, root / "fsdp", "trainer=fsdp").finish()
    return {"one host": one, "ddp": uninterrupted, "fsdp": sharded}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_hosts_equal_one(finished: dict[str, Path], strategy: str) -> None:
    """Weights to 1e-6 and logs to 1e-5 after 80 steps; run folder, log and samples are written once."""
    one, two = finished["one host"], finished[strategy]
    states = [load_archive(folder / "checkpoints" / "last.ckpt")["state_dict"] for folder in (one, two)]
    assert states[0].keys() == states[1].keys()
    differences = [(value.float() - states[1][name].float()).abs().max() for name, value in states[0].items()]
    largest = float(max(differences))
    print(f"{strategy}: largest difference of a weight {largest:.1e}")
    assert largest <= 1e-6
    rows = [logged_rows(folder) for folder in (one, two)]
    assert [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]]
    for first, second in zip(*rows, strict=True):
        for name in first:
            assert first[name] == second[name] or float(first[name]) == pytest.approx(float(second[name]), rel=1e-5)
    names = [sorted(str(file.relative_to(folder)) for file in folder.rglob("*")) for folder in (one, two)]
    assert names[0] == names[1]
    assert (two / "train.log").read_text().count("vocabulary") == 1  # printed at the start of a run


def test_a_host_that_is_cut_off(
    uninterrupted: Path, hosts: list[Host], environment: dict[str, str], tmp_path: Path, counts: Counter[str]
) -> None:
    """The ranks of both hosts end after the timeout; the checkpoints are whole, and the run is resumed exactly."""
    short = ["trainer=ddp", "trainer.strategy.timeout_minutes=0.5", *SLOW]
    run = Run(hosts, environment, tmp_path / "run", *short)
    run.wait_for_step(20)
    hosts[1].disconnect()
    try:
        start = time.monotonic()
        code = run.processes[0].wait(LIMIT)
        wait_until(lambda: not rank_processes(run.folder, hosts[1]), "the rank on the host that was cut off has ended")
        print(f"cut off: all ranks have ended after {time.monotonic() - start:.0f} s")
    finally:
        hosts[1].reconnect()
    kill_command(run.processes[1])  # torchrun itself waits longer for the rendezvous on the other host
    assert code != 0, run.output()
    assert not RunFolder(run.folder).finished
    for file in (run.folder / "checkpoints").glob("*.ckpt"):
        load_archive(file)
    Run(hosts, environment, tmp_path / "run", *short).finish()
    assert_same_run(uninterrupted, run.folder)
    counts.update({"hosts cut off": 1, "bit-equal results": 1})


def test_elastic_restart(
    uninterrupted: Path, hosts: list[Host], environment: dict[str, str], tmp_path: Path, counts: Counter[str]
) -> None:
    """A killed process is restarted by torchrun, a killed host when torchrun is started on it again."""
    run = Run(hosts, environment, tmp_path / "run", "trainer=ddp", *SLOW, restarts=2)
    run.wait_for_step(20)
    (victim,) = rank_processes(run.folder, hosts[1])
    os.kill(victim, signal.SIGKILL)
    run.wait_for_step(40)
    kill_command(run.processes[1])
    start = time.monotonic()
    run.processes[1] = run.start(hosts[1], run.logs[1])
    run.finish()
    print(f"the killed host was back, and the run finished, after {time.monotonic() - start:.0f} s")
    assert run.output().count("resuming from") == 2, run.output()
    assert_same_run(uninterrupted, run.folder)
    counts.update({"processes killed": 1, "hosts killed": 1, "bit-equal results": 1})


def rank_processes(folder: Path, host: Host) -> list[int]:
    """The ids of the processes that train in ``folder`` on a host."""
    network, found = Path(f"/run/netns/{host.namespace}").stat().st_ino, []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text().split("\0")
            here = (process / "ns" / "net").stat().st_ino == network
        except OSError:  # it has ended
            continue
        if here and f"hydra.run.dir={folder}" in command and "torch.distributed.run" not in command:
            found.append(int(process.name))
    return found
