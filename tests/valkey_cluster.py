"""A Redis Cluster of child processes: masters, and a replica for each, to kill and to pause.

Slots are spread evenly. A replica takes over `NODE_TIMEOUT_MS` and an election after its master
fell silent. Nothing is kept on disk but who belongs to the cluster: a master that is started again
is empty, or a replica of who took over.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis
from tests.servers import ChildServer, running

from axiom_cli.stack.servers import VALKEY

MASTERS = 3
SLOTS = 16384
NODE_TIMEOUT_MS = 1_000
FORM_TIMEOUT_S = 60.0
POLL_S = 0.02


class ValkeyCluster:
    """`servers` are the masters at the start, then a replica for each of them in that order."""

    def __init__(self, servers: list[ChildServer]) -> None:
        self.servers = servers
        self._clients = {server: redis.Redis.from_url(server.url) for server in servers}

    @property
    def url(self) -> str:
        """Where clients connect."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{s.port}" for s in self.servers)

    def ask(self, server: ChildServer, *command: object) -> Any:
        """One command to one server."""
        client: Any = self._clients[server]
        return client.execute_command(*command)

    def masters(self) -> list[ChildServer]:
        """Who is a master now, of those that answer."""
        return [s for s in self.servers if self._role(s) == b"master"]

    def replica_of(self, master: ChildServer) -> ChildServer:
        """Who replicates this master."""
        [(_, port, _)] = self.ask(master, "ROLE")[2]
        return next(s for s in self.servers if s.port == int(port))

    def master_of(self, key: str) -> ChildServer:
        """Who holds a key."""
        for server in self.masters():
            try:
                self.ask(server, "EXISTS", key)
            except redis.ResponseError:
                continue
            return server
        raise LookupError(key)

    def heal(self) -> None:
        """Start and resume all, and wait until each master has its replica."""
        for server in self.servers:
            server.resume()
            server.start()
        _until(self._whole)

    def form(self) -> None:
        """Make one cluster of the servers."""
        for n, server in enumerate(self.servers):
            if n < MASTERS:
                first, last = n * SLOTS // MASTERS, (n + 1) * SLOTS // MASTERS - 1
                self.ask(server, "CLUSTER", "ADDSLOTSRANGE", first, last)
            self.ask(server, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            for other in self.servers[:n]:
                self.ask(server, "CLUSTER", "MEET", "127.0.0.1", other.port, other.port - 10_000)
        _until(self._joined)
        for master, replica in zip(self.servers[:MASTERS], self.servers[MASTERS:], strict=True):
            self.ask(replica, "CLUSTER", "REPLICATE", self.ask(master, "CLUSTER", "MYID"))
        _until(self._whole)

    def close(self) -> None:
        """Let go of all connections."""
        for client in self._clients.values():
            client.close()

    def _joined(self) -> bool:
        infos = [self.ask(server, "CLUSTER INFO") for server in self.servers]
        known = str(len(self.servers))
        return all(i["cluster_state"] == "ok" and i["cluster_known_nodes"] == known for i in infos)

    def _whole(self) -> bool:
        roles = [self.ask(server, "ROLE") for server in self.servers]
        masters = [role for role in roles if role[0] == b"master"]
        replicas = [role for role in roles if role[0] == b"slave"]
        return (
            self._joined()
            and len(masters) == MASTERS
            and all(len(role[2]) == 1 for role in masters)
            and all(role[3] == b"connected" for role in replicas)
        )

    def _role(self, server: ChildServer) -> bytes | None:
        try:
            role: bytes = self.ask(server, "ROLE")[0]
        except redis.RedisError:
            return None
        return role


@contextlib.contextmanager
def running_cluster(directory: Path) -> Iterator[ValkeyCluster]:
    """Three masters with a replica each."""
    kind = replace(VALKEY, command=cluster_command)
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(running(ChildServer(kind, directory / f"valkey{n}")))
            for n in range(2 * MASTERS)
        ]
        cluster = ValkeyCluster(servers)
        stack.callback(cluster.close)
        cluster.form()
        yield cluster


def cluster_command(data_dir: Path, port: int) -> list[str]:
    """The command line of one server of a cluster."""
    command = VALKEY.command(data_dir, port)
    # The default bus port, 10000 above, may lie beyond the last port.
    command += ["--cluster-enabled", "yes", "--cluster-port", str(port - 10_000)]
    command += ["--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
    command += ["--cluster-require-full-coverage", "no"]
    # Else a replica that is younger than 5 s never takes over.
    return [*command, "--repl-diskless-sync-delay", "0"]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + FORM_TIMEOUT_S
    while True:
        with contextlib.suppress(redis.RedisError):
            if condition():
                return
        assert time.monotonic() < deadline, "the cluster does not form"
        time.sleep(POLL_S)
