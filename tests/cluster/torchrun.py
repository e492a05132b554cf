"""``torchrun train.py`` on some hosts."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rdm.app.run_folder import RunFolder
from tests.chaos import TINY
from tests.cluster.hosts import Host
from tests.cluster.processes import LIMIT, wait_until
from tests.scripts import ROOT

PORT = 29500
STEPS = ["trainer.max_steps=80", "trainer.val_check_interval=20"]
SLOW = ["+callbacks.slow._target_=tests.cluster.slow.SlowSteps", "+callbacks.slow.seconds=0.1"]
CPU = ["trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.deterministic=true"]


class Run:
    """Two processes of ``torchrun train.py``, on one host or one on each of two, in one run folder."""

    def __init__(
        self, hosts: Sequence[Host], environment: dict[str, str], folder: Path, *overrides: str, restarts: int = 0
    ) -> None:
        self.folder, self.logs = folder, [folder.with_name(f"{folder.name}.{host.name}.log") for host in hosts]
        nodes, devices = len(hosts), 2 // len(hosts)
        torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={devices}"]
        torchrun += ["--rdzv-backend=c10d", f"--rdzv-endpoint={hosts[0].name}:{PORT}"]
        torchrun += [f"--rdzv-id={folder.parent.name}-{folder.name}"]
        torchrun += [f"--max-restarts={restarts}", "train.py", *TINY, *STEPS, *CPU]
        torchrun += [f"trainer.num_nodes={nodes}", f"trainer.devices={devices}", f"hydra.run.dir={folder}"]
        torchrun += [f"data.cache={folder.parent / 'cache'}", *overrides]
        # Otherwise a restarted rank may read addresses of the attempt before (pytorch/pytorch issue 135712).
        self.environment, self.command = {**environment, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, torchrun
        self.processes = [self.start(host, log) for host, log in zip(hosts, self.logs, strict=True)]

    def start(self, host: Host, log: Path) -> "subprocess.Popen[Any]":
        return host.popen(*self.command, environment=self.environment, log=log, folder=ROOT)

    def output(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in self.logs)

    def wait(self, seconds: float = LIMIT) -> list[int]:
        """Wait until the command has ended on all hosts; the exit codes."""
        until = time.monotonic() + seconds
        try:
            return [process.wait(until - time.monotonic()) for process in self.processes]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:.0f} seconds\n{self.output()}") from None

    def finish(self) -> Path:
        assert self.wait() == [0] * len(self.processes), self.output()
        assert RunFolder(self.folder).finished
        return self.folder

    def wait_for_step(self, step: int) -> None:
        """Wait until a checkpoint of ``step`` is saved."""
        file = self.folder / "checkpoints" / f"step_{step:07d}.ckpt"

        def reached() -> bool:
            assert all(process.poll() is None for process in self.processes), self.output()
            return file.exists()

        wait_until(reached, f"step {step} is saved")
