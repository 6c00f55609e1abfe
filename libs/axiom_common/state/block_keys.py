"""What a block's keys say beside its tokens: whose it is, and whether it is text alone.

An engine tells keys without their kinds, in a fixed order: the adapter's name; pairs for images;
the cache salt, on a chain's first block only; digests of embeddings as bytes. So the adapter comes
first and only then a text can be the salt, even where both are the same word.
"""

from __future__ import annotations

from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.kv_events import BlocksStored
from axiom_common.model.prefix import PrefixScope, Uncredited


def scope_of(event: BlocksStored, base_model: str, revision: str) -> PrefixScope | Uncredited:
    """The scope of the chain that begins with the event's first block; or why it earns nothing."""
    others = _beside_adapter(event, 0)
    if isinstance(others, Uncredited):
        return others
    if len(others) > 1 or not all(isinstance(key, str) for key in others):
        return Uncredited.OTHER_KEYS
    return PrefixScope(
        base_model=base_model,
        revision=revision,
        adapter=EngineAdapter(event.adapter) if event.adapter is not None else BASE,
        cache_salt=str(others[0]) if others else None,
    )


def same_scope(event: BlocksStored, position: int, scope: PrefixScope) -> Uncredited | None:
    """Why a block that follows one of `scope` earns nothing; None when it is text of that scope."""
    others = _beside_adapter(event, position)
    if isinstance(others, Uncredited):
        return others
    if (event.adapter if event.adapter is not None else BASE) != scope.adapter:
        return Uncredited.OTHER_ADAPTER
    return Uncredited.OTHER_KEYS if others else None


def _beside_adapter(event: BlocksStored, position: int) -> tuple[object, ...] | Uncredited:
    if event.keys is None or len(event.keys) != len(event.hashes):
        # Without keys nobody knows whose tenant's the block is.
        return Uncredited.KEYS_NOT_TOLD
    keys = tuple(event.keys[position] or ())
    if event.adapter is None:
        return keys
    if event.adapter == BASE or not keys or keys[0] != event.adapter:
        return Uncredited.OTHER_ADAPTER
    return keys[1:]
