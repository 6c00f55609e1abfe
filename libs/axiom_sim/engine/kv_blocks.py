"""KV memory in blocks, with reuse of prompt prefixes.

A prompt is known as the chained hashes of its full blocks, so an equal hash means an equal prefix
(within one adapter: the hash starts from it). A block is

    free -> private (of one request, being computed) -> shared (published under its hash, counted
    by the requests that hold it) -> cached (held by nobody, reusable) -> evicted, oldest first

Only full blocks of a prompt are ever published. A request is admitted when all that it can come to
need fits beside what the others can come to need: nothing is preempted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    """The blocks of one request: `chunks[:published]` are shared, the rest is private.

    `blocks` is all that it may need; `cached_tokens` is what it found computed.
    """

    chunks: tuple[int, ...]
    blocks: int
    published: int
    cached_tokens: int


class KvBlocks:
    """`blocks` blocks of `block_tokens` tokens each."""

    def __init__(self, *, blocks: int, block_tokens: int) -> None:
        self.blocks = blocks
        self.block_tokens = block_tokens
        self._holders: dict[int, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._private = 0

    @property
    def held(self) -> int:
        """Blocks that live requests hold or have reserved."""
        return len(self._holders) + self._private

    @property
    def shared(self) -> int:
        """Published blocks that live requests hold."""
        return len(self._holders)

    @property
    def cached(self) -> int:
        """Blocks that nobody holds and that a prompt may find again."""
        return len(self._cached)

    def fits(self, tokens: int) -> bool:
        """Whether a request of `tokens`, prompt and output, fits at all."""
        return self._blocks_for(tokens) <= self.blocks

    def admit(self, chunks: tuple[int, ...], *, prompt_tokens: int, tokens: int) -> Lease | None:
        """Take the blocks of a request of `tokens` in all; None while they are not to be had.

        The last token of a prompt is always computed: without it there is nothing to sample from.
        """
        found = 0
        usable = min(len(chunks), (prompt_tokens - 1) // self.block_tokens)
        while found < usable and (chunks[found] in self._holders or chunks[found] in self._cached):
            found += 1
        needed = self._blocks_for(tokens)
        revived = sum(1 for chunk in chunks[:found] if chunk in self._cached)
        if self.held + revived + needed - found > self.blocks:
            return None
        for chunk in chunks[:found]:
            self._hold(chunk)
        self._private += needed - found
        self._evict()
        return Lease(
            chunks=chunks,
            blocks=needed,
            published=found,
            cached_tokens=found * self.block_tokens,
        )

    def publish(self, lease: Lease, computed_tokens: int) -> None:
        """Share the full prompt blocks that are computed by now."""
        upto = min(len(lease.chunks), computed_tokens // self.block_tokens)
        for chunk in lease.chunks[lease.published : upto]:
            self._private -= 1
            self._hold(chunk)
        lease.published = max(lease.published, upto)

    def release(self, lease: Lease) -> None:
        """Give all back; of one prompt the deepest block is the first to be evicted."""
        self._private -= lease.blocks - lease.published
        for chunk in reversed(lease.chunks[: lease.published]):
            if self._holders[chunk] > 1:
                self._holders[chunk] -= 1
            else:
                del self._holders[chunk]
                self._cached[chunk] = None

    def _hold(self, chunk: int) -> None:
        self._cached.pop(chunk, None)
        self._holders[chunk] = self._holders.get(chunk, 0) + 1

    def _evict(self) -> None:
        while self.held + len(self._cached) > self.blocks:
            self._cached.popitem(last=False)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)
