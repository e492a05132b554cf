"""Protection of a server on this machine against other sites in the user's browser."""

from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer: nothing is loaded from elsewhere, and neither inline scripts nor styles have an effect."""


class Protection:
    """Refuses requests of other sites, and adds the security headers to every answer.

    - The ``Host`` must be an IP address, ``localhost`` or ``host``: a site that points its own name to this machine
      (DNS rebinding) is refused.
    - A request that changes something must have the ``Origin`` of this page and be JSON.

    Args:
        app: the application behind it.
        host: the name or address the server was started with.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.host = app, host.lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self.refusal(scope["method"], Headers(scope=scope))
        await (refusal or self.app)(scope, receive, send_protected)

    def refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        """The answer to a request that is refused; None if it is not."""
        host = headers.get("host", "")
        if not is_address(host_name(host)) and host_name(host) not in ("localhost", self.host):
            return refuse(403, f"the host {host} is not this server: open the address that it printed")
        if method in ("GET", "HEAD"):
            return None
        if headers.get("origin") != f"http://{host}":
            return refuse(403, "only the page of this server may ask for decodings")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return refuse(415, "the request must be JSON (content-type: application/json)")
        return None


def refuse(status: int, message: str) -> JSONResponse:
    """An error in words."""
    return JSONResponse({"error": message}, status)


def host_name(host: str) -> str:
    """The name or address in a ``Host`` header.

    >>> host_name("localhost:8765"), host_name("[::1]:8765")
    ('localhost', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
