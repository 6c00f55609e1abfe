"""An engine as a test wants it: the `Engine` port over its own small memory, without a network."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineModels, EngineSample, Histogram


@dataclass(slots=True)
class FakeEngine:
    """Answers to names as vLLM does: to as many as are loaded, until they are unloaded.

    What a test sets: `running`, `waiting`, `deferred`, `kv_usage` (shown as they are), `absent`
    (paths that hold no adapter), `down` (no answer), `fail_loads` (the next n loads answer 500).
    `begin` and `end` stand for a request's run.
    """

    base: str = "base"
    max_loras: int = 2
    running: int = 0
    waiting: int = 0
    deferred: int = 0
    kv_usage: float | None = 0.0
    absent: set[str] = field(default_factory=set)
    down: bool = False
    fail_loads: int = 0
    loads: list[EngineAdapter] = field(default_factory=list)
    unloads: list[EngineAdapter] = field(default_factory=list)
    _paths: dict[EngineAdapter, str] = field(default_factory=dict)
    _in_use: dict[EngineAdapter, int] = field(default_factory=dict)
    _steps: int = 0
    _requests: int = 0
    _prompt_tokens: int = 0
    _generation_tokens: int = 0
    _started_s: float = 1.0

    async def healthy(self) -> bool:
        """Whether it answers."""
        return not self.down

    async def sample(self) -> EngineSample:
        """What a scrape would find; latencies are 0.1 s a request and 0.01 s a token."""
        self._answer()
        sample = EngineSample(
            running=self.running,
            waiting=self.waiting,
            deferred=self.deferred,
            kv_usage=self.kv_usage,
            ttft=Histogram(sum_s=0.1 * self._requests, count=self._requests),
            tpot=Histogram(sum_s=0.01 * self._generation_tokens, count=self._generation_tokens),
            prefill=Histogram(sum_s=0.05 * self._requests, count=self._requests),
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            started_s=self._started_s,
            kv_tokens=16_384,
            preemptions=0.0,
            rejections=0.0,
            prefix_queries=self._prompt_tokens,
            prefix_hits=0.0,
        )
        if not self._steps or not self.max_loras:
            return sample
        return replace(sample, max_loras=self.max_loras, in_use=frozenset(self._in_use))

    async def models(self) -> EngineModels:
        """The base model and the registered names."""
        self._answer()
        return EngineModels(base=(self.base,), adapters=dict(self._paths))

    async def load(self, name: EngineAdapter, path: str) -> None:
        """Register."""
        self._answer()
        if name in self._paths:
            if self._paths[name] != path:
                raise EngineCallError(f"{name} has already been loaded", status=400)
            return
        if self.fail_loads > 0:
            self.fail_loads -= 1
            raise EngineCallError("Call to add_lora method failed", status=500)
        if path in self.absent:
            raise EngineCallError(f"No adapter found for {path}", status=404)
        self.loads.append(name)
        self._paths[name] = path

    async def unload(self, name: EngineAdapter) -> None:
        """Forget the name."""
        self._answer()
        if self._paths.pop(name, None) is not None:
            self.unloads.append(name)

    async def close(self) -> None:
        """Nothing to let go of."""

    def begin(self, name: EngineAdapter) -> None:
        """A request for a registered adapter runs and has produced output."""
        if name not in self._paths:
            raise AssertionError(f"{name} is not registered")
        self.running += 1
        self._in_use[name] = self._in_use.get(name, 0) + 1
        self._steps += 1
        self._requests += 1
        self._prompt_tokens += 16
        self._generation_tokens += 16

    def end(self, name: EngineAdapter) -> None:
        """It has ended."""
        self.running -= 1
        self._in_use[name] -= 1
        if not self._in_use[name]:
            del self._in_use[name]
        self._steps += 1

    def restart(self) -> None:
        """A new process at the same address: it knows nothing of the old one."""
        self._paths.clear()
        self._in_use.clear()
        self.running = self.waiting = self.deferred = 0
        self._steps = self._requests = self._prompt_tokens = self._generation_tokens = 0
        self._started_s += 1.0
        self.down = False

    def _answer(self) -> None:
        if self.down:
            raise UnavailableError("the engine is down")
