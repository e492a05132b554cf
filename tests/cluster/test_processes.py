"""What the tests of this folder rely on, without a cluster."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.processes import DIES_WITH_TESTS, PACKAGES, NotAvailable, unpack_packages, wait_until
from tests.scripts import ROOT

APT = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in *" update") touch {updated};; esac
[ -e {updated} ] || {{ echo "E: Unable to locate package slurm-wlm" >&2; exit 100; }}
{then}
"""
HOLD = """
import os, sys, time
from pathlib import Path
from tests.cluster.processes import daemon
with daemon(["sleep", "60"], Path(sys.argv[1]), os.environ):
    print("started", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(shutil.which(DIES_WITH_TESTS[0]) is None, reason="needs setpriv (Linux)")
def test_daemons_end_when_the_tests_are_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "started\n"
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
    assert len(children) == 1
    # Only then will the kernel kill it with its parent.
    wait_until(lambda: Path(f"/proc/{children[0]}/comm").read_text() == "sleep\n", "the daemon has started", 10)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(10)
    wait_until(lambda: not is_running(children[0]), "the daemon has ended", 10)


def is_running(pid: str) -> bool:
    """Whether a process exists and has not ended; init may not have read its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_old_lists_of_packages_are_replaced_for_the_test_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose lists are missing downloads with its own; one without a network says what was missing."""
    calls = tmp_path / "calls"
    for then, name in (("exit 0", "online"), ("echo 'E: no network' >&2; exit 100", "offline")):
        (tmp_path / name).mkdir()
        calls.unlink(missing_ok=True)
        apt = tmp_path / name / "apt-get"
        apt.write_text(APT.format(calls=calls, updated=tmp_path / name / "updated", then=then))
        apt.chmod(0o755)
        monkeypatch.setenv("PATH", f"{apt.parent}:{os.environ['PATH']}")
        if name == "offline":
            with pytest.raises(NotAvailable, match=r"could not download slurm-wlm.*E: no network"):
                unpack_packages(apt.parent)
        else:
            unpack_packages(apt.parent)
        first, update, second = calls.read_text().splitlines()
        assert first.endswith(" ".join(PACKAGES))
        assert second.endswith(" ".join(PACKAGES))
        assert "Dir::State::lists" not in first
        for command in (update, second):
            assert f"Dir::State::lists={apt.parent}/lists" in command
