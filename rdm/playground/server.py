"""The web application of the playground."""

import json
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rdm.errors import UserError
from rdm.page.page import TEMPLATES
from rdm.playground.decoding_queue import DecodingQueue, Finished, QueueFull, Started, Waiting
from rdm.playground.decoding_request import check_request
from rdm.playground.offers import Offer
from rdm.playground.protection import Protection, refuse

MAX_BYTES = 200_000
"""Size of the largest request that is read."""
WAITING = 8
"""Number of decodings that may wait."""
OWN, PAGE = Path(__file__).parent, Path(__file__).parents[1] / "page"
FILES = {
    "/page.css": (PAGE / "page.css", "text/css"),
    "/player.js": (PAGE / "player.js", "text/javascript"),
    "/playground.css": (OWN / "playground.css", "text/css"),
    "/icon.svg": (OWN / "icon.svg", "image/svg+xml"),
    "/playground.js": (OWN / "playground.js", "text/javascript"),
}
"""Style and scripts of the page; the view of the iterations is that of the decoding page."""


def create_app(offers: Sequence[Offer], queue: DecodingQueue, host: str = "127.0.0.1") -> Starlette:
    """The application.

    Args:
        offers: the models.
        queue: runs the decodings.
        host: the name or address it is served under.
    """
    by_name = {offer.name: offer for offer in offers}

    async def index(_: Request) -> Response:
        template = TEMPLATES.from_string((OWN / "playground.html").read_text(encoding="utf-8"))
        return HTMLResponse(template.render())

    async def models(_: Request) -> Response:
        return JSONResponse([offer.plain() for offer in offers])

    async def decode(request: Request) -> Response:
        body = parse_json(await read_body(request))
        try:
            checked = await run_in_threadpool(check_request, body, by_name)
        except UserError as error:
            raise HTTPException(400, str(error)) from error
        lines = states(queue, checked.answer)
        try:
            first = await anext(lines)
        except QueueFull as error:
            raise HTTPException(503, f"{queue.limit} decodings are waiting already: try again later") from error
        return StreamingResponse(chained(first, lines), media_type="application/x-ndjson")

    routes = [Route("/", index), Route("/models", models), Route("/decode", decode, methods=["POST"])]
    app = Starlette(
        routes=[*routes, *(Route(path, serve(*file)) for path, file in FILES.items())],
        middleware=[Middleware(Protection, host=host)],
        exception_handlers={HTTPException: explain},  # type: ignore[dict-item]
    )
    app.state.queue = queue
    return app


def serve(file: Path, kind: str) -> Callable[[Request], Response]:
    """A route that answers with a file."""

    def answer(_: Request) -> Response:
        return Response(file.read_bytes(), media_type=kind)

    return answer


async def explain(_: Request, error: HTTPException) -> Response:
    """Errors in words."""
    response = refuse(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response


async def read_body(request: Request) -> bytes:
    """The body of a request, unless it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"the request is too large: up to {MAX_BYTES:,} bytes are read")
    return body


def parse_json(body: bytes) -> Any:
    """The data in a body of JSON, without NaN, infinite numbers and unpaired surrogates, which are not JSON."""

    def no_number(name: str) -> None:
        raise ValueError(name)

    try:
        data = json.loads(body, parse_constant=no_number)
        json.dumps(data, ensure_ascii=False).encode()  # fails for surrogates
        return data
    except (ValueError, RecursionError) as error:  # what is not UTF-8 is a ValueError
        raise HTTPException(400, "the request is not valid JSON") from error


async def states(queue: DecodingQueue, work: Callable[[], dict[str, Any]]) -> AsyncIterator[str]:
    """The states of a decoding, each as a line of JSON; the last one holds the answer or what went wrong."""
    try:
        async for state in queue.run(work):
            match state:
                case Waiting(ahead):
                    yield line({"state": "waiting", "ahead": ahead})
                case Started():
                    yield line({"state": "decoding"})
                case Finished(answer):
                    yield line({"state": "done", **answer})
    except QueueFull:
        raise
    except UserError as error:
        yield line({"state": "failed", "error": str(error)})
    except Exception:
        traceback.print_exc(file=sys.stderr)
        yield line({"state": "failed", "error": "the decoding failed; the terminal of the server shows why"})


def line(data: dict[str, Any]) -> str:
    """Data as one line of JSON."""
    return json.dumps(data) + "\n"


async def chained(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    """``first``, then ``rest``."""
    yield first
    async for each in rest:
        yield each
