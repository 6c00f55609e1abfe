"""A NATS cluster as `axiom nats config` makes it: three servers, mTLS, nkeys, permissions.

Each user has a seed. Servers are children, to kill and restart.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import nkeys
import trustme
from nats.aio.client import Client
from tests.servers import ChildServer, free_port

from axiom_cli.nats_config.files import nats_files
from axiom_cli.nats_config.permissions import DOMAIN
from axiom_cli.nats_config.topology import NatsKeys, NatsLimits, NatsServer, NatsTls, NatsTopology
from axiom_cli.stack.servers import HOST, NATS, ServerKind, nats_binary
from axiom_common.drivers.nats_connection import NatsConnection, inbox_of
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.wire import subjects

REGION = RegionId("eu")
SERVERS = 3
NODES = ("n1", "n2", "n3")
SERVICES = ("gateway", "scheduler", "telemetry", "operator", "system")
PENDING_BYTES = 4 << 20
HEALTHY_WITHIN_S = 30.0
START_ATTEMPTS_MAX = 3


class NatsCluster:
    """Three servers of the region `REGION`. `url` names all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.public_keys = {user: make_seed(self._seed(user)) for user in (*SERVICES, *NODES)}
        self._make_certificates()
        self.servers: dict[str, ChildServer] = {}
        self.topology = self._lay_out()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return ",".join(f"tls://{HOST}:{server.client_port}" for server in self.topology.servers)

    def start(self) -> None:
        """Start what is down, and wait until all servers agree on a leader of JetStream."""
        for server in self.servers.values():
            server.start()
        deadline = time.monotonic() + HEALTHY_WITHIN_S
        for server in self.topology.servers:
            while not self._healthy(server):
                if time.monotonic() > deadline:
                    raise UnavailableError(f"{server.name} is not healthy")
                time.sleep(0.02)

    def stop(self) -> None:
        """End all servers."""
        for server in self.servers.values():
            server.stop()

    def settings(self, user: str) -> dict[str, Any]:
        """What a service that runs as `user` has in its settings file."""
        own = {"nats_domain": DOMAIN} if user in NODES else {"nats_replicas": SERVERS}
        return own | {
            "region": REGION,
            "nats_url": self.url,
            "nats_nkey_seed_file": str(self._seed(user)),
            "nats_ca_file": str(self.folder / "ca.pem"),
            "nats_cert_file": str(self.folder / "client.pem"),
            "nats_key_file": str(self.folder / "client-key.pem"),
        }

    def credentials(self, user: str) -> NatsCredentials:
        """As a service that runs as `user` reads them."""
        return NatsCredentials(
            nkey_seed_file=self._seed(user),
            ca_file=self.folder / "ca.pem",
            cert_file=self.folder / "client.pem",
            key_file=self.folder / "client-key.pem",
        )

    def registry(self, user: str, connection: NatsConnection) -> NatsRegistry:
        """The registry as a process of `user` uses it."""
        if user in NODES:
            return NatsRegistry(connection, domain=DOMAIN, direct=True)
        return NatsRegistry(connection, replicas=SERVERS)

    def connection(self, user: str, *, name: str, url: str | None = None) -> NatsConnection:
        """A connection of Axiom's own as `user`; not started yet."""
        credentials = self.credentials(user)
        clock = SystemClock()
        return NatsConnection(url or self.url, name=name, clock=clock, credentials=credentials)

    async def client(self, user: str, *, inbox: str, errors: list[str] | None = None) -> Client:
        """A bare client, for what Axiom itself would not do. `errors` gets what is refused."""

        async def refused(error: Exception) -> None:
            if errors is not None:
                errors.append(str(error))

        credentials = self.credentials(user)
        return await nats.connect(
            self.url.split(","),
            nkeys_seed_str=credentials.read_seed(),
            tls=credentials.tls(),
            inbox_prefix=inbox_of(inbox),
            error_cb=refused,
        )

    def ask(self, server: NatsServer, path: str) -> dict[str, Any]:
        """A page of a server's monitor."""
        url = f"http://{HOST}:{server.monitor_port}/{path}"
        with urllib.request.urlopen(url, timeout=2) as answer:
            return dict(json.load(answer))

    def _healthy(self, server: NatsServer) -> bool:
        try:
            self.ask(server, "healthz")
            return len(self.ask(server, "routez")["routes"]) > 0
        except (urllib.error.URLError, OSError):
            return False

    def _lay_out(self) -> NatsTopology:
        folder = self.folder
        topology = NatsTopology(
            region=REGION,
            servers=tuple(
                NatsServer(
                    name=f"nats-{number}",
                    host=HOST,
                    listen=HOST,
                    client_port=free_port(),
                    cluster_port=free_port(),
                    monitor_port=free_port(),
                )
                for number in range(1, SERVERS + 1)
            ),
            store_dir=str(folder / "store"),
            tls=NatsTls(
                ca_file=str(folder / "ca.pem"),
                cert_file=str(folder / "server.pem"),
                key_file=str(folder / "server-key.pem"),
                client_certificates=True,
            ),
            limits=NatsLimits(pending_bytes=PENDING_BYTES, write_deadline_ms=2_000),
            keys=NatsKeys(
                **{service: (self.public_keys[service],) for service in SERVICES},
                nodes={node: (self.public_keys[node],) for node in NODES},
            ),
        )
        for name, text in nats_files(topology).items():
            (folder / name).write_text(text)
        for server in topology.servers:
            kind = ServerKind(
                name=server.name,
                scheme="tls",
                command=self._command(folder / f"{server.name}.conf"),
                serving=NATS.serving,
            )
            self.servers[server.name] = ChildServer(
                kind, folder / "logs" / server.name, port=server.client_port
            )
        return topology

    def _command(self, config: Path) -> Any:
        return lambda data_dir, port: [str(nats_binary()), "-c", str(config)]

    def _seed(self, user: str) -> Path:
        return self.folder / f"{user}.nk"

    def _make_certificates(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "ca.pem")
        for name in ("server", "client"):
            certificate = authority.issue_cert(HOST, common_name=name)
            certificate.private_key_pem.write_to_path(self.folder / f"{name}-key.pem")
            for blob in certificate.cert_chain_pems:
                blob.write_to_path(self.folder / f"{name}.pem", append=True)


