"""An ASGI app on a socket, as a task among others: uvicorn without its own signal handling.

The socket listens from construction on, so `port` may be told to others before `serve` runs.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from axiom_common.errors import SettingsError
from axiom_common.runtime.http_protocol import BoundedProtocol

_BACKLOG = 2048


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process owns its signals (runtime.lifecycle), not the server."""
        yield


class HttpServer:
    """One listening socket. `drain_s` bounds how long open responses may take to end on stop.

    Raises SettingsError when the address can't be had.
    """

    def __init__(self, app: Any, *, host: str, port: int, drain_s: float = 10.0) -> None:
        self._socket = _bind(host, port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            proxy_headers=False,
            loop="none",
            lifespan="off",
            log_config=None,
            # What clients do wrong is no news of this process, and they could fill its log with it.
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=int(drain_s),
            timeout_keep_alive=75,
            backlog=_BACKLOG,
        )
        self._server = _Server(config)

    async def serve(self) -> None:
        """Serve until `stop`, then let open responses end."""
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Begin to drain."""
        self._server.should_exit = True


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        _listen(listener, host, port)
    except OSError as error:
        listener.close()
        raise SettingsError(f"port: can't listen on {host}:{port}: {error.strerror}") from error
    return listener


def _listen(listener: socket.socket, host: str, port: int) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it: a chunk of a stream must not wait for the next one.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((host, port))
    # From here on connections wait instead of being refused, so the port can be told at once.
    listener.listen(_BACKLOG)
