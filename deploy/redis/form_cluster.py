"""Makes one cluster of Valkey or Redis servers that run already; done again, it changes nothing.

    form_cluster.py MASTER... [--replicas REPLICA...]     each of them HOST:PORT@BUSPORT

Slots are spread evenly over the masters; the n-th replica follows whoever holds the n-th master's
slots. Servers whose addresses changed are introduced to each other again. Needs the Python package
`redis`. Exit code 0 once every server finds the cluster whole, 1 with the cause after a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import redis

SLOTS = 16384
DEADLINE_S = 60.0
POLL_S = 0.1
TIMEOUT_S = 2.0


class Server:
    """One server; `address` is HOST:PORT@BUSPORT."""

    def __init__(self, address: str) -> None:
        place, _, bus_port = address.partition("@")
        self.host, _, port = place.rpartition(":")
        self.port, self.bus_port = int(port), int(bus_port)
        self._client = redis.Redis(self.host, self.port, socket_timeout=TIMEOUT_S)

    def ask(self, *command: object) -> Any:
        """One command; redis.RedisError when it is refused or nobody answers."""
        client: Any = self._client
        return client.execute_command(*command)

    def address(self) -> str:
        """Its present one, as its peers write it."""
        return f"{socket.gethostbyname(self.host)}:{self.port}"

    def meet(self, other: Server) -> None:
        """Introduce another server, by its present address."""
        host, _, port = other.address().rpartition(":")
        self.ask("CLUSTER", "MEET", host, port, other.bus_port)

    def has_no_slots(self) -> bool:
        """Whether it is a master that serves nothing."""
        own = next(n for n in self.ask("CLUSTER NODES").values() if "myself" in n["flags"])
        return "master" in own["flags"] and not own["slots"]


def form(masters: list[Server], replicas: list[Server]) -> None:
    """One cluster; SystemExit with the cause when it does not come about in time."""
    servers = [*masters, *replicas]
    deadline = time.monotonic() + DEADLINE_S  # noqa: TID251 - a script of its own
    _until(lambda: all(map(_answers, servers)), "every server answers", deadline)
    for n, master in enumerate(masters):
        first, last = n * SLOTS // len(masters), (n + 1) * SLOTS // len(masters) - 1
        # Refused where another server took them over meanwhile: then they are served.
        with contextlib.suppress(redis.ResponseError):
            if master.has_no_slots():
                master.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
    _until(lambda: _met(servers), "all know each other", deadline)
    for n, replica in enumerate(replicas):
        if replica.has_no_slots():
            replica.ask("CLUSTER", "REPLICATE", _owner(replica, n * SLOTS // len(masters)))


def _answers(server: Server) -> bool:
    return bool(server.ask("PING"))


def _met(servers: list[Server]) -> bool:
    """Whether each finds the cluster whole; they are introduced once more where not, as a server
    forgets one that did not answer at once."""
    if all(_whole(server, servers) for server in servers):
        return True
    for server, other in zip(servers, [*servers[1:], servers[0]], strict=True):
        # Being met is also how a server learns its own address.
        server.meet(other)
    return False


def _whole(server: Server, servers: list[Server]) -> bool:
    """Whether all slots are served, as a server sees it, and it knows all of them, itself too,
    where they are now: what it remembers of before it started is no sign of that."""
    info, nodes = server.ask("CLUSTER INFO"), server.ask("CLUSTER NODES")
    reached = {address for address, node in nodes.items() if node["connected"]}
    return (
        info["cluster_state"] == "ok"
        and int(info["cluster_slots_ok"]) == SLOTS
        and reached >= {other.address() for other in servers}
    )


def _owner(server: Server, slot: int) -> str:
    """Who holds a slot, by its id."""
    for first, last, (_, _, owner, *_), *_ in server.ask("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return owner.decode() if isinstance(owner, bytes) else str(owner)
    raise LookupError(slot)


def _until(condition: Callable[[], bool], what: str, deadline: float) -> None:
    cause = "it is not so"
    while time.monotonic() < deadline:  # noqa: TID251
        try:
            if condition():
                return
        except (redis.RedisError, OSError) as error:
            cause = str(error)
        time.sleep(POLL_S)
    sys.exit(f"waited in vain until {what}: {cause}")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Makes one cluster of servers that run already.")
    parser.add_argument("masters", nargs="+", type=Server, metavar="HOST:PORT@BUSPORT")
    parser.add_argument("--replicas", nargs="*", type=Server, default=[])
    arguments = parser.parse_args()
    form(arguments.masters, arguments.replicas)


if __name__ == "__main__":
    main()
