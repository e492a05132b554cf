"""A SLURM queue of Debian's packages: the controller on this machine, one ``slurmd`` on each host."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster.accounting import DBD_PORT, running_accounting
from tests.cluster.hosts import LOGIN, Host
from tests.cluster.processes import DIES_WITH_TESTS, LIMIT, daemon, find_program, wait_until
from tests.scripts import ROOT

CONFIG = """
ClusterName=test
SlurmctldHost={login}({address})
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthInfo=cred_expire=5,socket={folder}/munge.socket
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={folder}/munge.socket
PluginDir={plugins}
PlugStackConfig={folder}/plugstack.conf
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000,bf_interval=1
KillWait=30
MinJobAge=3600
{nodes}
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Command:
    """A command that runs on the login host, with its output in a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*DIES_WITH_TESTS, *command],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def finish(self, code: int) -> str:
        """Wait for the command, check its exit code and return its output."""
        self.process.wait(2 * LIMIT)
        printed = self.log.read_text()
        assert self.process.returncode == code, f"exit code {self.process.returncode}\n{printed}"
        return printed


class Queue:
    """The commands of a running queue; ``environment`` is that of its login host."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self.commands: list[Command] = []

    def run(self, *command: str, code: int = 0, folder: Path | None = None) -> str:
        """Run a command on the login host and return its output."""
        done = subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == code, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, script: str, *arguments: str, log: Path) -> Command:
        """Start a script of this repository on the login host; ``log`` is the name of its log without ``.log``."""
        command = Command([sys.executable, script, *arguments], self.environment, log.with_name(f"{log.name}.log"))
        self.commands.append(command)
        return command

    def jobs(self, *options: str) -> dict[str, str]:
        """The states of the jobs that have not ended, by id; ``options`` are those of squeue."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%i %T", *options).splitlines()
        return dict(line.split() for line in lines)

    def node_states(self) -> dict[str, str]:
        """The states of the nodes by name; none before the controller has started."""
        command = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return dict(line.split() for line in done.stdout.splitlines())

    def show(self, job: str) -> dict[str, str]:
        """The fields of ``scontrol show job``."""
        fields = self.run("scontrol", "show", "job", job).split()
        return dict(field.split("=", 1) for field in fields if "=" in field)

    def wait_for(self, job: str, *states: str, seconds: float = LIMIT) -> None:
        """Wait until a job is in one of ``states``."""
        wait_until(lambda: self.show(job)["JobState"] in states, f"job {job} is {' or '.join(states)}", seconds)


@contextmanager
def running_queue(folder: Path, environment: Mapping[str, str], hosts: Sequence[Host]) -> Iterator[Queue]:
    """Start the daemons; at the end cancel all jobs and stop the daemons."""
    (folder / "state").mkdir()
    (folder / "plugstack.conf").touch()
    key = folder / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(os.urandom(1024))
    stepd = find_program(environment, "slurmstepd")
    plugins = next(Path(stepd).parents[1].glob("lib/*/slurm-wlm"))
    nodes = "\n".join(f"NodeName={host.name} NodeAddr={host.address} CPUs=4 RealMemory=8000" for host in hosts)
    login = socket.gethostname().split(".")[0]
    config = CONFIG.format(login=login, address=LOGIN, folder=folder, plugins=plugins, nodes=nodes, dbd_port=DBD_PORT)
    (folder / "slurm.conf").write_text(config)
    environment = {**environment, "SLURM_CONF": str(folder / "slurm.conf")}
    queue = Queue(environment)
    files = {"socket": "munge.socket", "key-file": key.name, "pid-file": "munged.pid", "seed-file": "munge.seed"}
    munged = [find_program(environment, "munged"), "--foreground"]
    slurmd = [find_program(environment, "slurmd"), "-D", "-d", stepd]
    idle = {host.name: "idle" for host in hosts}
    with ExitStack() as stack:
        options = [f"--{option}={folder / name}" for option, name in files.items()]
        stack.enter_context(daemon([*munged, *options], folder, environment))
        stack.enter_context(running_accounting(folder, environment, plugins))
        stack.enter_context(daemon([find_program(environment, "slurmctld"), "-D", "-i"], folder, environment))
        for host in hosts:
            log = folder / f"{host.name}.out"
            host.popen(*slurmd, "-N", host.name, environment=environment, log=log, folder=folder)
        wait_until(lambda: queue.node_states() == idle, "all nodes are idle", 120)
        try:
            yield queue
        finally:
            for command in queue.commands:  # those of failed tests still wait for their jobs
                command.kill()
            queue.run("scancel", "--user=root")
            wait_until(lambda: not queue.jobs(), "the queue is empty", 60)
