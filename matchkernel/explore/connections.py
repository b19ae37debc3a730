"""How uvicorn serves the page: connections that wait for nothing neither stay nor keep others out."""

import asyncio
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 100
SHARE_OF_FILES = 4  # of the files that the process may open, one of so many may be a connection
SECONDS_FOR_HEADERS = 10.0
SECONDS_TO_READ = 60.0  # for those who are sent more than their system keeps for them
SECONDS_TO_FINISH = 2


class Connection(H11Protocol):
    """Closed when headers take too long, an answer is not read, or it waits and another takes its place."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._opened = self.loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """True before the headers of a request have arrived."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the place of the connection that has waited longest, if there are too many."""
        super().connection_made(transport)
        # asyncio does not for sockets of create_server; without, the system keeps a small answer back for 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()
        others: list[Connection] = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        open_ones = [one for one in others if not one.transport.is_closing()]
        waiting = [one for one in open_ones if one.is_waiting]
        if waiting and self.limit_concurrency is not None and len(open_ones) + 1 >= self.limit_concurrency:
            min(waiting, key=lambda one: one._opened).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, and wait for the rest of the headers for a limited time."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """Wait for the reader of an answer for a limited time."""
        super().pause_writing()
        self._unread = self.loop.call_later(SECONDS_TO_READ, self.transport.abort)

    def resume_writing(self) -> None:
        """The answer is being read."""
        super().resume_writing()
        self._stop_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        super().connection_lost(exc)
        self._stop()
        self._stop_unread()

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        if not self.is_waiting:
            self._stop()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(SECONDS_FOR_HEADERS, self._give_up)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.is_waiting:
            self.transport.abort()


def connection_limit() -> int:
    """Number of connections, fewer where the process may open few files: without one left, none could be refused."""
    try:
        import resource
    except ImportError:  # on Windows
        return CONNECTIONS
    return max(4, min(CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE_OF_FILES))


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How the page is served."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=connection_limit(),  # so many are accepted before any of them is looked at
        limit_concurrency=connection_limit(),
        timeout_graceful_shutdown=SECONDS_TO_FINISH,
    )
