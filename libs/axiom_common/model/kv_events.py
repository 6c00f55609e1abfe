"""What an engine tells of its KV cache: blocks of tokens that it stored and removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BlockHash = int | bytes
"""An engine's own name of a block and all before it; opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksStored:
    """Blocks that follow each other on a medium, the first one after `parent` (None: at the start).

    `tokens`: of all blocks, or none where the engine tells only which blocks. `adapter`: None for
    the base model. `keys`: for each block what distinguishes it beside its tokens (the adapter's
    name; on a first block the salt; images); None where the engine tells no keys at all. `group`
    and `attention`: which of several caches of a hybrid model, and of what kind.
    """

    hashes: Sequence[BlockHash]
    parent: BlockHash | None = None
    tokens: Sequence[int] = ()
    block_size: int = 0
    medium: str | None = None
    adapter: str | None = None
    keys: Sequence[Sequence[object] | None] | None = None
    group: int | None = None
    attention: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksRemoved:
    """Blocks that are no longer on a medium; one copy of each."""

    hashes: Sequence[BlockHash]
    medium: str | None = None


@dataclass(frozen=True, slots=True)
class BlocksCleared:
    """Nothing is left."""


KvEvent = BlocksStored | BlocksRemoved | BlocksCleared
