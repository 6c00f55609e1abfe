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
from redis.backoff import NoBackoff
from redis.retry import Retry

SLOTS = 16384
DEADLINE_S = 60.0
POLL_S = 0.1
TIMEOUT_S = 2.0
MEET_EVERY_S = 3.0


class Server:
    """One server; `address` is HOST:PORT@BUSPORT."""

    def __init__(self, address: str) -> None:
        place, _, bus_port = address.partition("@")
        self.host, _, port = place.rpartition(":")
        self.port, self.bus_port = int(port), int(bus_port)
        # Who asks here asks again by itself.
        once = Retry(NoBackoff(), 0)
        self._client = redis.Redis(self.host, self.port, socket_timeout=TIMEOUT_S, retry=once)

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

    def unknown_of(self, servers: list[Server]) -> list[Server]:
        """Those, itself among them, that it does not know or can't reach where they are now: what
        it remembers of before it started may be wrong."""
        nodes = self.ask("CLUSTER NODES")
        known = {address for address, node in nodes.items() if node["connected"]}
        return [server for server in servers if server.address() not in known]

    def has_no_slots(self) -> bool:
        """Whether it is a master that serves nothing."""
        own = next(n for n in self.ask("CLUSTER NODES").values() if "myself" in n["flags"])
        return "master" in own["flags"] and not own["slots"]


def form(masters: list[Server], replicas: list[Server]) -> None:
    """One cluster; SystemExit with the cause when it does not come about in time."""
    servers = [*masters, *replicas]
    deadline = time.monotonic() + DEADLINE_S  # noqa: TID251 - a script of its own
    if not _comes(lambda: all(map(_answers, servers)), deadline):
        sys.exit("not every server answers: " + "; ".join(map(_told, servers)))
    for n, master in enumerate(masters):
        first, last = n * SLOTS // len(masters), (n + 1) * SLOTS // len(masters) - 1
        # Refused where another server took them over meanwhile: then they are served.
        with contextlib.suppress(redis.ResponseError):
            if master.has_no_slots():
                master.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
    _introduce(servers, deadline)
    for n, replica in enumerate(replicas):
        if replica.has_no_slots():
            replica.ask("CLUSTER", "REPLICATE", _owner(replica, n * SLOTS // len(masters)))


def _answers(server: Server) -> bool:
    return bool(server.ask("PING"))


def _introduce(servers: list[Server], deadline: float) -> None:
    """Until each finds the cluster whole, whoever does not know another where it is now meets it.
    Seldom, as a meeting ends the connections that there were; again, as one may not come off."""
    while True:
        for n, server in enumerate(servers):
            unknown = server.unknown_of(servers)
            for other in unknown:
                # A server learns its own address by being met.
                (servers[n - 1] if other is server else server).meet(other)
        this_time = min(deadline, time.monotonic() + MEET_EVERY_S)  # noqa: TID251
        last = this_time == deadline
        if _comes(lambda: all(_whole(s, servers) for s in servers), this_time):
            return
        if last:
            sys.exit("the cluster does not become whole: " + "; ".join(map(_told, servers)))


def _whole(server: Server, servers: list[Server]) -> bool:
    info = server.ask("CLUSTER INFO")
    served = info["cluster_state"] == "ok" and int(info["cluster_slots_ok"]) == SLOTS
    return served and not server.unknown_of(servers)


def _told(server: Server) -> str:
    """What a server sees, for the one who has to look after it."""
    with contextlib.suppress(redis.RedisError):
        info, nodes = server.ask("CLUSTER INFO"), server.ask("CLUSTER NODES")
        flags = {address: node["flags"] for address, node in nodes.items()}
        return f"{server.host}: {info['cluster_state']}, {info['cluster_slots_ok']} slots, {flags}"
    return f"{server.host}: no answer"


def _owner(server: Server, slot: int) -> str:
    """Who holds a slot, by its id."""
    for first, last, (_, _, owner, *_), *_ in server.ask("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return owner.decode() if isinstance(owner, bytes) else str(owner)
    raise LookupError(slot)


def _comes(condition: Callable[[], bool], deadline: float) -> bool:
    """Whether it is so before the deadline. A server that does not answer may do so yet."""
    while time.monotonic() < deadline:  # noqa: TID251
        with contextlib.suppress(redis.RedisError, OSError):
            if condition():
                return True
        time.sleep(POLL_S)
    return False


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Makes one cluster of servers that run already.")
    parser.add_argument("masters", nargs="+", type=Server, metavar="HOST:PORT@BUSPORT")
    parser.add_argument("--replicas", nargs="*", type=Server, default=[])
    arguments = parser.parse_args()
    form(arguments.masters, arguments.replicas)


if __name__ == "__main__":
    main()
