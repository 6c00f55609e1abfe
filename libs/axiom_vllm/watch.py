"""Watches the two LRUs of a worker's adapters, and says what changed.

vLLM keeps host copies (`_registered_adapters`) and, of some of them, a copy in an HBM slot
(`_active_adapters` in LRU order, `lora_index_to_id` by slot). All changes go through a few methods
of its worker manager, which run one at a time in the engine's loop. Each is wrapped on the instance
and looks afterwards whether anything is different. A step that changes nothing costs the comparison
of three short sequences.

A pin is soft: what is pinned counts as just used before each change, so vLLM evicts it only when
one batch needs all the room. vLLM's own pin takes the slot from the scheduler's sight: a batch with
as many adapters as slots then finds no place for its last one, and the engine dies.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from axiom_vllm.messages import RESIDENCY, Message

LOG = logging.getLogger("vllm.axiom_vllm")

_CHANGING = (
    "_apply_adapters",
    "add_adapter",
    "pin_adapter",
    "remove_adapter",
    "remove_all_adapters",
)


class AdapterWatch:
    """Around one worker's `manager`. `on_change` gets a residency message when something changed,
    and when it is `due`: asked after each step, so it must be cheap."""

    def __init__(
        self,
        manager: Any,
        names: dict[int, str],
        on_change: Callable[[Message], None],
        due: Callable[[], bool],
    ) -> None:
        self.manager = manager
        self.adapters = manager._adapter_manager
        self.pinned: set[int] = set()
        self._names = dict(names)
        self._on_change = on_change
        self._due = due
        self._on_failure: Callable[[Exception], None] = lambda _: None
        self._depth = 0
        self._load_ms: dict[int, float] = {}
        self._activate_ms: dict[int, float] = {}
        self._slots, self._hbm, self._host = self._now()
        self._pinned: set[int] = set()

    def attach(self, on_failure: Callable[[Exception], None]) -> None:
        """Begin to watch. After an error of its own it ends by itself and calls `on_failure`."""
        self._on_failure = on_failure
        for name in _CHANGING:
            setattr(self.manager, name, self._watched(getattr(self.manager, name)))
        self.manager._load_adapter = self._timed_load(self.manager._load_adapter)
        self.adapters.activate_adapter = self._timed_activation(self.adapters.activate_adapter)

    def detach(self) -> None:
        """Leave the managers as they were."""
        for name in (*_CHANGING, "_load_adapter"):
            vars(self.manager).pop(name, None)
        vars(self.adapters).pop("activate_adapter", None)

    def held_in_host(self) -> list[int]:
        """Numbers of host copies, least recently used first."""
        return list(self.adapters._registered_adapters.order)

    def in_slot(self, number: int) -> bool:
        """Whether the adapter has a slot."""
        return number in self.adapters.lora_index_to_id

    def hold_pinned(self) -> None:
        """Make what is pinned the most recently used."""
        for number in sorted(self.pinned):
            self.adapters._registered_adapters.touch(number)
            self.adapters._active_adapters.touch(number)

    def changing(self, change: Callable[[], Any]) -> Any:
        """Run `change`, a composition of manager calls, as one change."""
        return self._watched(change)()

    def whole(self) -> Message:
        """All that is held, with the names that it was loaded under."""
        self._slots, self._hbm, self._host = self._now()
        names = {str(number): self._names[number] for number in self._host if number in self._names}
        return {**self._message([], names), "whole": True}

    def _now(self) -> tuple[list[int | None], list[int], list[int]]:
        return (
            list(self.adapters.lora_index_to_id),
            list(self.adapters._active_adapters.order),
            list(self.adapters._registered_adapters.order),
        )

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._depth == 0 and self.pinned:
                self.hold_pinned()
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._look()

        return watched

    def _timed_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(request: Any) -> Any:
            started_s = time.perf_counter()
            copy = original(request)
            self._load_ms[request.lora_int_id] = (time.perf_counter() - started_s) * 1e3
            self._names[request.lora_int_id] = request.lora_name
            return copy

        return timed

    def _timed_activation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(number: int) -> Any:
            started_s = time.perf_counter()
            activated = original(number)
            if activated:
                self._activate_ms[number] = (time.perf_counter() - started_s) * 1e3
            return activated

        return timed

    def _look(self) -> None:
        """Say what changed since the last look. The engine goes on whatever happens here."""
        try:
            now = self._now()
            changed = now != (self._slots, self._hbm, self._host)
            if changed or self._load_ms or self.pinned != self._pinned or self._due():
                self._tell(*now)
        except Exception as error:
            LOG.exception("axiom: the extension failed and is off; the engine goes on without it")
            self.detach()
            self._on_failure(error)

    def _tell(self, slots: list[int | None], hbm: list[int], host: list[int]) -> None:
        events = self._events(slots, host)
        before = set(self._host)
        new = [number for number in host if number not in before or number in self._load_ms]
        names = {str(number): self._names[number] for number in new if number in self._names}
        self._slots, self._hbm, self._host = slots, hbm, host
        self._load_ms.clear()
        self._activate_ms.clear()
        held = set(host)
        self.pinned &= held
        self._pinned = set(self.pinned)
        self._names = {n: name for n, name in self._names.items() if n in held}
        self._on_change(self._message(events, names))

    def _events(self, slots: list[int | None], host: list[int]) -> list[Message]:
        """What left, and then what came; each with the ms that the engine's loop spent on it."""
        events: list[Message] = []
        for slot, (was, now) in enumerate(zip(self._slots, slots, strict=True)):
            if was is not None and was != now:
                events.append({"op": "freed", "id": was, "slot": slot})
        held, before = set(host), set(self._host)
        events += [{"op": "dropped", "id": n} for n in self._host if n not in held]
        for number in host:
            if number in self._load_ms or number not in before:
                took_ms = self._load_ms.get(number, 0.0)
                events.append({"op": "loaded", "id": number, "ms": round(took_ms, 3)})
        for slot, (was, now) in enumerate(zip(self._slots, slots, strict=True)):
            if now is not None and (was != now or now in self._load_ms):
                took_ms = self._activate_ms.get(now, 0.0)
                event = {"op": "activated", "id": now, "slot": slot, "ms": round(took_ms, 3)}
                events.append(event)
        return events

    def _message(self, events: list[Message], names: dict[str, str]) -> Message:
        return {
            "kind": RESIDENCY,
            "whole": False,
            "hbm_slots": self.adapters.lora_slots,
            "host_slots": self.adapters.capacity,
            "slots": self._slots,
            "hbm": self._hbm,
            "host": self._host,
            "pinned": sorted(self.pinned),
            "names": names,
            "events": events,
        }