@contextmanager
def running_nats_cluster(folder: Path) -> Iterator[NatsCluster]:
    """A cluster that serves. Should somebody take a port meanwhile, it is laid out again."""
    for attempt in range(1, START_ATTEMPTS_MAX + 1):
        cluster = NatsCluster(folder / str(attempt))
        try:
            cluster.start()
        except UnavailableError:
            cluster.stop()
            if attempt == START_ATTEMPTS_MAX:
                raise
            continue
        break
    try:
        yield cluster
    finally:
        cluster.stop()


async def flood_until(client: Client, condition: Callable[[], bool]) -> None:
    """Send reports that nobody can read until the servers have enough of who takes none."""
    async with asyncio.timeout(30):
        while not condition():
            for _ in range(PENDING_BYTES // (1 << 20)):
                await client.publish(subjects.node_report(REGION, NodeId("n3")), bytes(1 << 20))
            await client.flush()


def cut_off(cluster: NatsCluster) -> int:
    """How many clients the servers cut off for being slow."""
    return sum(int(cluster.ask(s, "varz")["slow_consumers"]) for s in cluster.topology.servers)


async def leader_of(cluster: NatsCluster, bucket: str) -> str:
    """The server that leads a bucket."""
    client = await cluster.client("operator", inbox="operator.test")
    info = await client.jetstream().stream_info(f"KV_{bucket}")
    await client.close()
    assert info.cluster is not None
    assert info.cluster.leader is not None
    return info.cluster.leader


def make_seed(path: Path) -> str:
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    path.write_bytes(seed)
    return str(nkeys.from_seed(bytearray(seed)).public_key.decode())
