"""``python -m rdm.playground ckpt=<run>[,<run>]``: a local page on which trained models decode what is typed.

It listens on this machine only, unless host=<address> says otherwise; port=<number> chooses the port.
"""

import os
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rdm.app.arguments import Parser, split_key_values
from rdm.app.scripts import run_module
from rdm.app.targets import add_working_directory
from rdm.errors import UserError, require

if TYPE_CHECKING:  # imports torch
    from rdm.playground.offers import Offer

KEYS = ("ckpt", "host", "port", "trust")
HOST, PORT = "127.0.0.1", "8765"


def main() -> None:
    """Load the models and serve the page until Ctrl-C."""
    parser = Parser(prog="python -m rdm.playground", description=__doc__)
    explained = "ckpt=<run>[,<run>]; host=<address>; port=<number>, 0 for any; trust=<package>, see SECURITY.md"
    parser.add_argument("arguments", nargs="+", help=explained)
    folders, values = split_key_values(parser.parse_args().arguments, KEYS)
    runs = [*map(str, folders), *split_runs(values.get("ckpt", ""))]
    require(bool(runs), "ckpt: name a run, e.g. python -m rdm.playground ckpt=outputs/<run>")
    host = values.get("host", HOST)
    try:
        check_installed()
        with listen(host, values.get("port", PORT)) as listening:
            if not is_loopback(host):
                print(f"warning: host={host} lets other machines use the models and read the page", file=sys.stderr)
            serve(load_offers(runs, values.get("trust")), listening, host)
    except KeyboardInterrupt:
        sys.exit(130)


def check_installed() -> None:
    """Raise unless the packages of the extra are there."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError("rdm.playground needs the playground extra: pip install -e '.[playground]'") from error


def split_runs(value: str) -> list[str]:
    """The paths in a list separated by commas; a path may contain commas itself, as those of sweeps do."""
    runs: list[str] = []
    parts = value.split(",") if value else []
    while parts:
        sizes = [size for size in range(len(parts), 0, -1) if Path(",".join(parts[:size])).exists()]
        size = sizes[0] if sizes else 1
        runs.append(",".join(parts[:size]))
        parts = parts[size:]
    return runs


def listen(host: str, port: str) -> socket.socket:
    """A socket that listens on the address."""
    require(port.isdecimal() and int(port) < 2**16, f"port={port}: a number below {2**16} is needed")
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, int(port)), family=family)
    except OSError as error:
        number = error.errno or 0  # negative if a name is unknown; otherwise error.strerror repeats the address
        reason = os.strerror(number) if number > 0 else error.strerror
        raise UserError(f"host={host} port={port} cannot be used: {reason}; choose another, e.g. port=0") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def load_offers(runs: Sequence[str], trust: str | None) -> "list[Offer]":
    """The models of the runs, each named like its folder; a second one of that name gets a number."""
    from rdm.app.open_model import load
    from rdm.playground.offers import make_offer

    add_working_directory()
    offers: list[Offer] = []
    for run in runs:
        model = load(run, trust=trust.split(",") if trust else None)
        name = model.run.folder.resolve().name
        number = 1 + sum(offer.model.run.folder.resolve().name == name for offer in offers)
        offers.append(make_offer(name if number == 1 else f"{name} {number}", model))
    return offers


def serve(offers: "Sequence[Offer]", listening: socket.socket, host: str) -> None:
    """Print the address and serve the page until the process is interrupted."""
    import uvicorn

    from rdm.playground.decoding_queue import DecodingQueue
    from rdm.playground.server import WAITING, create_app

    class Server(uvicorn.Server):
        """Ends at once if a decoding runs: it cannot be interrupted, and nothing has to be saved."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if len(queue) > 0:
                os._exit(128 + sig)
            super().handle_exit(sig, frame)

    queue = DecodingQueue(WAITING)
    config = uvicorn.Config(
        create_app(offers, queue, host),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    shown = f"[{host}]" if ":" in host else host
    print(f"playground: http://{shown}:{listening.getsockname()[1]} (Ctrl-C ends it)", flush=True)
    Server(config).run(sockets=[listening])


def run() -> None:
    """The console script ``rdm-playground``."""
    run_module(main)


if __name__ == "__main__":
    run()
