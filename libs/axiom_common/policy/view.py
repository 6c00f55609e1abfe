"""What the kernel sees: the fleet as columns, one question, and what is predicted for it.

Arrays only, so that the numpy kernel and a compiled one can read one memory; `FleetRows` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from axiom_common.model.engine import Role
from axiom_common.model.reason import Reason
from axiom_common.policy.profile import Profile

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
VACANT_CODE = len(REASONS) + 1
"""Stands where a refusal could stand, on vacant rows."""

ROLE_CODE = {role: code for code, role in enumerate(Role)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """One entry a row; a row is an engine or vacant. Names hash to 64 bits (`stable_hash`).

    Times in ms, link rates in bytes a ms. `refusal` is a reason's code, `role` a role's, `slot` a
    `Slot`. `in_flight`, `wait_ms`, `crowd_ms`, `delay_ms`, `loads_done_at_ms` and `slot` count what
    is in flight; everything else stands as the rules wrote it.

    `wait_ms` passes before the prefill starts. `crowd_ms` is what those in flight add to the rest
    of a request: they share the engine's steps. `delay_ms` is what a request loses there besides
    its own work and load: the wait, and what KV pressure, throttling and ill health cost.
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
    wait_ms: Floats
    crowd_ms: Floats
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
    delay_ms: Floats
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

    `failed` is True on rows where the adapter's load failed, `closed` where nobody could load it,
    `excluded` where this very request failed. `weights` are the profile's, one row a `Term`.
    `waited_ms` is what waiting at this adapter's engines has cost since its last load. `turn` is
    the identity that round robin took last.
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
    weights: Floats
    holders: Holders | None
    failed: Bools
    closed: Bools
    excluded: Bools
    waited_ms: float
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What is predicted for the ask on every row; filters and pickers judge this.

    `load_ms` is the time until the adapter could run. `terms_ms` has one row a `Term`, in its
    order; `cost_us` is their weighted sum, rounded.
    """

    view: FleetView
    ask: Ask
    held: Codes
    affinity: Floats
    load_ms: Floats
    terms_ms: Floats
    cost_us: Ints
