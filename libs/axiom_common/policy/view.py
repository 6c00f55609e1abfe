"""What the kernel sees: the fleet as columns, one question, and what is predicted for it.

Arrays only; `FleetRows` writes them. The compiled fleet has columns of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from axiom_common.model.decision import Term
from axiom_common.model.engine import Role
from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.profile import Profile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.intp]
Terms = npt.NDArray[np.float64]
"""One line a `Term`, in its order."""

_DTYPES = {"Floats": np.float64, "Ints": np.int64, "Codes": np.int8, "Bools": np.bool_}
_DTYPES |= {"Hashes": np.uint64, "Terms": np.float64}
_TERMS = list(Term)
WAIT, PREFILL, LOAD, KV, THERMAL, LATENCY = (
    _TERMS.index(term)
    for term in (Term.WAIT, Term.PREFILL, Term.ADAPTER_LOAD, Term.KV, Term.THERMAL, Term.LATENCY)
)
"""Lines of `Terms`."""

VACANT = 0
"""The base model of a row that no engine uses; `stable_hash` is never 0."""

REASONS = tuple(Reason)
REASON_CODE = {reason: code for code, reason in enumerate(REASONS, start=1)}
"""Refusals as small numbers; 0 is no refusal."""
VACANT_CODE = len(REASONS) + 1
"""Stands where a refusal could stand, on vacant rows."""

ROLE_CODE = {role: code for code, role in enumerate(Role)}


class StandingView(Protocol):
    """The columns of a fleet that say what its engines are: by them alone something stands against
    an engine for many requests alike."""

    @property
    def base_model(self) -> Hashes:
        """By `stable_hash`; VACANT where no engine is."""

    @property
    def role(self) -> Codes:
        """Codes of roles."""

    @property
    def refusal(self) -> Codes:
        """Codes of the reasons that the rules gave, 0 for none."""

    @property
    def max_lora_rank(self) -> Ints:
        """0: no adapters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """One entry a row; a row is an engine or vacant. Names hash to 64 bits (`stable_hash`).

    Times in ms, link rates in bytes a ms. `refusal` is a reason's code, `role` a role's, `slot` a
    `Slot`. `in_flight`, `wait_ms`, `delay_ms`, `loads_done_at_ms`, `slot` and the first line of
    `terms_ms` count what is in flight; everything else stands as the rules wrote it.

    `doubtful` is True where one of the three columns before it is.
    `wait_ms` passes before the prefill starts. `delay_ms` is what a request loses there besides
    its own work and load: the wait, and what KV pressure, throttling and ill health cost.
    `terms_ms` is what any request costs there: the wait and what those in flight add to the rest of
    a request, because they share the engine's steps; the prefill of one token; no load.
    """

    identity: Hashes
    base_model: Hashes
    role: Codes
    refusal: Codes
    stale: Bools
    unheard: Bools
    flapping: Bools
    doubtful: Bools
    max_lora_rank: Ints
    slot: Codes
    in_flight: Ints
    wait_ms: Floats
    terms_ms: Terms
    load_queue_ms: Floats
    loads_done_at_ms: Floats
    h2d_fixed_ms: Floats
    h2d_bytes_per_ms: Floats
    store_fixed_ms: Floats
    store_bytes_per_ms: Floats
    delay_ms: Floats
    kv_headroom: Floats
    thermal_safety: Floats
    latency_health: Floats


def vacant_view(rows: int) -> FleetView:
    """A view of `rows` vacant rows."""
    return FleetView(
        **{
            f.name: np.zeros((len(Term), rows) if f.type == "Terms" else rows, _DTYPES[str(f.type)])
            for f in fields(FleetView)
        }
    )


def resized(view: FleetView, rows: int) -> FleetView:
    """A copy with more rows; the new ones are vacant."""
    larger = vacant_view(rows)
    for column in fields(FleetView):
        old = getattr(view, column.name)
        getattr(larger, column.name)[..., : old.shape[-1]] = old
    return larger


def first_rows(view: FleetView, rows: int) -> FleetView:
    """The first `rows` rows, on the same memory."""
    return FleetView(**{f.name: getattr(view, f.name)[..., :rows] for f in fields(FleetView)})


class Holders(NamedTuple):
    """Where one adapter is: rows and, for each, `Held` and the rest of a load under way.

    The rest is the larger of `remaining_ms` and `ready_at_ms` - now. `all_resident`: every one is.
    """

    rows: Rows
    held: Codes
    remaining_ms: Floats
    ready_at_ms: Floats
    all_resident: bool


class Links(NamedTuple):
    """For an adapter of one size: host RAM to HBM, and store to host RAM, on idle links; ms."""

    transfer_ms: Floats
    fetch_ms: Floats


class Credit(NamedTuple):
    """What is held of one prompt, in tokens: what of it counts, and what is left to compute."""

    credited_tokens: Floats
    uncached_tokens: Floats


class Wanted(NamedTuple):
    """What many requests have in common. `rank` is None for the base model: it needs no slot."""

    base_model: int
    role: int
    rank: int | None


class Ask(NamedTuple):
    """One request in the kernel's terms. `holders` and `links` are None for the base model.

    `standing` is `kernel.standing` for `wanted`. `failed` is True on rows where the adapter's load
    failed, `closed` where nobody could load it, `excluded` where this very request failed; None:
    nowhere. `weights` are the profile's, one line a `Term`. `waited_ms` is what waiting at this
    adapter's engines has cost since its last load. `turn` is the identity that round robin took
    last. `credit` None: nothing of the prompt is known to be held anywhere.
    """

    wanted: Wanted
    standing: Codes
    prompt_tokens: int
    affinity_hash: int
    request_hash: int
    now_ms: float
    profile: Profile
    weights: Terms
    holders: Holders | None
    links: Links | None
    failed: Bools | None
    closed: Bools | None
    excluded: Bools | None
    waited_ms: float
    turn: int
    credit: Credit | None


class Prospect(NamedTuple):
    """What is predicted for the ask on every row; filters and pickers judge this.

    `load_ms` is the time until the adapter could run. `cost_us` is the weighted sum of `terms_ms`,
    rounded. To read only: rows of asks for the base model share some of it.
    """

    view: FleetView
    ask: Ask
    held: Codes
    affinity: Floats
    load_ms: Floats
    terms_ms: Terms
    cost_us: Ints


class Seen(NamedTuple):
    """What a decision saw of one engine: plain numbers, which outlive the columns.

    `held` is a `Held`, `slot` a `Slot`. `rest_ms` is the rest of a load under way; `h2d_ms` and
    `cold_ms` are what a load from host RAM and from the store would take; all 0 for the base model.
    `terms_ms` is indexed like `Term`. `uncached_tokens` are those that its prefill term counts.
    """

    engine: EngineId
    cost_us: int
    held: int
    slot: int
    terms_ms: tuple[float, ...]
    rest_ms: float
    h2d_ms: float
    cold_ms: float
    wait_ms: float
    kv_headroom: float
    thermal_safety: float
    latency_health: float
    credited_tokens: float
    uncached_tokens: float
