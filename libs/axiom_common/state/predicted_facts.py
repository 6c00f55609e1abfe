"""What engines that tell nothing are taken to hold: the prompts that they answered of late.

An engine keeps a prompt in its cache for a while, so a chunk counts for a time after the last
answer to a prompt with it. Bounded: over `links_max` the oldest go first, the deepest of a prompt.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence

from axiom_common.model.prefix import FactBatch

SLACK_TOKENS = 64
"""So much less than predicted is the engine's last block, and no error."""


class PredictedFacts:
    """Predictions of one base model; engines are their numbers in its index."""

    def __init__(self, ttl_ms: float, links_max: int) -> None:
        self._ttl_ms = ttl_ms
        self._links_max = links_max
        # Oldest first: what is held anew moves to the end.
        self._until_ms: OrderedDict[tuple[int, int], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until_ms)

    def hold(self, engine: int, links: Sequence[int], now_ms: float) -> None:
        """The engine begins to answer a prompt of these links, the first chunk's first."""
        until_ms = now_ms + self._ttl_ms
        for link in reversed(links):
            self._until_ms[engine, link] = until_ms
            self._until_ms.move_to_end((engine, link))

    def expire(self, now_ms: float) -> dict[int, FactBatch]:
        """What is held no longer, by time or by the bound; to be withdrawn."""
        gone: defaultdict[int, list[int]] = defaultdict(list)
        while self._until_ms:
            (engine, link), until_ms = next(iter(self._until_ms.items()))
            if until_ms > now_ms and len(self._until_ms) <= self._links_max:
                break
            del self._until_ms[engine, link]
            gone[engine].append(link)
        return {engine: FactBatch.of((), links) for engine, links in gone.items()}

    def withdraw(self, engine: int, links: Iterable[int]) -> FactBatch:
        """The engine does not hold these after all; to be withdrawn."""
        held = [link for link in links if self._until_ms.pop((engine, link), None) is not None]
        return FactBatch.of((), held)

    def forget(self, engine: int) -> None:
        """Nothing is predicted of the engine any more; whoever calls clears it."""
        for key in [key for key in self._until_ms if key[0] == engine]:
            del self._until_ms[key]
