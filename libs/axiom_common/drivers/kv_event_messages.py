"""vLLM's KV event messages as they are read: types, bounds, and decoding.

A message is `[time, [event...], rank]`. Events are maps with a `type` since vLLM 0.32 and arrays
that begin with it before; unknown keys are ignored. A message with an event of an unknown type does
not decode: it may say that something is gone.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from axiom_common.errors import WireError
from axiom_common.model.kv_events import BlocksCleared, BlocksRemoved, BlocksStored, KvEvent

MESSAGE_BYTES_MAX = 64 * 2**20
"""A prompt of ten million tokens fits."""

_Token = Annotated[int, msgspec.Meta(ge=0)]
_Keys = list[tuple[Any, ...] | None]


class _Stored(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[_Token]
    block_size: _Token
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: _Keys | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[int | bytes]
    medium: str | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _StoredArray(_Stored, array_like=True, tag="BlockStored"):
    pass


class _RemovedArray(_Removed, array_like=True, tag="BlockRemoved"):
    pass


class _ClearedArray(_Cleared, array_like=True, tag="AllBlocksCleared"):
    pass


class _Maps(msgspec.Struct, array_like=True):
    at: float
    events: list[_Stored | _Removed | _Cleared]


class _Arrays(msgspec.Struct, array_like=True):
    at: float
    events: list[_StoredArray | _RemovedArray | _ClearedArray]


_MAPS = msgspec.msgpack.Decoder(_Maps)
_ARRAYS = msgspec.msgpack.Decoder(_Arrays)


def decode(payload: bytes) -> tuple[KvEvent, ...]:
    """The events of one message, in order; WireError when it can't be read whole."""
    message: _Maps | _Arrays
    try:
        message = _MAPS.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        try:
            message = _ARRAYS.decode(payload)
        except (msgspec.MsgspecError, RecursionError):
            raise WireError(f"a KV event message: {error}") from None
    return tuple(_event(told) for told in message.events)


def _event(told: _Stored | _Removed | _Cleared) -> KvEvent:
    match told:
        case _Stored():
            return BlocksStored(
                hashes=told.block_hashes,
                parent=told.parent_block_hash,
                tokens=told.token_ids,
                block_size=told.block_size,
                # What lies with somebody else is on no medium of this engine.
                medium="REMOTE" if told.locality == "REMOTE" else told.medium,
                adapter=_adapter(told),
                keys=told.extra_keys,
                group=told.group_idx,
                attention=told.kv_cache_spec_kind,
            )
        case _Removed():
            return BlocksRemoved(hashes=told.block_hashes, medium=told.medium)
        case _:
            return BlocksCleared()


def _adapter(told: _Stored) -> str | None:
    """Its name; one that no adapter has where only a number is told, as by older engines."""
    return "" if told.lora_name is None and told.lora_id is not None else told.lora_name
