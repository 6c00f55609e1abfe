"""An engine's KV events as they are heard: by subscription, and asked for again where some lack.

ZeroMQ drops what a slow subscriber can't take and says nothing of a reconnect. So every message's
number is judged; on a gap and on every new connection the engine is asked for all from the
last message that was folded, that one included: if it is another one now, the engine lives anew.
What can't be had again is told as lost, and then nothing that was heard before counts any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import xxhash
import zmq
import zmq.asyncio

from axiom_common.drivers.kv_event_messages import MESSAGE_BYTES_MAX, decode
from axiom_common.errors import UnavailableError, WireError
from axiom_common.model.kv_events import KvEvent
from axiom_common.ports.clock import Clock
from axiom_common.state.event_order import EventOrder, Position, Verdict

WAITING_MAX = 10_000
"""Messages that wait to be read; beyond, ZeroMQ drops."""
ASKS_MAX = 16
"""An engine's answer may have holes, where its own queue was full; it is asked on that often."""
ASK_EVERY_MS = 1_000.0
ANSWER_WITHIN_MS = 3_000.0
"""vLLM answers between two messages, 100 ms apart at most."""
_HEARTBEAT_MS = 5_000
_RECONNECT_MS, _RECONNECT_MS_MAX = 100, 5_000
_NUMBER_BYTES = 8
_END = (-1).to_bytes(_NUMBER_BYTES, "big", signed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventSource:
    """Where one rank of an engine tells its events, and where it can be asked for the last ones."""

    endpoint: str
    replay_endpoint: str | None = None


class Loss(StrEnum):
    """Why nothing that was heard before counts any more."""

    RESTARTED = "restarted"
    GAP = "gap"
    MALFORMED = "malformed"


class KvEventFeed:
    """Hears one source, in order, until cancelled.

    `on_events` gets each message's events once; `on_loss` that all before is void, and what follows
    is new. Both run in the loop. `position`: what was folded already, by an agent before this one.
    `malformed` and `losses` count. `caught_up`: the engine told all that it had told before, or
    tells nothing again; until then what an agent before this one folded is not confirmed.
    """

    def __init__(
        self,
        source: KvEventSource,
        clock: Clock,
        on_events: Callable[[Sequence[KvEvent]], None],
        on_loss: Callable[[Loss], None],
        *,
        position: Position | None = None,
    ) -> None:
        self.malformed = 0
        self.losses = 0
        self.caught_up = False
        self._source = source
        self._clock = clock
        self._on_events = on_events
        self._on_loss = on_loss
        self._order = EventOrder(position)
        self._asked_ms: float | None = None

    @property
    def position(self) -> Position | None:
        """The last message that was folded: where another feed goes on."""
        return self._order.position

    async def run(self) -> None:
        """Subscribe, catch up, and follow; never returns, and never raises on what engines say.

        UnavailableError when the source's endpoint is none.
        """
        context = zmq.asyncio.Context()
        try:
            await self._follow(context)
        except zmq.ZMQError as error:
            raise UnavailableError(f"{self._source.endpoint}: {error}") from error
        finally:
            context.destroy(linger=0)

    async def _follow(self, context: zmq.asyncio.Context) -> None:
        subscriber = _socket(context, zmq.SUB)
        monitor = subscriber.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        subscriber.connect(self._source.endpoint)
        poller = zmq.asyncio.Poller()
        poller.register(subscriber, zmq.POLLIN)
        poller.register(monitor, zmq.POLLIN)
        while True:
            ready = dict(await poller.poll())
            if monitor in ready:
                # The one event asked for: heard from here on, and again after each reconnect. What
                # the engine said before has to be asked for.
                await monitor.recv_multipart()
                await self._catch_up(context)
            elif subscriber in ready:
                await self._hear(context, await subscriber.recv_multipart())

    async def _hear(self, context: zmq.asyncio.Context, frames: Sequence[bytes]) -> None:
        if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES:
            self.malformed += 1
            return
        seq, payload = int.from_bytes(frames[1], "big"), frames[2]
        digest = xxhash.xxh3_64_intdigest(payload)
        verdict = self._order.judge(seq, digest)
        if verdict is Verdict.RESTARTED:
            self._lose(Loss.RESTARTED)
            verdict = self._order.judge(seq, digest)
        if verdict is Verdict.GAP:
            await self._catch_up(context)
            verdict = self._order.judge(seq, digest)
            if verdict in (Verdict.GAP, Verdict.RESTARTED) and self._order.position is not None:
                self._lose(Loss.GAP)
        if verdict is not Verdict.SEEN:
            self._take(seq, digest, payload)

    async def _catch_up(self, context: zmq.asyncio.Context) -> None:
        """Ask for all since the last message, at most once in a while, on and on while it helps."""
        if self._source.replay_endpoint is None:
            self.caught_up = True
            return
        for _ in range(ASKS_MAX):
            if self._asked_ms is not None:
                await self._clock.sleep_ms(self._asked_ms + ASK_EVERY_MS - self._clock.now_ms())
            was = self._order.position
            is_whole = await self._ask(context, self._source.replay_endpoint)
            self._asked_ms = self._clock.now_ms()
            self.caught_up = self.caught_up or is_whole
            if is_whole or self._order.position == was:
                return

    async def _ask(self, context: zmq.asyncio.Context, endpoint: str) -> bool:
        """Ask once and fold the answer; whether it came to its end without a hole."""
        start = self._order.position.seq if self._order.position else 0
        asking = _socket(context, zmq.DEALER)
        try:
            asking.setsockopt(zmq.RCVHWM, 0)
            asking.connect(endpoint)
            await asking.send_multipart([b"", start.to_bytes(_NUMBER_BYTES, "big")])
            is_first = True
            while await asking.poll(ANSWER_WITHIN_MS):
                frames = await asking.recv_multipart()
                if len(frames) < 2 or len(frames[-2]) != _NUMBER_BYTES:
                    self.malformed += 1
                    continue
                if frames[-2] == _END:
                    return not (is_first and self._restarted_with_nothing())
                if not self._fold_answer(
                    int.from_bytes(frames[-2], "big"), frames[-1], is_first=is_first
                ):
                    return False
                is_first = False
                # A long answer leaves others their turns.
                await asyncio.sleep(0)
        finally:
            asking.close(linger=0)
        return False

    def _restarted_with_nothing(self) -> bool:
        """An answer without the last message folded: an engine that has not come that far again.

        Then all is to be asked for, from its first message on.
        """
        if self._order.position is None:
            return False
        self._lose(Loss.RESTARTED)
        return True

    def _fold_answer(self, seq: int, payload: bytes, *, is_first: bool) -> bool:
        """Fold one message of an answer; False when what follows it has to be asked for anew."""
        digest = xxhash.xxh3_64_intdigest(payload)
        match self._order.judge(seq, digest):
            case Verdict.SEEN:
                return True
            case Verdict.RESTARTED:
                self._lose(Loss.RESTARTED)
                return False
            case Verdict.GAP if not is_first:
                return False
            case Verdict.GAP if self._order.position is not None:
                # It keeps no message so old any more.
                self._lose(Loss.GAP)
        self._take(seq, digest, payload)
        return True

    def _take(self, seq: int, digest: int, payload: bytes) -> None:
        try:
            events = decode(payload)
        except WireError:
            # It may have said that something is gone.
            self.malformed += 1
            self._lose(Loss.MALFORMED)
            events = ()
        self._order.took(seq, digest)
        if events:
            self._on_events(events)

    def _lose(self, why: Loss) -> None:
        self.losses += 1
        self._order.forget()
        self._on_loss(why)


def sources_of(body: bytes, host: str) -> tuple[KvEventSource, ...]:
    """What vLLM's `/kv_event_sources` tells, a source for each rank; WireError if unreadable.

    An engine that listens on all addresses is reached at `host`, where it was asked.
    """
    try:
        told = msgspec.json.decode(body, type=dict[str, dict[str, object]])
        ranks = sorted(told, key=int)
        return tuple(
            KvEventSource(
                endpoint=_reachable(told[rank].get("endpoint"), host),
                replay_endpoint=_reachable(told[rank]["replay_endpoint"], host)
                if told[rank].get("replay_endpoint")
                else None,
            )
            for rank in ranks
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"KV event sources: {error}") from error


def _reachable(endpoint: object, host: str) -> str:
    if not isinstance(endpoint, str) or not endpoint.startswith(("tcp://", "ipc://")):
        raise ValueError(f"no endpoint: {str(endpoint)[:80]!r}")
    for everywhere in ("tcp://*:", "tcp://0.0.0.0:", "tcp://[::]:"):
        if endpoint.startswith(everywhere):
            return f"tcp://{host}:{endpoint[len(everywhere) :]}"
    return endpoint


def _socket(context: zmq.asyncio.Context, kind: int) -> zmq.asyncio.Socket:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, WAITING_MAX)
    socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS_MAX)
    socket.setsockopt(zmq.IPV6, 1)
    return socket
