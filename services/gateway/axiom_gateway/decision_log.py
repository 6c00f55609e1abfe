"""Tells of decisions and what became of them, for those who learn from them later.

    request ends -> sampled -> bounded queue -> this task -> journal

Nothing here is in the way of a request: what finds the queue full, or the journal away, is dropped
and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import GatewayId, RegionId
from axiom_common.ports.clock import Clock
from axiom_common.ports.journal import Journal
from axiom_common.runtime.logging import Log
from axiom_common.wire import subjects
from axiom_common.wire.bounds import ATTEMPTS_MAX
from axiom_common.wire.schemas import DecidedAttempt, DecisionReport, encode
from axiom_gateway.decision_sampling import Sampler
from axiom_gateway.decisions import RequestRecord

TURN_MS = 100.0
"""Between two turns of sending; requests are not interrupted for each message."""
AT_A_TIME = 8
"""Messages before others get their turn."""


class LogCounts(NamedTuple):
    """Requests with a decision since the start: told of, left out by sampling, dropped."""

    sent: int
    sampled_out: int
    dropped: int


class _Queued(NamedTuple):
    request: RequestRecord
    share: float


class DecisionPublisher:
    """Sends a sample to the journal. `offer` from the loop that `run` runs on."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        log: Log,
        *,
        region: RegionId,
        gateway: GatewayId,
        per_s: float,
        queued_max: int,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._log = log
        self._region = region
        self._gateway = gateway
        self._subject = subjects.gateway_decision(region, gateway)
        self._sampler = Sampler(per_s, clock.now_ms())
        self._queue: deque[_Queued] = deque()
        self._queued_max = queued_max
        self._filled = asyncio.Event()
        self._sent = self._sampled_out = self._dropped = 0

    @property
    def counts(self) -> LogCounts:
        """What became of the requests that were offered."""
        return LogCounts(self._sent, self._sampled_out, self._dropped)

    def offer(self, request: RequestRecord, request_hash: int) -> None:
        """A request ended. Takes a part of a microsecond, whatever the journal does."""
        share = self._sampler.share_of(request_hash, self._clock.now_ms())
        if not share:
            self._sampled_out += 1
        elif len(self._queue) >= self._queued_max:
            self._dropped += 1
        else:
            self._queue.append(_Queued(request, share))
            self._filled.set()

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            sent = 0
            while self._queue:
                await self._send(self._queue.popleft())
                sent += 1
                if sent % AT_A_TIME == 0:
                    await asyncio.sleep(0)
            await self._clock.sleep_ms(TURN_MS)

    async def _send(self, queued: _Queued) -> None:
        try:
            await self._journal.append(self._subject, encode(self._report(queued)))
        except UnavailableError as error:
            self._dropped += 1
            self._log.warning("decisions not told", once_a_minute="decision log", cause=str(error))
        else:
            self._sent += 1

    def _report(self, queued: _Queued) -> DecisionReport:
        request = queued.request
        assert request.outcome is not None
        first = request.decisions[0]
        return DecisionReport(
            region=self._region,
            gateway=self._gateway,
            id=request.id,
            age_ms=self._clock.now_ms() - first.at_ms,
            share=queued.share,
            base_model=request.asked.base_model,
            adapter=request.asked.adapter,
            rank=request.asked.rank,
            size_bytes=request.asked.size_bytes,
            prompt_tokens=request.asked.prompt_tokens,
            weights=first.weights,
            attempts=tuple(
                DecidedAttempt(
                    attempt=record.attempt,
                    after_ms=record.at_ms - first.at_ms,
                    decision=record.decision.whole(),
                )
                for record in request.decisions[-ATTEMPTS_MAX:]
            ),
            outcome=request.outcome,
        )
