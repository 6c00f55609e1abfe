"""The shadow cache: the last known state of every node, shared by a region (Redis)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId

MENTION_MS = 40_000
"""How long a mention of a node lasts: above the life of a record."""


PutOutcome = bool | UnavailableError
"""What became of one `Put`: whether it was stored, as it was newer; or why its shard gave no answer
to it, so that this is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One node's record to store, if its order (incarnation, seq) is above the stored one.

    The record expires `ttl_ms` after it was stored, its order `TOMBSTONE_MS` (of the region view)
    after: so nothing at or below it brings a node back whose record has expired.
    """

    node: NodeId
    incarnation: int
    seq: int
    record: bytes
    ttl_ms: int


class ShadowCache(Protocol):
    """One record a node, all that belongs to it in one hash slot, and the names of nodes."""

    def shard(self, node: NodeId) -> str:
        """Whose node it is now: writes to one shard don't wait for another's."""
        ...

    async def put_if_newer(self, puts: Sequence[Put]) -> tuple[PutOutcome, ...]:
        """Store each, compared on the server, as one step each; the outcomes in the same order.

        Never raises: a shard that is away fails its own puts only.
        """
        ...

    async def mention(self, nodes: Sequence[NodeId]) -> None:
        """Say that these may have a record, for `MENTION_MS`; who isn't mentioned isn't read.

        UnavailableError when the shard of the names is away.
        """
        ...

    async def read_all(self) -> tuple[bytes, ...]:
        """All live records of nodes that were mentioned, in no particular order.

        UnavailableError when any shard is away.
        """
        ...

    async def ping(self) -> None:
        """Ask whether it is there; UnavailableError otherwise."""
        ...

    @property
    def region(self) -> RegionId:
        """The region whose nodes are kept here."""
        ...
