"""Axiom's vLLM extension on the simulated engine: what it tells and what it does when asked.

Messages, channel and counts are the extension's own (libs/axiom_vllm); what there watches vLLM's
managers here watches the slots. In one process, so worker and API server differ by their channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from axiom_sim.engine.adapters import AdapterNames
from axiom_sim.engine.batch import Batch
from axiom_sim.engine.profiles import EngineProfile, Tier
from axiom_sim.engine.refusals import RefusedError
from axiom_sim.engine.slots import Adapter
from axiom_sim.engine.steps import EngineLoop
from axiom_vllm.channel import Channel, UnixDatagrams
from axiom_vllm.messages import (
    FORM,
    IN_USE,
    LOAD_FAILED,
    NAME_TAKEN,
    NO_ROOM,
    NOT_HELD,
    PINNED,
    RESIDENCY,
    UNKNOWN_NAME,
    Message,
    done,
    refused,
)
from axiom_vllm.teller import ServerTeller


@dataclass(frozen=True, slots=True)
class _Registered:
    lora_int_id: int
    lora_path: str


class _Models:
    """The names in the shape of vLLM's serving models."""

    def __init__(self, names: AdapterNames) -> None:
        self._names = names

    @property
    def lora_requests(self) -> Mapping[str, _Registered]:
        return {a.name: _Registered(a.number, a.path) for a in self._names.all()}


