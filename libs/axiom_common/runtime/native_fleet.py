"""The compiled fleet: rules write here, in Python; `axiom_native.Decider` adds up what they wrote.

Everything that decides anything is told to it once, when it is made: which load is how far out, in
which order reasons are named, what is remembered for how long. Its twin is policy/fleet_twin.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

import axiom_native
from axiom_common.model import prefix
from axiom_common.model.adapter import Residency
from axiom_common.model.decision import Candidate, LoadKind, Query, Refused
from axiom_common.model.engine import Role
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy import kernel
from axiom_common.policy.decided import (
    HEAD,
    LOAD_KIND,
    SHOWN_MAX,
    Decided,
    candidate,
    unpack_one,
)
from axiom_common.policy.engine_row import EngineRow
from axiom_common.policy.fleet import KEPT_MAX, Prompt
from axiom_common.policy.fleet_rows import ROWS_MIN, only_figures_differ, stands
from axiom_common.policy.load_times import GBPS, assumed_size_bytes
from axiom_common.policy.occupancy import TENANTS, VICTIMS, held_by_report
from axiom_common.policy.profile import Profile
from axiom_common.policy.registry import LATE_FILTERS
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.policy.scorers.adapter_affinity import (
    SAFE_EVICTION,
    Held,
    Slot,
    adapter_affinity,
)
from axiom_common.policy.scorers.prefix_match import OTHER_TIER
from axiom_common.policy.view import (
    REASON_CODE,
    REASONS,
    ROLE_CODE,
    VACANT,
    Codes,
    Hashes,
    Ints,
    Wanted,
)
from axiom_common.state.spread import ACCOUNTS_MAX, FORGET_MS

_FIGURES = struct.Struct("<16dqB")
_STALE, _UNHEARD, _FLAPPING = 1, 2, 4
_TENANT, _VICTIM, _BUSY = 1, 2, 4
_EXPLAINED_MAX = 1 << 31
_HOME, _FIRST, _LAST, _KEPT_AWAY = range(4)
"""Rings."""

_CUT = prefix.FINE_CHUNK_BYTES, prefix.FINE_TEXT_BYTES, prefix.COARSE_CHUNK_BYTES

_LATE_BIT = {
    Reason.LOAD_FAILED: 1,
    Reason.AGENT_SILENT: 2,
    Reason.QUARANTINED: 4,
    Reason.ENGINE_FAILED: 8,
    Reason.SATURATED: 16,
}
"""What the compiled part knows each late filter by."""
_PICKERS = ("cost", "least-loaded", "round-robin")
"""What it knows pickers by: their places here."""


@dataclass(slots=True)
class _Standing:
    """The columns that say what engines are, by row; read when a kind of request is new."""

    base_model: Hashes
    role: Codes
    refusal: Codes
    max_lora_rank: Ints

    @staticmethod
    def vacant(rows: int) -> _Standing:
        """Of so many rows without engines."""
        return _Standing(
            np.zeros(rows, np.uint64),
            np.zeros(rows, np.int8),
            np.zeros(rows, np.int8),
            np.zeros(rows, np.int64),
        )

    def write(self, at: int, row: EngineRow) -> None:
        """Write one engine's."""
        if at >= len(self.base_model):
            self._grow(2 * at)
        self.base_model[at] = stable_hash(row.base_model)
        self.role[at] = ROLE_CODE[row.role]
        self.refusal[at] = REASON_CODE[row.refusal] if row.refusal is not None else 0
        self.max_lora_rank[at] = row.max_lora_rank

    def codes(self, base_model: int, role: int, rank: int | None, rows: int) -> bytes:
        """`kernel.standing` of the first `rows` rows."""
        first = _Standing(
            self.base_model[:rows], self.role[:rows], self.refusal[:rows], self.max_lora_rank[:rows]
        )
        return kernel.standing(first, Wanted(base_model, role, rank)).tobytes()

    def _grow(self, rows: int) -> None:
        larger = _Standing.vacant(rows)
        for name in ("base_model", "role", "refusal", "max_lora_rank"):
            old = getattr(self, name)
            getattr(larger, name)[: len(old)] = old
            setattr(self, name, getattr(larger, name))


_LATE = tuple((_LATE_BIT[reason], REASON_CODE[reason]) for reason in LATE_FILTERS)
_LOAD_KINDS = (*(LOAD_KIND[held] for held in range(4)), LoadKind.NONE)
"""By `Held`, and where nobody won."""


