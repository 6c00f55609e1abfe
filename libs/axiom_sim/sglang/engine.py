"""The simulated engine with SGLang's ways: adapters that load by themselves, unloads that wait."""

from __future__ import annotations

import asyncio

from axiom_common.ports.clock import Clock
from axiom_sim.engine.engine import EngineConfig, SimulatedEngine
from axiom_sim.engine.refusals import internal_error
from axiom_sim.engine.slots import Adapter
from axiom_sim.sglang.adapters import SglangNames, SglangSlots, refused
from axiom_sim.sglang.metrics_page import SglangMetrics

_UNLOAD_POLL_MS = 2.0


def adapter_in(model: str | None) -> str | None:
    """The adapter that a request's model names, behind the first colon; None: the base model.

    What stands before the colon is not looked at (srt/entrypoints/openai/serving_base.py).
    """
    return (model or "").partition(":")[2] or None


class SglangEngine(SimulatedEngine):
    """`max_loras` is SGLang's `--max-loras-per-batch`, `max_cpu_loras` its `--max-loaded-loras`."""

    names: SglangNames
    metrics: SglangMetrics
    names_type = SglangNames
    metrics_type = SglangMetrics

    def __init__(self, config: EngineConfig, clock: Clock) -> None:
        slots = SglangSlots(loras_per_batch=config.max_loras, loaded_max=config.max_cpu_loras)
        super().__init__(config, clock, slots=slots)
        self.metrics.batch = self.batch
        self._updating = asyncio.Lock()

    async def prepare(self, model: str | None) -> None:
        """An adapter that was ever loaded, and had to go, is loaded again."""
        name = adapter_in(model)
        if name is None or self.names.get(name) is not None:
            return
        path = self.names.path_of(name)
        if path is None:
            raise refused(
                f"Got LoRA adapter that has never been loaded: {name}\n"
                f"All loaded adapters: {self.names.ever_loaded}."
            )
        async with self._updating:
            if self.names.get(name) is None:
                await self._load(name, path)

    async def load(self, name: str, path: str, *, in_place: bool = False) -> None:
        """Read an adapter into host RAM and register it, or refuse."""
        if self.loop.faults.take_load_failure():
            raise refused("ordered by /sim/faults")
        self._check_enabled()
        async with self._updating:
            await self._load(name, path, in_place=in_place)

    async def unload(self, name: str) -> None:
        """Forget a name at once; free its copies when no request uses them any more."""
        self._check_enabled()
        async with self._updating:
            await self._unload(name)

    def _check_enabled(self) -> None:
        if not self.config.max_loras:
            raise refused("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.")

    async def _load(self, name: str, path: str, *, in_place: bool = False) -> None:
        adapter = self.names.check_load(name, path, in_place=in_place)
        await self.loop.load(adapter, in_place=in_place)
        self.names.register(adapter)
        while len(self.names.all()) > self.config.max_cpu_loras:
            await self._unload(self.names.all()[0].name)

    async def _unload(self, name: str) -> None:
        adapter = next((a for a in self.names.all() if a.name == name), None)
        self.names.forget(name)
        assert adapter is not None
        while self.batch.wants(adapter):
            await self._clock.sleep_ms(_UNLOAD_POLL_MS)
        self.slots.drop(adapter)

    def _admit(self, model: str | None) -> Adapter | None:
        name = adapter_in(model)
        adapter = None if name is None else self.names.get(name)
        if name is not None and adapter is None:
            raise refused(f"The following requested LoRA adapters are not loaded: {name}")
        if self.loop.in_flight >= self.config.max_num_queued_reqs:
            self.metrics.rejected += 1
            raise refused("The request queue is full.", 503)
        if self.loop.faults.take_request_failure():
            raise internal_error()
        self.metrics.requests += 1
        return adapter
