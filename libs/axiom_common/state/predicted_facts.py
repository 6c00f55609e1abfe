"""What engines that tell nothing are taken to hold: the prompts that they answered of late.

An engine keeps a prompt in its cache for a while, so a chunk counts for a time after the last
answer to a prompt with it. Bounded: over `links_max` the oldest go first, the deepest of a prompt.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
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
        self._counts: Counter[int] = Counter()
        """How many are held on each engine."""

    def __len__(self) -> int:
        return len(self._until_ms)

    def hold(self, engine: int, links: Sequence[int], now_ms: float) -> None:
        """The engine begins to answer a prompt of these links, the first chunk's first."""
        until_ms = now_ms + self._ttl_ms
        for link in reversed(links):
            self._counts[engine] += (engine, link) not in self._until_ms
            self._until_ms[engine, link] = until_ms
            self._until_ms.move_to_end((engine, link))

    def expire(self, now_ms: float) -> dict[int, FactBatch]:
        """What is held no longer, by time or by the bound; to be withdrawn."""
        gone: defaultdict[int, list[int]] = defaultdict(list)
        while self._until_ms:
            (engine, link), until_ms = next(iter(self._until_ms.items()))
            if until_ms > now_ms and len(self._until_ms) <= self._links_max:
                break
            gone[engine].append(link)
            self._drop(engine, link)
        return {engine: FactBatch.of((), links) for engine, links in gone.items()}

    def withdraw(self, engine: int, links: Iterable[int]) -> FactBatch:
        """The engine does not hold these after all; to be withdrawn."""
        held = [link for link in links if (engine, link) in self._until_ms]
        for link in held:
            self._drop(engine, link)
        return FactBatch.of((), held)

    def forget(self, engine: int) -> FactBatch:
        """Nothing is predicted of the engine any more; to be withdrawn."""
        if not self._counts[engine]:
            return FactBatch()
        return self.withdraw(engine, [link for number, link in self._until_ms if number == engine])

    def _drop(self, engine: int, link: int) -> None:
        del self._until_ms[engine, link]
        self._counts[engine] -= 1
        if not self._counts[engine]:
            del self._counts[engine]
