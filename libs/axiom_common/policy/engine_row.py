"""What all rules wrote down of one engine when its state changed; a decision combines the rows."""

from __future__ import annotations

from typing import NamedTuple

from axiom_common.model.adapter import Residency
from axiom_common.model.engine import LinkModel, Role
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.reason import Reason


class WaitRule(NamedTuple):
    """Predicted wait: base + per_request x queued requests + per_token x uncached tokens booked.

    All in ms. Requests in flight are own bookings, peers' vectors and foreign load; those beyond
    `seats` queue. `slowdown_per_request_ms` is no wait: it is what each request in flight adds to
    the whole time of another one, because they share the engine's steps.
    """

    base_ms: float
    per_request_ms: float
    per_token_ms: float
    seats: int = 0
    slowdown_per_request_ms: float = 0.0


class EngineRow(NamedTuple):
    """One engine, as the rules see it.

    `refusal` is the closed reason that keeps it from serving anything, if any. `stale` and
    `flapping` engines are left out only while others remain. Slow-downs are factors of at least 1
    on the service time. `max_lora_rank` 0 means no adapters. `residents` are in LRU order, oldest
    first. With `loads_allowed` False only what is resident or `registered` is served: nobody could
    load more.
    """

    engine: EngineId
    base_model: str
    role: Role
    refusal: Reason | None
    stale: bool
    unheard: bool
    max_lora_rank: int
    hbm_slots: int
    link: LinkModel
    load_queue_ms: float
    wait: WaitRule
    prefill_ms_per_token: float
    service_ms: float
    kv_slowdown: float
    thermal_slowdown: float
    latency_slowdown: float
    kv_headroom: float
    thermal_safety: float
    latency_health: float
    residents: tuple[Residency, ...] = ()
    registered: tuple[EngineAdapter, ...] = ()
    failures: frozenset[EngineAdapter] = frozenset()
    loads_allowed: bool = True
    flapping: bool = False

    @property
    def slowdowns_ms(self) -> tuple[float, float, float]:
        """What KV pressure, throttling and ill health add to a request."""
        service_ms = self.service_ms
        return (
            (self.kv_slowdown - 1.0) * service_ms,
            (self.thermal_slowdown - 1.0) * service_ms,
            (self.latency_slowdown - 1.0) * service_ms,
        )
