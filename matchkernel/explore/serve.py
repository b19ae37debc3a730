"""Serve the explorer page until Ctrl-C."""

import errno
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from matchkernel.errors import ArgumentError
from matchkernel.explore.connections import connection_limit, server_config
from matchkernel.explore.photos import PagePhoto, read_sample
from matchkernel.explore.server import Explorer, create_app
from matchkernel.explore.settings import ExploreSettings
from matchkernel.storage.work import cores, use_threads


def serve(
    settings: ExploreSettings,
    pair: tuple[PagePhoto, PagePhoto] | None = None,
    report: str | None = None,
    started: Callable[[str], object] = lambda address: None,
) -> None:
    """Serve until the process is stopped; `started` is called with the page's address once the port is bound."""
    # Jobs share the cores: threads that wait for each other on busy cores take five times as long.
    use_threads(max(1, cores() // settings.workers))
    with listen(settings) as listener:
        chosen = replace(settings, port=listener.getsockname()[1])
        app = create_app(chosen, pair or read_sample(chosen), report)
        explorer = app.state.explorer
        explorer.matcher.describer(explorer.matcher.chosen[0])  # one that cannot be opened is an error before serving
        started(address_of(chosen))
        try:
            _Server(server_config(app), explorer).run(sockets=[listener])
        finally:
            explorer.close()


class _Server(uvicorn.Server):
    """Drops the jobs when it is stopped: uvicorn would wait for their requests, then print a traceback of each."""

    def __init__(self, config: uvicorn.Config, explorer: Explorer) -> None:
        super().__init__(config)
        self._explorer = explorer

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._explorer.close()
        await super().shutdown(sockets)


def listen(settings: ExploreSettings) -> socket.socket:
    """Open a listening socket. Raises ArgumentError if the address is in use or cannot be bound."""
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        if _is_every_address(str(address[0])):  # by whatever name: 0, 0x0, ::ffff:0.0.0.0
            raise ArgumentError(
                f"{settings.host} binds all interfaces; give the name or address that browsers will use"
            )
        return socket.create_server(address, family=family, backlog=connection_limit())
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ArgumentError(
                f"port {settings.port} is taken: choose another with --port, or 0 for any free one"
            ) from None
        raise ArgumentError(f"cannot serve at {settings.host}:{settings.port} ({error.strerror or error})") from None


def _is_every_address(text: str) -> bool:
    found = ipaddress.ip_address(text.partition("%")[0])
    return found.is_unspecified or getattr(found, "ipv4_mapped", None) == ipaddress.ip_address("0.0.0.0")


def address_of(settings: ExploreSettings) -> str:
    """Where a browser finds the page."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}/"