class _Rules(NamedTuple):
    """What the compiled part is told of the policy; `Rules` in libs/axiom_native says more."""

    standing: Callable[[int, int, int | None, int], bytes]
    rings: tuple[int, ...]
    size_of: Callable[[int], int] = assumed_size_bytes
    decided: type[Decided] = Decided
    roles: tuple[Role, ...] = tuple(ROLE_CODE)
    load_kinds: tuple[LoadKind, ...] = _LOAD_KINDS
    reasons: int = len(REASONS)
    late: tuple[tuple[int, int], ...] = _LATE
    stale: int = REASON_CODE[Reason.STALE_TELEMETRY]
    flapping: int = REASON_CODE[Reason.FLAPPING]
    probe_one_in: int = kernel.PROBE_ONE_IN
    shown_max: int = SHOWN_MAX
    forget_ms: float = FORGET_MS
    accounts_max: int = ACCOUNTS_MAX
    masks_max: int = KEPT_MAX
    other_tier: float = OTHER_TIER
    cut: tuple[int, int, int] = _CUT


class NativeFleet(axiom_native.Decider):
    """`Fleet`, compiled."""

    _standing: _Standing
    _rows: dict[EngineId, tuple[int, EngineRow]]

    def __new__(cls, profiles: Mapping[str, Profile]) -> Self:
        standing = _Standing.vacant(ROWS_MIN)
        self = super().__new__(cls, _Rules(standing.codes, _rings()))
        self._standing, self._rows = standing, {}
        self.set_profiles(profiles)
        return self

    def set_profiles(self, profiles: Mapping[str, Profile]) -> None:
        self.replace_profiles([_knobs(profile) for profile in profiles.values()])

    def set_row(self, row: EngineRow) -> None:
        at, before = self._rows.get(row.engine, (None, None))
        if at is None or before is None or not only_figures_differ(before, row):
            at = self.set_engine(
                row.engine,
                stable_hash(row.engine),
                row.hbm_slots,
                list({one.adapter: _told(one) for one in row.residents}.values()),
                list(row.failures),
                None if row.loads_allowed else list(dict.fromkeys(row.registered)),
            )
        if before is None or stands(before) != stands(row):
            self._standing.write(at, row)
            self.forget_standing()
        self.set_figures(at, _figures(row))
        self._rows[row.engine] = (at, row)

    def remove(self, engine: EngineId) -> None:
        if self._rows.pop(engine, None) is not None:
            at = self.remove_engine(engine)
            assert at is not None
            self._standing.base_model[at] = VACANT

    def explain(
        self,
        query: Query,
        profile: str,
        now_ms: float,
        prompt: Prompt | None = None,
        *,
        after: str = "",
        limit: int | None = None,
    ) -> tuple[Candidate | Refused, ...]:
        limit = _EXPLAINED_MAX if limit is None else limit
        parts, seen = self.judged(query, profile, now_ms, prompt, after, limit)
        wait_cap_ms, worst_us, _ = HEAD.unpack_from(parts)
        return tuple(
            Refused(engine=engine, reason=REASONS[code - 1])
            if code
            else candidate(unpack_one(one, 0)[0], wait_cap_ms, worst_us)
            for engine, code, one in seen
        )


def _knobs(profile: Profile) -> tuple[str, int, float, tuple[float, ...], bool]:
    picker, weights = _PICKERS.index(profile.picker), profile.weight_of_each
    return profile.name, picker, profile.wait_cap_ms, weights, profile.quarantine


def _rings() -> tuple[int, ...]:
    """By `Held` and `Slot`, how far out an engine is. How long its loads take does not matter."""
    pairs = [(held, slot) for held in range(4) for slot in (Slot.BUSY, Slot.IDLE_VICTIM, Slot.FREE)]
    held, slot = (np.array(column, np.int8) for column in zip(*pairs, strict=True))
    time = np.ones(len(pairs))
    scores = adapter_affinity(held, slot, remaining_ms=time, h2d_ms=time, cold_ms=2 * time)
    return tuple(
        _KEPT_AWAY
        if score < 0.0
        else _HOME
        if how > Held.HOST
        else _FIRST
        if score > SAFE_EVICTION
        else _LAST
        for (how, _), score in zip(pairs, scores.tolist(), strict=True)
    )


def _told(one: Residency) -> tuple[EngineAdapter, int, int, float]:
    flags = _TENANT * (one.state in TENANTS) | _VICTIM * (one.state in VICTIMS)
    flags |= _BUSY * bool(one.in_flight)
    return one.adapter, held_by_report(one), flags, one.remaining_ms


def _figures(row: EngineRow) -> bytes:
    link, wait = row.link, row.wait
    return _FIGURES.pack(
        row.prefill_ms_per_token,
        *row.slowdowns_ms,
        row.load_queue_ms,
        link.h2d_fixed_ms,
        link.h2d_gbps * GBPS,
        link.store_fixed_ms,
        link.store_gbps * GBPS,
        row.kv_headroom,
        row.thermal_safety,
        row.latency_health,
        wait.base_ms,
        wait.per_request_ms,
        wait.per_token_ms,
        wait.slowdown_per_request_ms,
        wait.seats,
        _STALE * row.stale | _UNHEARD * row.unheard | _FLAPPING * row.flapping,
    )
