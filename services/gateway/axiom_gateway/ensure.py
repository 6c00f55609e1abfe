"""Loads on demand: asks the engine's agent, once for all who want the same load.

An answer can be lost with its question (the agent was killed, or cut off while it waited for its
engine), and nothing tells. So a long wait is many short questions: an agent joins the load that
runs already, and what is lost costs one question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from axiom_common.errors import UnavailableError, WireError
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import EngineId, GatewayId, RegionId, node_of
from axiom_common.model.reason import Reason
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.tracing import Span
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.tracing import NO_SPAN
from axiom_common.wire import subjects
from axiom_common.wire.schemas import (
    EnsureReply,
    EnsureRequest,
    InFlightCount,
    decode,
    encode,
)
from axiom_gateway.metrics import GatewayMetrics

ASKED_MAX = 1024
ASK_MS = 2_000.0
"""Longest wait for one answer; who still wants the adapter then asks again."""
REPLY_MARGIN_MS = 500.0
"""The agent answers at its deadline at the latest; the answer needs time to travel."""

PASSING = frozenset({Reason.NO_IDLE_SLOT, Reason.TOO_MANY_LOADS, Reason.IN_USE})
"""Refusals that a little time may lift; all others stand for this request."""

AWAY_CHECK_S = 0.25
"""How often those who wait look whether the agent is still heard."""


class Ensurer:
    """Asks agents over the bus. `owner` runs the asking, so that one asker may go away.

    `in_flight` tells this gateway's own requests on an engine, for the agent to know idle slots.
    `may_load` tells whether the engine's agent is there to load anything.
    """

    def __init__(
        self,
        bus: Bus,
        owner: Owner,
        clock: Clock,
        metrics: GatewayMetrics,
        *,
        region: RegionId,
        gateway: GatewayId,
        in_flight: Callable[[EngineId], tuple[InFlightCount, ...]],
        may_load: Callable[[EngineId], bool],
        deadline_ms: float,
    ) -> None:
        self._bus = bus
        self._owner = owner
        self._clock = clock
        self._metrics = metrics
        self._region = region
        self._gateway = gateway
        self._in_flight = in_flight
        self._may_load = may_load
        self._deadline_ms = deadline_ms
        self._asked: dict[tuple[EngineId, str], asyncio.Task[EnsureResult | None]] = {}

    async def ensure(
        self, engine: EngineId, adapter: AdapterSpec, span: Span = NO_SPAN
    ) -> EnsureResult | None:
        """The agent's answer; None when the bus or the agent is away.

        An agent that falls silent while it is asked (its host hangs, or its process is paused)
        keeps nobody waiting for longer than it takes to notice. The agent's span is a child of the
        `span` that asked first.
        """
        if not self._may_load(engine):
            return None
        key = (engine, adapter.engine_name)
        asked = self._asked.get(key)
        if asked is None:
            if len(self._asked) >= ASKED_MAX:
                return EnsureResult(outcome=EnsureOutcome.REFUSED, reason=Reason.TOO_MANY_LOADS)
            asked = self._owner.create_task(
                self._ask(engine, adapter, span.traceparent),
                name=f"ensure {adapter.engine_name} on {engine}",
            )
            self._asked[key] = asked
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        while not (await asyncio.wait((asked,), timeout=AWAY_CHECK_S))[0]:
            if not self._may_load(engine):
                # Whoever asks when it is back must not wait for an answer to this one.
                asked.cancel()
                return None
        return None if asked.cancelled() else asked.result()

    async def _ask(
        self, engine: EngineId, adapter: AdapterSpec, traceparent: bytes | None
    ) -> EnsureResult | None:
        result: EnsureResult | None = None
        for ask_ms in _asks(self._deadline_ms):
            began_ms = self._clock.now_ms()
            result = await self._ask_once(engine, adapter, ask_ms, traceparent)
            if result is None and self._clock.now_ms() - began_ms < ask_ms:
                # Nobody is there to answer; a lost answer shows by the time that it took.
                break
            if result is not None and result.reason is not Reason.DEADLINE_EXCEEDED:
                break
        self._metrics.ensure(result.outcome if result else None)
        return result

    async def _ask_once(
        self, engine: EngineId, adapter: AdapterSpec, ask_ms: float, traceparent: bytes | None
    ) -> EnsureResult | None:
        request = EnsureRequest(
            engine=engine,
            adapter=adapter,
            deadline_ms=ask_ms,
            gateway=self._gateway,
            in_flight=self._in_flight(engine),
            traceparent=traceparent.decode() if traceparent else None,
        )
        subject = subjects.node_ensure(self._region, node_of(engine))
        try:
            payload = await self._bus.request(
                subject, encode(request), timeout_ms=ask_ms + REPLY_MARGIN_MS
            )
            return decode(payload, EnsureReply).result
        except UnavailableError:
            return None
        except WireError:
            self._metrics.invalid_message()
            return None


def _asks(deadline_ms: float) -> Iterator[float]:
    """The waits of the questions that make up `deadline_ms`."""
    left_ms = deadline_ms
    while left_ms > 0:
        yield min(left_ms, ASK_MS)
        left_ms -= ASK_MS
