"""Folds what Axiom's extension of vLLM tells: what an engine holds and runs.

libs/axiom_vllm/README.md describes the messages. A worker of each data-parallel rank tells what is
held, each API server process what is in flight and which names there are. All of them number their
messages; a missing number is a gap, and until the sender tells the whole again (by itself, or asked
through GET /axiom/v1/state) `needs_whole` says so. What is heard of the orders is whole each time,
so a gap costs events and names at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from axiom_common.drivers.vllm_extension_messages import (
    AdapterEventKind,
    Event,
    Message,
    Names,
    Registered,
    Requests,
    Residency,
    Unsupported,
    read_datagram,
    read_state,
)
from axiom_common.errors import WireError
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineResidency
from axiom_common.ports.engine_extension import EngineWord, RankWord

SERVER_SILENCE_MS_MAX = 5_000.0
"""An API server tells something each second; one so long silent is gone, and its requests too."""
SENDERS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEvent:
    """One copy came or left at `at_ms` (unix time); the engine's loop spent `took_ms` on it."""

    kind: AdapterEventKind
    adapter: EngineAdapter
    rank: int
    at_ms: float
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What one message brought. `gap`: messages before it were lost."""

    events: tuple[AdapterEvent, ...] = ()
    changed: bool = False
    gap: bool = False


@dataclass(slots=True)
class _Worker:
    instance: str
    told: Residency
    names: dict[int, EngineAdapter] = field(default_factory=dict)
    lacks_names: bool = False


@dataclass(slots=True)
class _Server:
    seq: int
    heard_ms: float
    in_flight: dict[EngineAdapter, int] = field(default_factory=dict)
    registered: dict[EngineAdapter, Registered] = field(default_factory=dict)
    lacks_requests: bool = True
    lacks_names: bool = True
    number_max: int = 0


class ExtensionFold:
    """All that was heard of one engine. `now_ms` is of a monotonic clock."""

    def __init__(self) -> None:
        self._workers: dict[int, _Worker] = {}
        self._servers: dict[str, _Server] = {}
        self.unsupported: str | None = None
        """Why the extension is off, in its own words; None while it is on, or was never heard."""

    def hear(self, datagram: bytes, now_ms: float) -> Heard:
        """One datagram; WireError when it is none of ours."""
        return self._hear(read_datagram(datagram), now_ms)

    def hear_state(self, body: bytes, now_ms: float) -> Heard:
        """The answer to GET /axiom/v1/state; WireError when it is none."""
        state = read_state(body)
        if not state.supported:
            return self._off(state.reason, state.detail)
        parts = [part for part in (state.residency, state.requests, state.names) if part]
        heard = [self._hear(part, now_ms) for part in parts]
        return Heard(
            events=tuple(event for one in heard for event in one.events),
            changed=any(one.changed for one in heard),
            gap=any(one.gap for one in heard),
        )

    def needs_whole(self, now_ms: float) -> bool:
        """Whether somebody should ask for the whole: a sender was heard, and not all of it."""
        if self.unsupported is not None:
            return False
        servers = self._live(now_ms)
        return (
            bool(self._workers) != bool(servers)
            or any(worker.lacks_names for worker in self._workers.values())
            or any(server.lacks_requests or server.lacks_names for server in servers)
        )

    def speaks(self, now_ms: float) -> bool:
        """Whether the engine's word can be gone by: a worker was heard, and an API server lives."""
        return bool(self._workers) and bool(self._live(now_ms))

    def word(self, now_ms: float) -> EngineWord | None:
        """The engine's word; None while no worker was heard."""
        if not self._workers:
            return None
        in_flight: dict[EngineAdapter, int] = {}
        registered: dict[EngineAdapter, Registered] = {}
        for server in self._live(now_ms):
            registered |= server.registered
            for name, count in server.in_flight.items():
                in_flight[name] = in_flight.get(name, 0) + count
        heard_names = any(not server.lacks_names for server in self._live(now_ms))
        by_number = {entry.id: name for name, entry in registered.items()}
        newest = max((server.number_max for server in self._live(now_ms)), default=0)
        return EngineWord(
            ranks=tuple(
                _rank_word(worker.told, _names(worker, by_number, newest, heard_names))
                for _, worker in sorted(self._workers.items())
            ),
            lives=frozenset(worker.instance for worker in self._workers.values()),
            in_flight=in_flight,
            registered={name: entry.path for name, entry in registered.items()}
            if heard_names
            else None,
        )

    def forget(self) -> None:
        """The engine's process is gone."""
        self._workers.clear()
        self._servers.clear()
        self.unsupported = None

    def _hear(self, message: Message, now_ms: float) -> Heard:
        match message:
            case Residency():
                return self._hear_worker(message)
            case Unsupported():
                return self._off(message.reason, message.detail)
            case Requests() | Names():
                return self._hear_server(message, now_ms)

    def _off(self, reason: str, detail: str) -> Heard:
        self.forget()
        self.unsupported = f"{reason}: {detail}" if detail else reason
        return Heard(changed=True)

    def _hear_worker(self, message: Residency) -> Heard:
        worker = self._workers.get(message.rank)
        if worker is None or worker.instance != message.instance:
            if worker is None and len(self._workers) >= SENDERS_MAX:
                raise WireError(f"more than {SENDERS_MAX} workers")
            if worker is not None:
                # A new engine: its workers speak before its API servers do.
                self._servers.clear()
            worker = _Worker(message.instance, message, lacks_names=True)
            self._workers[message.rank] = worker
            gap = not message.whole
        elif message.seq <= worker.told.seq:
            return Heard()
        else:
            gap = message.seq > worker.told.seq + 1
        self.unsupported = None
        names = {number: EngineAdapter(name) for number, name in message.names.items()}
        worker.names = names if message.whole else worker.names | names
        worker.lacks_names = not message.whole and (gap or worker.lacks_names)
        worker.told = message
        events = tuple(_event(event, worker) for event in message.events)
        held = set(message.host)
        worker.names = {n: name for n, name in worker.names.items() if n in held}
        return Heard(events=events, changed=True, gap=gap)

    def _hear_server(self, message: Requests | Names, now_ms: float) -> Heard:
        self._servers = {
            name: server
            for name, server in self._servers.items()
            if now_ms - server.heard_ms <= SERVER_SILENCE_MS_MAX
        }
        whole = isinstance(message, Names) or message.whole
        server = self._servers.get(message.instance)
        if server is None:
            if len(self._servers) >= SENDERS_MAX:
                raise WireError(f"more than {SENDERS_MAX} servers")
            server = self._servers[message.instance] = _Server(message.seq, now_ms)
            gap = not whole
        elif message.seq < server.seq or (message.seq == server.seq and not whole):
            return Heard()
        else:
            gap = message.seq > server.seq + 1
        server.lacks_requests |= gap
        server.lacks_names |= gap
        server.seq, server.heard_ms = message.seq, now_ms
        if isinstance(message, Names):
            server.registered = {EngineAdapter(n): e for n, e in message.registered.items()}
            server.lacks_names = False
            numbers = (entry.id for entry in message.registered.values())
            server.number_max = max((server.number_max, *numbers))
        else:
            _count(server, message)
        return Heard(changed=True, gap=gap)

    def _live(self, now_ms: float) -> list[_Server]:
        return [
            server
            for server in self._servers.values()
            if now_ms - server.heard_ms <= SERVER_SILENCE_MS_MAX
        ]


