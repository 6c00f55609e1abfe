"""The guard of unit and property tests: a test here that talks to somebody fails."""

from __future__ import annotations

import asyncio
import socket

import pytest


def test_a_socket_is_refused() -> None:
    with socket.socket() as client, pytest.raises(AssertionError, match="no sockets"):
        client.connect(("127.0.0.1", 9))


def test_a_listener_is_refused() -> None:
    with socket.socket() as server, pytest.raises(AssertionError, match="no sockets"):
        server.bind(("127.0.0.1", 0))


async def test_a_stream_is_refused() -> None:
    with pytest.raises(AssertionError, match="no sockets"):
        await asyncio.open_connection("127.0.0.1", 9)
