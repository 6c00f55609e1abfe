"""The shadow cache in memory."""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class _Record:
    order: tuple[int, int]
    payload: bytes
    expires_ms: float


class FakeShadowCache:
    """A `ShadowCache`. While `away` is set, all calls fail; `wipe` is a restart without disk."""

    def __init__(self, region: RegionId, clock: Clock) -> None:
        self.away = False
        self._region = region
        self._clock = clock
        self._records: dict[NodeId, _Record] = {}

    @property
    def region(self) -> RegionId:
        """The region whose nodes are kept here."""
        return self._region

    async def put_if_newer(
        self, node: NodeId, *, incarnation: int, seq: int, record: bytes, ttl_ms: int
    ) -> bool:
        """Store when newer than the stored one."""
        self._check_there()
        stored = self._records.get(node)
        if stored is not None and (incarnation, seq) <= stored.order:
            return False
        expires_ms = self._clock.now_ms() + ttl_ms
        self._records[node] = _Record((incarnation, seq), record, expires_ms)
        return True

    async def read_all(self) -> tuple[bytes, ...]:
        """All live records."""
        self._check_there()
        return tuple(record.payload for record in self._records.values())

    async def ping(self) -> None:
        """Fails while away."""
        self._check_there()

    def wipe(self) -> None:
        """Forget everything."""
        self._records.clear()

    def _check_there(self) -> None:
        if self.away:
            raise UnavailableError("the shadow cache is away")
        now_ms = self._clock.now_ms()
        self._records = {n: r for n, r in self._records.items() if r.expires_ms > now_ms}