def _count(server: _Server, message: Requests) -> None:
    if message.whole:
        server.in_flight.clear()
        server.lacks_requests = False
    for name, entry in message.adapters.items():
        if entry.in_flight:
            server.in_flight[EngineAdapter(name)] = entry.in_flight
        else:
            server.in_flight.pop(EngineAdapter(name), None)


def _event(event: Event, worker: _Worker) -> AdapterEvent:
    return AdapterEvent(
        kind=event.op,
        adapter=worker.names.get(event.id, EngineAdapter(f"({event.id})")),
        rank=worker.told.rank,
        at_ms=worker.told.at_ms,
        took_ms=event.ms,
    )


def _names(
    worker: _Worker, by_number: Mapping[int, EngineAdapter], newest: int, heard: bool
) -> Mapping[int, EngineAdapter]:
    """Names by number. The worker knows under which name a copy was loaded, the API servers whether
    it still has that name. Numbers grow, so a copy newer than all names is about to get its own."""
    if not heard:
        return worker.names
    return {**by_number, **{n: name for n, name in worker.names.items() if n > newest}}


def _rank_word(told: Residency, names: Mapping[int, EngineAdapter]) -> RankWord:
    """A number that no name stands for any more is shown as such."""

    def named(numbers: list[int]) -> tuple[EngineAdapter, ...]:
        return tuple(names.get(number, EngineAdapter(f"({number})")) for number in numbers)

    return RankWord(
        rank=told.rank,
        residency=EngineResidency(
            hbm=named(told.hbm),
            host=named(told.host),
            hbm_slots=told.hbm_slots,
            host_slots=told.host_slots,
        ),
        pinned=frozenset(named(told.pinned)),
    )
