"""What the kernel sees: the fleet as columns, one question, and what is predicted for it.

Arrays only, so that the numpy kernel and a compiled one read the same memory. `Fleet` alone writes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from axiom_common.model.engine import Role
from axiom_common.model.reason import Reason
from axiom_common.policy.columns import Profile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.intp]

_DTYPES = {"Floats": np.float64, "Ints": np.int64, "Codes": np.int8, "Bools": np.bool_}
_DTYPES["Hashes"] = np.uint64

VACANT = 0
"""The base model of a row that no engine uses; `stable_hash` is never 0."""

REASONS = tuple(Reason)
REASON_CODE = {reason: code for code, reason in enumerate(REASONS, start=1)}
"""Refusals as small numbers; 0 is no refusal."""

ROLE_CODE = {role: code for code, role in enumerate(Role)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """One entry a row; a row is an engine or vacant. Names hash to 64 bits (`stable_hash`).

    Times in ms, link rates in bytes a ms. `refusal` is a reason's code, `role` a role's, `slot` a
    `Slot`. `in_flight`, `queued_tokens`, `loads_done_at_ms` and `slot` count what is booked;
    everything else stands as the rules wrote it.
    """

    identity: Hashes
    base_model: Hashes
    role: Codes
    refusal: Codes
    stale: Bools
    unheard: Bools
    max_lora_rank: Ints
    slot: Codes
    in_flight: Ints
    queued_tokens: Ints
    seats: Ints
    wait_base_ms: Floats
    wait_per_request_ms: Floats
    wait_per_token_ms: Floats
    slowdown_per_request_ms: Floats
    prefill_ms_per_token: Floats
    load_queue_ms: Floats
    loads_done_at_ms: Floats
    h2d_fixed_ms: Floats
    h2d_bytes_per_ms: Floats
    store_fixed_ms: Floats
    store_bytes_per_ms: Floats
    kv_ms: Floats
    thermal_ms: Floats
    latency_ms: Floats
    kv_headroom: Floats
    thermal_safety: Floats
    latency_health: Floats


def vacant_view(rows: int) -> FleetView:
    """A view of `rows` vacant rows."""
    return FleetView(**{f.name: np.zeros(rows, _DTYPES[str(f.type)]) for f in fields(FleetView)})


def resized(view: FleetView, rows: int) -> FleetView:
    """A copy with more rows; the new ones are vacant."""
    larger = vacant_view(rows)
    for column in fields(FleetView):
        old = getattr(view, column.name)
        getattr(larger, column.name)[: len(old)] = old
    return larger


def first_rows(view: FleetView, rows: int) -> FleetView:
    """The first `rows` rows, on the same memory."""
    return FleetView(**{f.name: getattr(view, f.name)[:rows] for f in fields(FleetView)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """Where one adapter is: rows and, for each, `Held` and the rest of a load under way.

    The rest is the larger of `remaining_ms` and `ready_at_ms` - now.
    """

    rows: Rows
    held: Codes
    remaining_ms: Floats
    ready_at_ms: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request in the kernel's terms. `holders` is None for the base model: it needs no slot.

    `failed` are rows where the adapter's load failed, `closed` rows where nobody could load it,
    `excluded` rows that failed this very request. `weights` are the profile's, in the order of
    `Term`. `waited_ms` is what waiting at this adapter's engines has cost since its last load.
    `turn` is the identity that round robin took last.
    """

    base_model: int
    role: int
    rank: int
    size_bytes: int
    prompt_tokens: int
    affinity_hash: int
    request_hash: int
    now_ms: float
    profile: Profile
    weights: tuple[float, ...]
    holders: Holders | None
    failed: Rows
    closed: Rows
    excluded: Rows
    waited_ms: float
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What is predicted for the ask on every row; filters and pickers judge this.

    `delay_ms` is what a request loses there besides its own work and load: the wait, and what KV
    pressure, throttling and ill health cost. `load_ms` is the time until the adapter could run;
    `terms_ms` has one row a `Term`, in its
    order; `cost_us` is their weighted sum, rounded.
    """

    view: FleetView
    ask: Ask
    held: Codes
    affinity: Floats
    wait_ms: Floats
    delay_ms: Floats
    load_ms: Floats
    terms_ms: Floats
    cost_us: Ints
