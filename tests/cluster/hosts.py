"""Two hosts on one machine: namespaces with an own network address, host name, ``/etc/hosts`` and process tree.

The hosts are connected by a bridge, whose address is that of the login host, i.e. of this machine.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.processes import DIES_WITH_TESTS, NotAvailable

BRIDGE = "rdm-test"
LOGIN = "10.77.0.1"
NAMESPACES = ("--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
START = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec nsenter --net="$@"'


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Host:
    """A host with one address; every command runs in a process tree of its own, which dies with its first process."""

    def __init__(self, name: str, address: str, hosts_file: Path) -> None:
        self.name, self.address, self.hosts_file = name, address, hosts_file
        self.namespace, self.cable = f"rdm-{name}", f"rdm-{name}"
        self.commands: list[subprocess.Popen[Any]] = []
        ip("netns", "add", self.namespace)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        ip("link", "set", self.cable, "master", BRIDGE, "up")
        ip("-n", self.namespace, "address", "add", f"{address}/24", "dev", "eth0")
        self.connect()

    def popen(self, *command: str, environment: Mapping[str, str], log: Path, folder: Path) -> "subprocess.Popen[Any]":
        """Start a command on this host; killing the returned process kills all processes of the command at once."""
        start = ["sh", "-c", START, "sh", self.name, str(self.hosts_file), f"/run/netns/{self.namespace}", *command]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*DIES_WITH_TESTS, "unshare", *NAMESPACES, *start],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.commands.append(process)
        return process

    def connect(self) -> None:
        for device in ("lo", "eth0"):
            ip("-n", self.namespace, "link", "set", device, "up")

    def disconnect(self) -> None:
        """Cut the cable: packets are dropped in both directions, and no connection is closed."""
        ip("link", "set", self.cable, "down")

    def reconnect(self) -> None:
        ip("link", "set", self.cable, "up")

    def kill_all(self) -> None:
        """Kill all commands that were started on this host."""
        for process in self.commands:
            kill_command(process)


def kill_command(process: "subprocess.Popen[Any]") -> None:
    """Kill all processes of a command of :meth:`Host.popen` at once."""
    process.kill()
    process.wait(30)


@contextmanager
def connected_hosts(folder: Path, names: Sequence[str] = ("node1", "node2")) -> Iterator[list[Host]]:
    """Hosts with these names that reach each other and the login host by name."""
    addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, start=11)}
    hosts_file = folder / "hosts"
    lines = [f"{address} {name}" for name, address in {"localhost": "127.0.0.1", "login": LOGIN, **addresses}.items()]
    hosts_file.write_text("\n".join(lines) + "\n")
    hosts: list[Host] = []
    remove_network(names)  # of tests that were killed
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{LOGIN}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        hosts.extend(Host(name, addresses[name], hosts_file) for name in names)
        yield hosts
    finally:
        for host in hosts:
            host.kill_all()
        remove_network(names)


def check_networks() -> None:
    """Raise :class:`NotAvailable` where bridges and cables cannot be made; tried in a network of its own."""
    make = "ip link add bridge0 type bridge && ip link add cable0 type veth peer name cable1"
    done = subprocess.run(["unshare", "--net", "sh", "-c", make], capture_output=True, text=True)
    if done.returncode:
        raise NotAvailable(f"no virtual networks on this machine: {done.stderr.strip()}")


def remove_network(names: Sequence[str]) -> None:
    """Remove the bridge, the cables and the namespaces that exist."""
    for name in names:  # a namespace alone would keep its cable for a while
        subprocess.run(["ip", "link", "delete", f"rdm-{name}"], capture_output=True)
        subprocess.run(["ip", "netns", "delete", f"rdm-{name}"], capture_output=True)
    subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True)
