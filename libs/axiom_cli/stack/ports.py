"""Free ports that stay ours: across the gap before a process listens, and while it restarts.

A reserved port is bound but not listened on. With SO_REUSEADDR on both sides the process that the
port is meant for can still listen on it, while nobody else is given it as a free one.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterable, Iterator

from axiom_cli.stack.servers import HOST
from axiom_common.errors import AxiomError


class PortTakenError(AxiomError):
    """A port that was asked for can't be had."""

    code = "port-taken"

    def __init__(self, port: int, why: str) -> None:
        super().__init__(
            f"port {port} can't be used ({why}): end the process that has it, or choose another "
            "with --port (0 takes a free one)"
        )
        self.port = port


@contextlib.contextmanager
def reserved_ports(wanted: Iterable[tuple[str, int]]) -> Iterator[dict[str, int]]:
    """Ports by name for (name, port), 0 for any free one; PortTakenError for one that is taken."""
    with contextlib.ExitStack() as stack:
        yield {name: _reserve(port, stack) for name, port in wanted}


def _reserve(port: int, stack: contextlib.ExitStack) -> int:
    reserved = stack.enter_context(socket.socket())
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        reserved.bind((HOST, port))
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise PortTakenError(port, str(error.strerror)) from error
        raise
    return int(reserved.getsockname()[1])
