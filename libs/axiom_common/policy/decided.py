"""A decision as a fleet hands it over: what a gateway goes on with, and the rest packed.

The parts of a decision are some hundred numbers and names, and hardly anybody asks for them: `why`,
a trace, the sample that others learn from. So they stay numbers in one piece of memory, as the
kernel saw them, until the rules turn them into scores:

    HEAD           the wait that the profile tolerates, the dearest candidate's cost, how many shown
    COUNTS         engines refused, by reason
    ONE + name     for each shown, the winner first: how the adapter is held and what a load would
                   get (`Held`, `Slot`), the terms, then the rest of `Seen` in its order
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Self

from axiom_common.model.decision import Candidate, Decision, LoadKind, Term
from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.registry import SCORERS
from axiom_common.policy.scorers.adapter_affinity import SAFE_EVICTION, Held, adapter_affinity_of
from axiom_common.policy.view import REASON_CODE, REASONS, Seen

SHOWN_MAX = 3
"""The winner and two runners-up: the next best of its ring, then of those further out."""

HEAD = struct.Struct("<dqB")
COUNTS = struct.Struct(f"<{len(REASONS)}I")
ONE = struct.Struct("<Hq2B15d")
_COUNT = struct.Struct("<I")
_TERMS = len(Term)

LOAD_KIND = {
    Held.NOT: LoadKind.COLD,
    Held.HOST: LoadKind.FROM_HOST,
    Held.LOADING: LoadKind.JOIN,
    Held.RESIDENT: LoadKind.NONE,
}
"""What the winner has to do, by how it holds the adapter."""


class Decided(NamedTuple):
    """One decision. `engine` None: nobody can serve. `booking` names the load that was booked with
    it, 0 for none; `stale`: the winner's news are old. `parts` are packed, the rest unpacks them.
    """

    profile: str
    engine: EngineId | None
    load: LoadKind
    booking: int
    stale: bool
    parts: bytes

    def whole(self) -> Decision:
        """The decision with all its parts, unpacked."""
        wait_cap_ms, worst_us, count = HEAD.unpack_from(self.parts)
        shown, at = [], HEAD.size + COUNTS.size
        for _ in range(count):
            seen, at = unpack_one(self.parts, at)
            shown.append(candidate(seen, wait_cap_ms, worst_us))
        return Decision(
            profile=self.profile,
            winner=shown[0] if shown else None,
            runners_up=tuple(shown[1:]),
            load=self.load,
            refusals=self.refusals,
            booking=self.booking,
            stale=self.stale,
        )

    @property
    def winner(self) -> Candidate | None:
        """The winner, unpacked."""
        return self.whole().winner

    @property
    def runners_up(self) -> tuple[Candidate, ...]:
        """Who comes next, unpacked."""
        return self.whole().runners_up

    @property
    def refusals(self) -> dict[Reason, int]:
        """How many engines each reason stood against, without zeros."""
        counts = COUNTS.unpack_from(self.parts, HEAD.size)
        return {reason: count for reason, count in zip(REASONS, counts, strict=True) if count}

    @property
    def matched_tokens(self) -> int | None:
        """Prompt tokens that the winner is taken to hold; None without one."""
        if self.engine is None:
            return None
        seen, _ = unpack_one(self.parts, HEAD.size + COUNTS.size)
        return int(seen.credited_tokens)

    def refused(self, reason: Reason) -> int:
        """How many engines the reason stood against."""
        at = HEAD.size + _COUNT.size * (REASON_CODE[reason] - 1)
        count: int = _COUNT.unpack_from(self.parts, at)[0]
        return count

    def with_refused(self, reason: Reason, more: int) -> Self:
        """The same, with so many more engines refused."""
        counts = list(COUNTS.unpack_from(self.parts, HEAD.size))
        counts[REASON_CODE[reason] - 1] += more
        rest = self.parts[HEAD.size + COUNTS.size :]
        return self._replace(parts=self.parts[: HEAD.size] + COUNTS.pack(*counts) + rest)


def packed(
    wait_cap_ms: float, worst_us: int, counts: Sequence[int], shown: Sequence[Seen]
) -> bytes:
    """`Decided.parts`; `counts` are one for each reason, in their order."""
    head = HEAD.pack(wait_cap_ms, worst_us, len(shown)) + COUNTS.pack(*counts)
    return head + b"".join(map(_pack_one, shown))


def unpack_one(parts: bytes, at: int) -> tuple[Seen, int]:
    """One that was shown, which begins at byte `at`, and where the next one begins."""
    length, cost_us, held, slot, *numbers = ONE.unpack_from(parts, at)
    name, end = at + ONE.size, at + ONE.size + length
    engine = EngineId(parts[name:end].decode())
    terms_ms, rest = tuple(numbers[:_TERMS]), numbers[_TERMS:]
    return Seen(engine, cost_us, held, slot, terms_ms, *rest), end


def candidate(seen: Seen, wait_cap_ms: float, worst_us: int) -> Candidate:
    """What people see of a candidate: its scores are the rules'. `worst_us`: the dearest's cost."""
    return Candidate(
        engine=seen.engine,
        tier=1 if adapter_affinity_of(seen) > SAFE_EVICTION else 2,
        cost_ms=seen.cost_us / 1000.0,
        composite=1.0 - seen.cost_us / worst_us,
        terms_ms=seen.terms_ms,
        values=tuple([score(seen, wait_cap_ms) for score in SCORERS.values()]),
    )


def _pack_one(seen: Seen) -> bytes:
    name = seen.engine.encode()
    _, cost_us, held, slot, terms_ms, *rest = seen
    return ONE.pack(len(name), cost_us, held, slot, *terms_ms, *rest) + name
