"""Requests that wait for room: bounded, in order of arrival within what they wait for.

A held request is decided again when something changed: a booking was released, a row was written,
the sweep ran. All that wait for the same thing (base model, adapter, exclusions) stand in one lane,
and only its head is decided; a lane whose head finds no room costs one decision. The first round is
at once, so that nobody who comes meanwhile takes what was freed; a round visits at most
`LANES_A_ROUND` lanes, and further rounds go on until each had its turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable

from axiom_common.model.reason import Reason
from axiom_common.policy.decided import Decided

LANES_A_ROUND = 16
ROUND_EVERY_S = 0.01
"""Changes come in bursts: so much between two rounds bounds what deciding again may cost."""

_PASSING = (Reason.SATURATED, Reason.QUARANTINED)


def may_pass(decision: Decided) -> bool:
    """Whether waiting can help: some engine lacks nothing but room."""
    return decision.engine is None and any(map(decision.refused, _PASSING))


class HoldQueue:
    """The waiting requests of one gateway. `release` undoes a decision that nobody took."""

    def __init__(self, *, held_max: int, release: Callable[[Decided], None]) -> None:
        self._held_max = held_max
        self._release = release
        self._lanes: OrderedDict[Hashable, deque[_Ticket]] = OrderedDict()
        self._round: asyncio.TimerHandle | None = None
        self._next_round_s = 0.0
        self._due = 0
        self.count = 0

    @property
    def full(self) -> bool:
        """Whether no further request may wait."""
        return self.count >= self._held_max

    def waits(self, lane: Hashable) -> bool:
        """Whether somebody waits in `lane` already: who comes later must not overtake."""
        return lane in self._lanes

    @property
    def empty(self) -> bool:
        """Whether nobody waits in any lane."""
        return not self._lanes

    async def wait(
        self, lane: Hashable, decide: Callable[[], Decided], *, timeout_ms: float
    ) -> Decided | None:
        """A decision that has a winner, or that no waiting can help; None when time ran out."""
        ticket = _Ticket(decide)
        self._lanes.setdefault(lane, deque()).append(ticket)
        self.count += 1
        try:
            async with asyncio.timeout(timeout_ms / 1e3):
                return await ticket.decided
        except TimeoutError:
            self._undo(ticket)
            return None
        except asyncio.CancelledError:
            self._undo(ticket)
            raise
        finally:
            self._leave(lane, ticket)

    async def pause(self, moment: Awaitable[None]) -> None:
        """Wait for `moment` as one of those that are held."""
        self.count += 1
        try:
            await moment
        finally:
            self.count -= 1

    def changed(self) -> None:
        """Something changed: decide again, for every lane."""
        self._due = len(self._lanes)
        self._plan_round()

    def _plan_round(self) -> None:
        if self._due and self._round is None:
            loop = asyncio.get_running_loop()
            self._round = loop.call_at(max(loop.time(), self._next_round_s), self._decide_round)

    def _decide_round(self) -> None:
        self._round = None
        self._next_round_s = asyncio.get_running_loop().time() + ROUND_EVERY_S
        visits = min(self._due, len(self._lanes), LANES_A_ROUND)
        self._due -= visits
        for _ in range(visits):
            lane, tickets = self._lanes.popitem(last=False)
            while tickets:
                if not tickets[0].decided.done():
                    decision = tickets[0].decide()
                    if may_pass(decision):
                        break
                    tickets[0].decided.set_result(decision)
                tickets.popleft()
            if tickets:
                self._lanes[lane] = tickets
        self._due = min(self._due, len(self._lanes))
        self._plan_round()

    def _undo(self, ticket: _Ticket) -> None:
        """A decision can arrive in the same turn in which its request gives up."""
        if ticket.decided.done() and not ticket.decided.cancelled():
            self._release(ticket.decided.result())

    def _leave(self, lane: Hashable, ticket: _Ticket) -> None:
        self.count -= 1
        tickets = self._lanes.get(lane)
        if tickets is not None and ticket in tickets:
            tickets.remove(ticket)
            if not tickets:
                del self._lanes[lane]


class _Ticket:
    """One waiting request."""

    __slots__ = ("decide", "decided")

    def __init__(self, decide: Callable[[], Decided]) -> None:
        self.decide = decide
        self.decided: asyncio.Future[Decided] = asyncio.get_running_loop().create_future()
