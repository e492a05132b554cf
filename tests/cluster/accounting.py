"""SLURM's accounting, which ``sacct`` reads: MariaDB and slurmdbd on this machine, with all files in one folder."""

import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster.processes import daemon, find_program, wait_until

PORT, DBD_PORT = 13306, 16819
CONFIG = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdPort={dbd_port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port}
StorageUser=root
StorageLoc=slurm
PluginDir={plugins}
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
"""


@contextmanager
def running_accounting(folder: Path, environment: Mapping[str, str], plugins: Path) -> Iterator[None]:
    """Start the database and slurmdbd, which needs ``munged``; stop them at the end."""
    config = folder / "slurmdbd.conf"
    config.touch(mode=0o600)
    config.write_text(CONFIG.format(folder=folder, plugins=plugins, port=PORT, dbd_port=DBD_PORT))
    environment = {**environment, "SLURM_CONF": str(folder / "slurm.conf")}
    server = find_program(environment, "mariadbd")
    tables = Path(server).parents[1] / "share" / "mysql"
    data = folder / "database"
    data.mkdir()
    options = ["--no-defaults", "--user=root", f"--datadir={data}", f"--lc-messages-dir={tables}"]
    options += ["--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
    create = "create database mysql;\nuse mysql;\n" + (tables / "mysql_system_tables.sql").read_text()
    command = [server, *options, "--bootstrap"]
    subprocess.run(command, input=create, env=dict(environment), check=True, capture_output=True, text=True)
    serve = [f"--socket={folder}/database.socket", "--bind-address=127.0.0.1", f"--port={PORT}", "--skip-grant-tables"]
    serve += [f"--pid-file={folder}/database.pid"]
    with ExitStack() as stack:
        stack.enter_context(daemon([server, *options, *serve], folder, environment))
        wait_until((folder / "database.socket").exists, "the database is ready", 60)
        stack.enter_context(daemon([find_program(environment, "slurmdbd"), "-D"], folder, environment))
        wait_until(lambda: listens(DBD_PORT), "slurmdbd is ready", 60)  # without it the controller would exit
        yield


def listens(port: int) -> bool:
    """Whether a process of this machine accepts connections at ``port``."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
