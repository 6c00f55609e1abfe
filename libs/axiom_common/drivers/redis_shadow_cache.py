"""The shadow cache on Valkey or Redis: one server, or a cluster behind the same code.

A script on the server compares and sets a record as one step. The set of node names is in another
hash slot; a name in it is a hint to be checked, never the truth: it is written with every record
and removed by whoever finds that its record has expired.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError

from axiom_common.errors import SettingsError, UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.wire import keys

CLUSTER_SCHEME = "redis+cluster"
CALL_TIMEOUT_S = 0.5
CONNECTIONS_MAX = 32
READ_BATCH = 256
RETRY_S = 0.05

_RECORD_FIELD = "record"
# AttributeError: when a node is lost, the cluster's client closes connections that other calls are
# just setting up, and these fail on what is None then.
_AWAY = (RedisError, RedisClusterException, OSError, TimeoutError, AttributeError)

# KEYS: record. ARGV: incarnation, seq, record, ttl in ms. 1 when stored.
_PUT = """
local incarnation, seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored = redis.call('HMGET', KEYS[1], 'incarnation', 'seq')
if stored[1] then
  local old, old_seq = tonumber(stored[1]), tonumber(stored[2])
  if incarnation < old or (incarnation == old and seq <= old_seq) then return 0 end
end
redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'seq', ARGV[2], 'record', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
_PUT_SHA = hashlib.sha1(_PUT.encode(), usedforsecurity=False).hexdigest()


class RedisShadowCache:
    """A `ShadowCache`. Connects on first use, and again after each loss.

    `url`: `redis://host:port`, `rediss://...`, `unix://...`, or `redis+cluster://host:port,...`.
    """

    def __init__(
        self, url: str, region: RegionId, *, call_timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        self._region = region
        self._redis = _client(url, call_timeout_s)

    @property
    def region(self) -> RegionId:
        """The region whose nodes are kept here."""
        return self._region

    async def put_if_newer(
        self, node: NodeId, *, incarnation: int, seq: int, record: bytes, ttl_ms: int
    ) -> bool:
        """Store when newer than the stored one."""
        arguments = (1, keys.shadow_record(self._region, node), incarnation, seq, record, ttl_ms)
        async with self._calling():
            await _awaited(self._redis.sadd(keys.shadow_nodes(self._region), node))
            try:
                stored = await self._redis.evalsha(_PUT_SHA, *arguments)
            except NoScriptError:
                # Restarted, failed over or asked for the first time: the text itself teaches it.
                stored = await self._redis.eval(_PUT, *arguments)
        return bool(stored)

    async def read_all(self) -> tuple[bytes, ...]:
        """All live records, read in batches; names without a record are removed."""
        records: list[bytes] = []
        async with self._calling():
            names = await _awaited(self._redis.smembers(keys.shadow_nodes(self._region)))
            nodes = sorted(NodeId(name.decode()) for name in names)
            for start in range(0, len(nodes), READ_BATCH):
                batch = nodes[start : start + READ_BATCH]
                found = await self._read(batch)
                records += [record for record in found if record is not None]
                await self._forget(
                    [node for node, record in zip(batch, found, strict=True) if record is None]
                )
        return tuple(records)

    async def ping(self) -> None:
        """Ask whether it is there."""
        async with self._calling():
            await _awaited(self._redis.scard(keys.shadow_nodes(self._region)))

    async def close(self) -> None:
        """Let go of all connections."""
        await self._redis.aclose()

    @contextlib.asynccontextmanager
    async def _calling(self) -> AsyncIterator[None]:
        try:
            # Else a cluster's client sends its first command to any node, and concurrent first
            # commands make it start over and over.
            await self._redis.initialize()
            yield
        except _AWAY as error:
            raise UnavailableError(f"shadow cache: {error or type(error).__name__}") from error

    async def _read(self, nodes: list[NodeId]) -> list[bytes | None]:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for node in nodes:
            pipeline.hget(keys.shadow_record(self._region, node), _RECORD_FIELD)
        return cast("list[bytes | None]", await pipeline.execute())

    async def _forget(self, nodes: list[NodeId]) -> None:
        if nodes:
            await _awaited(self._redis.srem(keys.shadow_nodes(self._region), *nodes))


def _client(url: str, call_timeout_s: float) -> Any:
    options: dict[str, Any] = {
        "socket_timeout": call_timeout_s,
        "socket_connect_timeout": call_timeout_s,
        "max_connections": CONNECTIONS_MAX,
        # A connection that the server closed is found out by using it, so one more try is due.
        "retry": Retry(ConstantBackoff(RETRY_S), 1),
    }
    try:
        parts = urlsplit(url)
        if parts.scheme == CLUSTER_SCHEME:
            nodes = [_cluster_node(address) for address in parts.netloc.split(",")]
            return RedisCluster(startup_nodes=nodes, **options)
        return Redis.from_pool(
            BlockingConnectionPool.from_url(url, timeout=call_timeout_s, **options)
        )
    except ValueError as error:
        # Not the URL itself: it may hold a password.
        raise SettingsError(f"redis_url: {error}") from error


def _cluster_node(address: str) -> ClusterNode:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    return ClusterNode(host, int(port))


async def _awaited(reply: Awaitable[Any] | Any) -> Any:
    # The library's commands are typed for its blocking and its asynchronous client at once.
    return await reply
