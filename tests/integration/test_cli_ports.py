"""Reserved ports: ours across the gap before a process listens on them."""

from __future__ import annotations

import socket

import pytest

from axiom_cli.stack.ports import PortTakenError, reserved_ports
from axiom_cli.stack.servers import HOST


def listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen()
    return listener


def test_a_reserved_port_can_be_listened_on_again_and_again() -> None:
    with reserved_ports([("a", 0), ("b", 0)]) as ports:
        assert len(set(ports.values())) == 2
        for _ in range(2):
            with listen(ports["a"]), socket.create_connection((HOST, ports["a"])):
                pass


def test_nobody_else_is_given_a_reserved_port_as_a_free_one() -> None:
    with (
        reserved_ports([("a", 0)]) as ports,
        socket.socket() as other,
        pytest.raises(OSError, match="in use"),
    ):
        other.bind((HOST, ports["a"]))


def test_a_port_that_was_asked_for_is_given() -> None:
    with reserved_ports([("a", 0)]) as first:
        wanted = first["a"]
    with reserved_ports([("gateway", wanted)]) as ports:
        assert ports == {"gateway": wanted}


def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    with listen(0) as listener:
        port = listener.getsockname()[1]
        with (
            pytest.raises(PortTakenError, match=rf"port {port} .*--port"),
            reserved_ports([("gateway", port)]),
        ):
            pass
