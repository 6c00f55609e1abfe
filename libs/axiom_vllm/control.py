"""What the node agent may ask of the adapters of a worker, between two steps of the engine.

Each call either does what it says, finds it done, or refuses with a reason and does nothing. With
several workers (tensor or pipeline parallel) each does the same on the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from axiom_vllm.known import numbers_in_use
from axiom_vllm.messages import (
    IN_USE,
    LOAD_FAILED,
    NO_ROOM,
    NOT_HELD,
    PINNED,
    Message,
    done,
    refused,
)
from axiom_vllm.watch import LOG, AdapterWatch

MakeRequest = Callable[[int, str, str], Any]
"""(number, name, path) -> vLLM's LoRARequest."""


class AdapterControl:
    """Over one worker's `watch`; `runner` is its model runner."""

    def __init__(self, watch: AdapterWatch, runner: Any, make_request: MakeRequest) -> None:
        self._watch = watch
        self._runner = runner
        self._make_request = make_request

    def load_to_host(self, number: int, name: str, path: str) -> Message:
        """Read the adapter into host RAM and leave the slots as they are.

        Where host RAM is full the oldest copy leaves, slot included, if it is neither pinned nor in
        use. The file is read inside the engine's loop: have it in the page cache before.
        """
        return self._changing(lambda: self._load(self._make_request(number, name, path)))

    def free_slot(self, number: int) -> Message:
        """Empty the adapter's slot; the host copy stays."""
        return self._changing(lambda: self._free_slot(number))

    def drop(self, number: int) -> Message:
        """Forget both copies."""
        return self._changing(lambda: self._drop(number))

    def pin(self, number: int) -> Message:
        """Keep the copies that there are from eviction; a slot is not taken for it."""
        return self._changing(lambda: self._pin(number))

    def unpin(self, number: int) -> Message:
        """Let them be evicted again."""
        return self._changing(lambda: self._unpin(number))

    def _changing(self, change: Callable[[], Message]) -> Message:
        outcome: Message = self._watch.changing(change)
        return outcome

    def _load(self, request: Any) -> Message:
        watch, adapters = self._watch, self._watch.adapters
        held = watch.held_in_host()
        if request.lora_int_id in held:
            return done(changed=False)
        full = len(held) >= adapters.capacity
        if full and (refusal := self._refusal(held[0])) is not None:
            return refused(NO_ROOM, f"the oldest copy is {refusal['reason']}")
        try:
            # Read before anything leaves: a broken adapter pushes nothing out.
            copy = watch.manager._load_adapter(request)
        except Exception as error:  # noqa: BLE001 - whatever a broken file makes vLLM raise; logged
            LOG.exception("axiom: adapter %s could not be loaded to host", request.lora_name)
            return refused(LOAD_FAILED, str(error))
        if full:
            adapters.remove_oldest_adapter()
        adapters.add_adapter(copy)
        return done(changed=True)

    def _free_slot(self, number: int) -> Message:
        if not self._watch.in_slot(number):
            return done(changed=False)
        return self._refusal(number) or done(
            changed=bool(self._watch.adapters.deactivate_adapter(number))
        )

    def _drop(self, number: int) -> Message:
        if number not in self._watch.held_in_host():
            return done(changed=False)
        return self._refusal(number) or done(
            changed=bool(self._watch.manager.remove_adapter(number))
        )

    def _pin(self, number: int) -> Message:
        pinned = self._watch.pinned
        if number in pinned:
            return done(changed=False)
        if number not in self._watch.held_in_host():
            return refused(NOT_HELD)
        if len(pinned) + 1 >= self._watch.adapters.capacity:
            return refused(NO_ROOM, "one host copy stays free to change")
        pinned.add(number)
        return done(changed=True)

    def _unpin(self, number: int) -> Message:
        changed = number in self._watch.pinned
        self._watch.pinned.discard(number)
        return done(changed=changed)

    def _refusal(self, number: int) -> Message | None:
        """Why the adapter has to stay where it is; None when it has not."""
        if number in self._watch.pinned:
            return refused(PINNED)
        if number in numbers_in_use(self._runner):
            return refused(IN_USE)
        return None
