"""Filling a shadow cache in one line."""

from __future__ import annotations

from axiom_common.errors import UnavailableError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId
from axiom_common.ports.shadow_cache import Put, ShadowCache
from axiom_common.wire.schemas import NodeRecord, encode

TTL_MS = 60_000


def make_put(
    node: NodeId, incarnation: int, seq: int, record: bytes, *, ttl_ms: int = TTL_MS
) -> Put:
    """A `Put` in one line."""
    return Put(node=node, incarnation=incarnation, seq=seq, record=record, ttl_ms=ttl_ms)


async def put(
    cache: ShadowCache,
    node: NodeId,
    incarnation: int,
    seq: int,
    record: bytes,
    *,
    ttl_ms: int = TTL_MS,
) -> bool:
    """Put and mention one record; whether it was stored. UnavailableError when it is away."""
    await cache.mention([node])
    [outcome] = await cache.put_if_newer([make_put(node, incarnation, seq, record, ttl_ms=ttl_ms)])
    if isinstance(outcome, UnavailableError):
        raise outcome
    return outcome


async def put_state(cache: ShadowCache, state: NodeState, *, ttl_ms: int = TTL_MS) -> bool:
    """Put and mention a node's state."""
    record = encode(NodeRecord(state=state))
    return await put(cache, state.node, state.incarnation, state.seq, record, ttl_ms=ttl_ms)
