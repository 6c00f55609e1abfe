"""Between a policy and the fleet it routes: what it is told, and what it may do.

There is one policy object for each region, as a region's gateway is one. It hears of requests and
of engines through `Policy`, and acts through its `Desk`. Each request that arrived is sent or
refused in the end; one that failed before its first token is the policy's again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from axiom_sim.fleet.layout import EngineSpec
from axiom_sim.fleet.reports import EngineReport
from axiom_sim.fleet.requests import Request, SimAdapter


class Desk(Protocol):
    """What a policy may do, and the facts of the registry: which engines and adapters there are."""

    engines: Sequence[EngineSpec]
    """Those of this policy's region."""
    adapters: Sequence[SimAdapter]
    """All, by number."""
    chance: Random
    """This policy's own source of chance, seeded by the run."""

    @property
    def now_ms(self) -> float:
        """Virtual time."""
        ...

    def send(self, request: Request, engine: int) -> None:
        """Give the request to an engine of the region; its loads are the engine's own business."""
        ...

    def refuse(self, request: Request) -> None:
        """Answer the client that it is not served."""
        ...

    def fetch(self, engine: int, adapter: int, done: Callable[[], None]) -> None:
        """Have the agent bring an adapter's file into the host's RAM, beside the engine's steps;
        `done` is called when it is there, at once if it was, and also if the engine dies."""
        ...

    def evict(self, engine: int, adapter: int) -> None:
        """Name the adapter that the engine's next load pushes out, if it is idle then; for
        `controlled` engines only."""
        ...

    def call_at(self, at_ms: float, call: Callable[[], None]) -> None:
        """Call back at a time, not before now."""
        ...


class Policy(Protocol):
    """One way to route. Whatever it does, it does within these calls, or in its own call backs."""

    follows_kv: bool
    """Whether reports shall tell of changes in the engines' prefix caches."""

    def arrived(self, request: Request) -> None:
        """A client asks."""
        ...

    def first_token(self, request: Request, engine: int) -> None:
        """The engine begins to answer."""
        ...

    def ended(self, request: Request, engine: int, ttft_ms: float, tpot_ms: float | None) -> None:
        """The answer is complete. `ttft_ms` from when it was sent to the engine."""
        ...

    def failed(self, request: Request, engine: int, *, streamed: bool) -> None:
        """The engine refused the connection, or died with the request. `streamed`: the client had
        a first token, so that the request is lost; else it is the policy's again."""
        ...

    def heard(self, reports: Sequence[EngineReport]) -> None:
        """Telemetry arrived."""
        ...


MakePolicy = Callable[[Desk], Policy]
