"""Where keys lie: on one Valkey or Redis server, or on the masters of a cluster.

A shard is one server and a pipeline to it. Commands for one shard don't wait for another, and a
shard that is lost takes no other's connections with it. So of the cluster's client only the table
of slots and the connections are used: its own retries close all connections of all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, PipelineCommand, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError

from axiom_common.errors import SettingsError

CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")
"""The second speaks TLS."""
CONNECTIONS_MAX = 32
RETRY_S = 0.05

Command = tuple[Any, ...]
Answer = Any
"""What a command returned, or the exception that it failed with."""
# AttributeError: what a connection that another call is closing just now fails with.
AWAY = (RedisError, RedisClusterException, OSError, TimeoutError, AttributeError)


class Shards(Protocol):
    """Sends pipelines. No call raises: an answer is an exception where a command failed."""

    async def ready(self) -> None:
        """Find out where keys lie; raises one of `AWAY` when nobody answers."""
        ...

    def shard(self, key: str, /) -> str:
        """The name of the shard of a key, as far as is known."""
        ...

    async def send(self, shard: str, commands: Sequence[Command], /) -> list[Answer]:
        """Send as one pipeline."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


class OneServer:
    """All keys on one server."""

    def __init__(self, url: str, call_timeout_s: float) -> None:
        options = _options(call_timeout_s)
        # A connection that the server closed is found out by using it, so one more try is due.
        options["retry"] = Retry(ConstantBackoff(RETRY_S), 1)
        self._redis = Redis.from_pool(
            BlockingConnectionPool.from_url(url, timeout=call_timeout_s, **options)
        )

    async def ready(self) -> None:
        """Nothing to find out."""

    def shard(self, _key: str) -> str:
        """There is one."""
        return ""

    async def send(self, _shard: str, commands: Sequence[Command]) -> list[Answer]:
        """Send as one pipeline."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            return list(await pipeline.execute(raise_on_error=False))
        except AWAY as error:
            return [error] * len(commands)

    async def close(self) -> None:
        """Let go of all connections."""
        await self._redis.aclose()


class Cluster:
    """Keys on the masters of a cluster, by hash slot."""

    def __init__(self, url: SplitResult, call_timeout_s: float) -> None:
        user_info, _, addresses = url.netloc.rpartition("@")
        user, _, password = map(unquote, user_info.partition(":"))
        self._cluster = RedisCluster(
            startup_nodes=[_cluster_node(address) for address in addresses.split(",")],
            require_full_coverage=False,
            username=user or None,
            password=password or None,
            ssl=url.scheme == CLUSTER_SCHEMES[1],
            **_options(call_timeout_s),
        )

    async def ready(self) -> None:
        """Read the table of slots, once."""
        await self._cluster.initialize()

    def shard(self, key: str) -> str:
        """The master that the table of slots names for the key."""
        node = self._node(key)
        return "" if node is None else str(node.name)

    async def send(self, shard: str, commands: Sequence[Command]) -> list[Answer]:
        """Send as one pipeline; what shows that the table is old leads to a new one."""
        node = self._cluster.get_node(node_name=shard) if shard else None
        if node is None:
            answers: list[Answer] = [OSError("no master known")] * len(commands)
        else:
            answers = await _pipelined(node, commands)
        if any(_misplaced(answer) for answer in answers):
            try:
                await self._cluster.nodes_manager.initialize(last_failed_node_name=shard or None)
            except AWAY:
                return answers
        return answers

    async def close(self) -> None:
        """Let go of all connections."""
        await self._cluster.aclose()

    def _node(self, key: str) -> ClusterNode | None:
        slots = self._cluster.nodes_manager.slots_cache.get(self._cluster.keyslot(key))
        return slots[0] if slots else None


def shards_of(url: str, call_timeout_s: float) -> Shards:
    """The servers of a URL: `redis://user:password@host:port`, `rediss://`, `unix://`, or a cluster
    by some of its nodes, `redis+cluster://user:password@host:port,...`, `rediss+cluster://`.
    SettingsError when it can't be one."""
    try:
        parts = urlsplit(url)
        if parts.scheme in CLUSTER_SCHEMES:
            return Cluster(parts, call_timeout_s)
        return OneServer(url, call_timeout_s)
    except ValueError as error:
        # Not the URL itself: it may hold a password.
        raise SettingsError(f"redis_url: {error}") from error


async def _pipelined(node: ClusterNode, commands: Sequence[Command]) -> list[Answer]:
    pipeline = [PipelineCommand(at, *command) for at, command in enumerate(commands)]
    try:
        await node.execute_pipeline(pipeline)
    except AWAY as error:
        return [error] * len(commands)
    return [command.result for command in pipeline]


def _misplaced(answer: Answer) -> bool:
    """Whether an answer says that its shard is not, or no longer, where the key lies."""
    return isinstance(answer, Exception) and not isinstance(answer, NoScriptError)


def _options(call_timeout_s: float) -> dict[str, Any]:
    return {
        "socket_timeout": call_timeout_s,
        "socket_connect_timeout": call_timeout_s,
        "max_connections": CONNECTIONS_MAX,
    }


def _cluster_node(address: str) -> ClusterNode:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    return ClusterNode(host, int(port))
