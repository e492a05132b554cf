"""Runs the project's scripts as from a shell, without repeating their imports.

Importing torch and Lightning takes longer than most of these runs. A server process imports them once and forks for
every command; the child runs the script file as ``__main__`` with its own arguments, input, output and exit code.
"""

import atexit
import json
import os
import runpy
import select
import subprocess
import sys
import threading
import traceback
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent
TIMEOUT = 300


def script(
    name: str,
    *overrides: str,
    code: int = 0,
    input: str | bytes = "",
    environment: dict[str, str] | None = None,
    imported_with: dict[str, str] | None = None,
    folder: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Run a script without credentials or network (except those in ``environment``) and check its exit code.

    Variables that a package reads when it is imported go to ``imported_with``; each set of them has its own server.
    ``folder`` is the working directory.
    """
    with TemporaryDirectory() as streams:
        files = {stream: str(Path(streams) / stream) for stream in ("stdin", "stdout", "stderr")}
        Path(files["stdin"]).write_bytes(input.encode() if isinstance(input, str) else input)
        server = _server(tuple((imported_with or {}).items()))
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(
            json.dumps(
                {"arguments": [name, *overrides], "environment": environment or {}, "folder": str(folder), **files}
            )
            + "\n"
        )
        server.stdin.flush()
        answered, _, _ = select.select([server.stdout], [], [], TIMEOUT)
        assert answered, f"{name} {' '.join(overrides)} is still running after {TIMEOUT} seconds"
        status = int(server.stdout.readline())
        out, err = (Path(files[stream]).read_text() for stream in ("stdout", "stderr"))
    assert status == code, out + err
    return subprocess.CompletedProcess([name, *overrides], status, out, err)


@cache
def _server(variables: tuple[tuple[str, str], ...]) -> "subprocess.Popen[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "PYTEST"))}
    environment |= {"OMP_NUM_THREADS": "1", "HOME": "/nonexistent", "HF_HUB_OFFLINE": "1", **dict(variables)}
    server = subprocess.Popen(
        [sys.executable, __file__], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.kill)
    return server


def _serve() -> None:
    """Run one command per input line and print its exit code."""
    sys.path.insert(0, str(ROOT))
    from rdm.training.deferred_torchmetrics import defer_torchmetrics

    defer_torchmetrics()
    import pytorch_lightning  # noqa: F401

    import rdm.training.sampling  # noqa: F401

    for line in sys.stdin:
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(command)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(command: dict[str, Any]) -> None:
    """Run the script in this forked process and exit."""
    os.environ.update(command["environment"])
    os.chdir(command["folder"])
    append = os.O_WRONLY | os.O_APPEND  # two streams may share a file
    for number, (stream, mode) in enumerate((("stdin", os.O_RDONLY), ("stdout", append), ("stderr", append))):
        os.dup2(os.open(command[stream], mode | os.O_CREAT), number)
    sys.stdin = open(0)  # noqa: SIM115  # the inherited object may have buffered input of the server
    name, *arguments = command["arguments"]
    code = 0
    try:
        if name == "-m":
            sys.argv = arguments
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [name, *arguments]
            runpy.run_path(str(ROOT / name), run_name="__main__")
    except SystemExit as exiting:
        code = exiting.code if isinstance(exiting.code, int) else int(exiting.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
