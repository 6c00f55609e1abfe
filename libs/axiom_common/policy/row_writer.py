"""One engine's row into the columns: what the rules wrote, and what is in flight there."""

from __future__ import annotations

from axiom_common.policy.columns import EngineRow, WaitColumn
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.policy.scorers.queue_pressure import predicted_wait_ms
from axiom_common.policy.view import REASON_CODE, ROLE_CODE, VACANT, FleetView


def write_rules(view: FleetView, at: int, row: EngineRow) -> None:
    """Write everything that rules decide. A gigabyte per second is 1e6 bytes a ms."""
    view.identity[at] = stable_hash(row.engine)
    view.base_model[at] = stable_hash(row.base_model)
    view.role[at] = ROLE_CODE[row.role]
    view.refusal[at] = REASON_CODE[row.refusal] if row.refusal is not None else 0
    view.stale[at] = row.stale
    view.unheard[at] = row.unheard
    view.max_lora_rank[at] = row.max_lora_rank
    view.prefill_ms_per_token[at] = row.prefill_ms_per_token
    view.load_queue_ms[at] = row.load_queue_ms
    view.h2d_fixed_ms[at] = row.link.h2d_fixed_ms
    view.h2d_bytes_per_ms[at] = row.link.h2d_gbps * 1e6
    view.store_fixed_ms[at] = row.link.store_fixed_ms
    view.store_bytes_per_ms[at] = row.link.store_gbps * 1e6
    view.kv_ms[at] = (row.kv_slowdown - 1.0) * row.service_ms
    view.thermal_ms[at] = (row.thermal_slowdown - 1.0) * row.service_ms
    view.latency_ms[at] = (row.latency_slowdown - 1.0) * row.service_ms
    view.kv_headroom[at] = row.kv_headroom
    view.thermal_safety[at] = row.thermal_safety
    view.latency_health[at] = row.latency_health


def write_in_flight(
    view: FleetView,
    at: int,
    wait: WaitColumn,
    *,
    in_flight: int,
    queued_tokens: int,
    loads_done_at_ms: float,
    slot: int,
) -> None:
    """Write what is in flight, and what follows from it; `slot` is what a load would get.

    The rules' part of the row stands there already.
    """
    wait_ms = predicted_wait_ms(wait, in_flight=in_flight, queued_tokens=queued_tokens)
    view.in_flight[at] = in_flight
    view.wait_ms[at] = wait_ms
    view.crowd_ms[at] = wait.slowdown_per_request_ms * in_flight
    view.delay_ms[at] = wait_ms + view.kv_ms[at] + view.thermal_ms[at] + view.latency_ms[at]
    view.loads_done_at_ms[at] = loads_done_at_ms
    view.slot[at] = slot


def vacate(view: FleetView, at: int) -> None:
    """No engine uses the row."""
    view.base_model[at] = VACANT