class SimulatedExtension:
    """Of one engine. `attach` begins; while `silent` it neither tells nor answers."""

    def __init__(
        self,
        batch: Batch,
        names: AdapterNames,
        loop: EngineLoop,
        profile: EngineProfile,
        *,
        socket_path: str,
        version: str,
    ) -> None:
        self._batch = batch
        self._slots = batch.slots
        self._names = names
        self._loop = loop
        self._profile = profile
        self._version = version
        self._line = UnixDatagrams(socket_path)
        self._worker = Channel(self._transmit)
        self.teller = ServerTeller(Channel(self._transmit), _Models(names))
        self._by_slot: list[int | None] = [None] * self._slots.hbm_slots
        self._seen: tuple[object, ...] = ()
        self._known: dict[int, Adapter] = {}

    @property
    def silent(self) -> bool:
        """By order of a test."""
        return self._loop.faults.extension_silent

    def attach(self) -> None:
        """Begin to tell; the loop says when the slots may have changed."""
        self._loop.watch_slots(self._slots.hold_pinned, self._look)
        self._worker.send(self._residency([]))
        self.teller.beat()

    def detach(self) -> None:
        """Say no more."""
        self.teller.stop()
        self._line.close()

    def state(self) -> Message:
        """All there is to tell."""
        whole = self._residency([])
        self._worker.send(whole)
        return {
            "v": FORM,
            "supported": True,
            "version": self._version,
            "residency": self._worker.stamped(whole),
            "requests": self.teller.requests(),
            "names": self.teller.names(),
        }

    async def load_to_host(self, name: str, path: object) -> Message:
        """Read the adapter into host RAM; a new name with a `path` is registered."""
        known = self._names.get(name)
        if known is None and (not isinstance(path, str) or not path):
            return refused(UNKNOWN_NAME)
        if known is not None and path not in (None, known.path):
            return refused(NAME_TAKEN, known.path)
        if name == self._names.base:
            return refused(NAME_TAKEN, "a base model")
        adapter = known
        if adapter is None:
            try:
                adapter = self._names.check_load(name, str(path), in_place=False)
            except RefusedError as error:
                return refused(LOAD_FAILED, str(error))
        if adapter in self._slots.host:
            return done(changed=False)
        oldest = self._slots.host[0] if self._slots.host_is_full else None
        if oldest is not None and (reason := self._stays(oldest.number)):
            return refused(NO_ROOM, f"the oldest copy is {reason}")
        await self._loop.load(adapter, in_place=False, host_only=True)
        if known is None:
            self._names.register(adapter)
            self.teller.names_changed()
        return done(changed=True)

    def control(self, call: str, number: int) -> Message:
        """`free_slot`, `drop`, `pin` or `unpin`."""
        return self._changing(lambda: getattr(self, f"_{call}")(number))

    def number_of(self, name: str) -> int | None:
        """The number that a name stands for."""
        adapter = self._names.get(name)
        return adapter.number if adapter else None

    def _free_slot(self, number: int) -> Message:
        if number not in (adapter.number for adapter in self._slots.hbm):
            return done(changed=False)
        if reason := self._stays(number):
            return refused(reason)
        self._slots.free(number)
        return done(changed=True)

    def _drop(self, number: int) -> Message:
        held = next((a for a in self._slots.host if a.number == number), None)
        if held is None:
            return done(changed=False)
        if reason := self._stays(number):
            return refused(reason)
        self._slots.drop(held)
        return done(changed=True)

    def _pin(self, number: int) -> Message:
        pinned = self._slots.pinned
        if number in pinned:
            return done(changed=False)
        if number not in (adapter.number for adapter in self._slots.host):
            return refused(NOT_HELD)
        if len(pinned) + 1 >= self._slots.host_slots:
            return refused(NO_ROOM, "one host copy stays free to change")
        pinned.add(number)
        return done(changed=True)

    def _unpin(self, number: int) -> Message:
        changed = number in self._slots.pinned
        self._slots.pinned.discard(number)
        return done(changed=changed)

    def _stays(self, number: int) -> str:
        """Why it has to stay where it is; "" when it has not."""
        if number in self._slots.pinned:
            return PINNED
        names = (a.name for a in self._names.all() if a.number == number)
        if self._batch.uses(number) or any(self.teller.in_flight.of(name) for name in names):
            return IN_USE
        return ""

    def _changing(self, change: Callable[[], Message]) -> Message:
        self._slots.hold_pinned()
        outcome = change()
        self._look()
        return outcome

    def _look(self) -> None:
        """Tell what changed since the last look."""
        slots, before, was_in = self._slots, self._known, list(self._by_slot)
        held = {adapter.number: adapter for adapter in slots.host}
        slots.pinned &= held.keys()
        self._place()
        seen = (tuple(held), tuple(a.number for a in slots.hbm), frozenset(slots.pinned))
        if seen == self._seen:
            return
        self._seen, self._known = seen, held
        pairs = list(enumerate(zip(was_in, self._by_slot, strict=True)))
        events: list[Message] = [
            {"op": "freed", "id": was, "slot": slot}
            for slot, (was, now) in pairs
            if was is not None and was != now
        ]
        events += [{"op": "dropped", "id": number} for number in before if number not in held]
        events += [
            {"op": "loaded", "id": number, "ms": self._profile.load_ms(Tier.STORE, a.size_bytes)}
            for number, a in held.items()
            if number not in before
        ]
        events += [
            {"op": "activated", "id": now, "slot": slot}
            for slot, (was, now) in pairs
            if now is not None and was != now
        ]
        self._worker.send(self._residency(events))

    def _place(self) -> None:
        """Which slot each adapter in HBM has: it keeps the one it got."""
        in_hbm = [adapter.number for adapter in self._slots.hbm]
        kept = [number if number in in_hbm else None for number in self._by_slot]
        for number in in_hbm:
            if number not in kept:
                kept[kept.index(None)] = number
        self._by_slot = kept

    def _residency(self, events: list[Message]) -> Message:
        self._place()
        slots = self._slots
        return {
            "kind": RESIDENCY,
            "rank": 0,
            "whole": True,
            "hbm_slots": slots.hbm_slots,
            "host_slots": slots.host_slots,
            "slots": self._by_slot,
            "hbm": [adapter.number for adapter in slots.hbm],
            "host": [adapter.number for adapter in slots.host],
            "pinned": sorted(slots.pinned),
            "names": {str(a.number): a.name for a in slots.host},
            "events": events,
        }

    def _transmit(self, datagram: bytes) -> None:
        if self.silent:
            raise ConnectionRefusedError
        self._line(datagram)
