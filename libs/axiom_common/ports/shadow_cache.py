"""The shadow cache: the last known state of every node, shared by a region (Redis)."""

from __future__ import annotations

from typing import Protocol

from axiom_common.model.ids import NodeId, RegionId


class ShadowCache(Protocol):
    """One record a node, in one hash slot. All calls raise UnavailableError when it is away."""

    async def put_if_newer(
        self, node: NodeId, *, incarnation: int, seq: int, record: bytes, ttl_ms: int
    ) -> bool:
        """Store when (incarnation, seq) is above the stored one.

        Compared on the server. True when stored. The record expires `ttl_ms` after the last store.
        """
        ...

    async def read_all(self) -> tuple[bytes, ...]:
        """All live records of the region, in no particular order."""
        ...

    async def ping(self) -> None:
        """Ask whether it is there."""
        ...

    @property
    def region(self) -> RegionId:
        """The region whose nodes are kept here."""
        ...
