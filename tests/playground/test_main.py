"""``python -m rdm.playground``: arguments, addresses, and how it ends."""

import builtins
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rdm.errors import UserError
from rdm.playground import offers
from rdm.playground.__main__ import is_loopback, listen, load_offers, main, split_runs
from tests.app.test_generate import FAST
from tests.scripts import ROOT, script


def test_runs_are_separated_by_commas(tmp_path: Path) -> None:
    """Names of sweep folders contain commas themselves."""
    sweep = tmp_path / "decoding=rdm,seed=1"
    sweep.mkdir()
    assert split_runs("a,b") == ["a", "b"]
    assert split_runs(f"{sweep},b,{sweep}") == [str(sweep), "b", str(sweep)]
    assert split_runs("") == []


def test_port_in_use_and_other_mistakes_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, message in (
            ([], "the following arguments are required: arguments; python -m rdm.playground --help lists the options"),
            (["port=1"], "ckpt: name a run, e.g. python -m rdm.playground ckpt=outputs/<run>"),
            (["ckpt=x", "port=x"], "port=x: a number below 65536 is needed"),
            (
                ["ckpt=x", f"port={port}"],
                f"host=127.0.0.1 port={port} cannot be used: Address already in use; choose another, e.g. port=0",
            ),
        ):
            monkeypatch.setattr(sys, "argv", ["rdm.playground", *arguments])
            with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
                main()
    refused = script("-m", "rdm.playground", "ckpt=nowhere", "port=0", code=2)
    assert (refused.stdout, refused.stderr) == ("", "error: ckpt: nowhere does not exist\n")


def test_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_uvicorn(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "uvicorn":
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_uvicorn)
    monkeypatch.setattr(sys, "argv", ["rdm.playground", "ckpt=x"])
    with pytest.raises(UserError, match=r"needs the playground extra: pip install -e '\.\[playground\]'"):
        main()


def test_addresses() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost")] == [True] * 3
    assert [is_loopback(host) for host in ("0.0.0.0", "192.168.0.2", "example.org", "")] == [False] * 4
    with listen("localhost", "0") as listening:
        assert listening.getsockname()[1] > 0
    with pytest.raises(UserError, match="cannot be used"):
        listen("256.0.0.1", "0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "rdm"
    script("train.py", *FAST, f"hydra.run.dir={folder}")
    return folder


SHORTER = """
from rdm.app.scripts import run_module
from rdm.playground import __main__, offers
offers.choices = lambda group: ["as_trained", "remdm_cap"]  # to try all takes seconds
run_module(__main__.main)
"""
BODY = b'{"model": "rdm", "decoding": "remdm_cap", "text": "situ", "options": {"steps": 2000, "length_candidates": 60}}'


@pytest.mark.parametrize("busy", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_server_prints_its_address_and_ends_with_ctrl_c(run: Path, busy: bool) -> None:
    """One line on standard output, a warning for another host, and no stack trace, even while it decodes."""
    command = [sys.executable, "-c", SHORTER, f"ckpt={run}", "host=0.0.0.0", "port=0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.fullmatch(r"playground: (http://0\.0\.0\.0:\d+) \(Ctrl-C ends it\)\n", line)
        assert found
        headers = {"content-type": "application/json", "origin": found[1]}
        request = urllib.request.Request(f"{found[1]}/decode", BODY, headers) if busy else f"{found[1]}/models"
        with urllib.request.urlopen(request, timeout=60) as response:
            first = response.readline()
            assert (first == b'{"state": "decoding"}\n') == busy
            server.send_signal(signal.SIGINT)
            rest, errors = server.communicate(timeout=60)
    finally:
        server.kill()
    assert (server.returncode, rest) == (130, "")
    assert errors == "warning: host=0.0.0.0 lets other machines use the models and read the page\n"


def test_models_of_one_name_are_numbered(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "make_offer", lambda name, model: offers.Offer(name, model, [], False))  # in seconds
    assert [offer.name for offer in load_offers([str(run), str(run)], None)] == ["rdm", "rdm 2"]
