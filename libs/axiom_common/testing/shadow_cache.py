"""The shadow cache in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.ports.clock import Clock
from axiom_common.ports.shadow_cache import MENTION_MS, Put, PutOutcome
from axiom_common.state.region_view import TOMBSTONE_MS


@dataclass(slots=True)
class _Stored:
    """What is kept, each with the time of its end."""

    records: dict[NodeId, tuple[bytes, float]] = field(default_factory=dict)
    orders: dict[NodeId, tuple[tuple[int, int], float]] = field(default_factory=dict)
    names: dict[NodeId, float] = field(default_factory=dict)


class FakeShadowCache:
    """A `ShadowCache`. While `away` is set, all calls fail; `wipe` is a restart without disk.

    `shards` > 1 spreads nodes over shards by name; those in `away_shards` fail alone.
    """

    def __init__(self, region: RegionId, clock: Clock, *, shards: int = 1) -> None:
        self.away = False
        self.away_shards: set[str] = set()
        self._region = region
        self._clock = clock
        self._shards = shards
        self._stored = _Stored()

    @property
    def region(self) -> RegionId:
        """The region whose nodes are kept here."""
        return self._region

    def shard(self, node: NodeId) -> str:
        """The shard of a node, by the sum of its name's bytes."""
        return str(sum(node.encode()) % self._shards)

    async def put_if_newer(self, puts: Sequence[Put]) -> tuple[PutOutcome, ...]:
        """Store each that is newer."""
        return tuple(self._put(put) for put in puts)

    async def mention(self, nodes: Sequence[NodeId]) -> None:
        """Keep the names for a while."""
        self._check_there()
        until_ms = self._clock.now_ms() + MENTION_MS
        self._stored.names.update(dict.fromkeys(nodes, until_ms))

    async def read_all(self) -> tuple[bytes, ...]:
        """All live records of mentioned nodes."""
        self._check_there()
        records, names = self._stored.records, self._stored.names
        return tuple(records[node][0] for node in names if node in records)

    async def ping(self) -> None:
        """Fails while away."""
        self._check_there()

    def wipe(self) -> None:
        """Forget everything."""
        self._stored = _Stored()

    def _put(self, put: Put) -> PutOutcome:
        if self.away or self.shard(put.node) in self.away_shards:
            return UnavailableError("the shadow cache is away")
        self._expire()
        now_ms, order = self._clock.now_ms(), (put.incarnation, put.seq)
        known = self._stored.orders.get(put.node)
        if known is not None and order <= known[0]:
            return False
        self._stored.orders[put.node] = (order, now_ms + TOMBSTONE_MS)
        self._stored.records[put.node] = (put.record, now_ms + put.ttl_ms)
        return True

    def _check_there(self) -> None:
        if self.away or self.away_shards:
            raise UnavailableError("the shadow cache is away")
        self._expire()

    def _expire(self) -> None:
        now_ms, stored = self._clock.now_ms(), self._stored
        stored.records = {n: kept for n, kept in stored.records.items() if kept[1] > now_ms}
        stored.orders = {n: kept for n, kept in stored.orders.items() if kept[1] > now_ms}
        stored.names = {n: until_ms for n, until_ms in stored.names.items() if until_ms > now_ms}
