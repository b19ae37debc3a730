"""Who is served: only pages of this server, under the name it was started with."""

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
LOCAL = ("127.0.0.1", "localhost")


def own_hosts(host: str, port: int) -> frozenset[str]:
    """The Host headers of requests that are meant for this server."""
    host = host.lower()  # as Host headers are compared
    names = LOCAL if host in LOCAL else (f"[{host}]" if ":" in host else host,)
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())


class Guard:
    """Refuse requests for another host or from another site, and add the headers that keep the page to itself.

    A site whose name leads to this machine (DNS rebinding) is known by its Host header, a request that another site's
    page sends by its Origin or by what the browser says of it (Sec-Fetch-Site).
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app, self._hosts = app, frozenset(hosts)
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] != "http":
            return
        reason = self._refusal(scope)
        if reason:
            await JSONResponse({"error": reason}, 403)(scope, receive, _with_headers(send))
        else:
            await self._app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        hosts, sites = headers.getlist("host"), headers.getlist("sec-fetch-site")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return f"this server answers only at {' and '.join(sorted(self._hosts))}"
        is_elsewhere = any(origin.lower() not in self._origins for origin in headers.getlist("origin"))
        is_link = scope["method"] == "GET" and scope["path"] == "/"
        if is_elsewhere or (not is_link and not {"cross-site", "same-site"}.isdisjoint(sites)):
            return "requests from other sites are not served"
        return ""


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
