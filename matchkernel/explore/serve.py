"""Serve the explorer page until Ctrl-C."""

import errno
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from matchkernel.errors import ArgumentError
from matchkernel.explore.photos import PagePhoto
from matchkernel.explore.server import Explorer, create_app
from matchkernel.explore.settings import ExploreSettings
from matchkernel.storage.work import cores, use_threads

CONNECTIONS = 100
SECONDS_TO_FINISH = 2


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
        app = create_app(chosen, pair, report)
        explorer = app.state.explorer
        explorer.matcher.describer(explorer.matcher.default)  # one that cannot be opened is an error before serving
        started(address_of(chosen))
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=SECONDS_TO_FINISH,
        )
        try:
            _Server(config, explorer).run(sockets=[listener])
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
        unspecified = ipaddress.ip_address(settings.host).is_unspecified
    except ValueError:
        unspecified = False
    if unspecified:
        raise ArgumentError(f"{settings.host} binds all interfaces; give the name or address that browsers will use")
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=CONNECTIONS)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ArgumentError(
                f"port {settings.port} is taken: choose another with --port, or 0 for any free one"
            ) from None
        raise ArgumentError(f"cannot serve at {settings.host}:{settings.port} ({error.strerror or error})") from None


def address_of(settings: ExploreSettings) -> str:
    """Where a browser finds the page."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}/"
