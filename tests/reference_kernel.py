"""A decision row by row, in plain Python: slow, and as the rules are told. The kernel must agree.

Nothing is shared with it but the codes and the constants.
"""

from __future__ import annotations

from math import inf

from axiom_common.model.engine import Role
from axiom_common.model.reason import Reason
from axiom_common.policy.kernel import PROBE_ONE_IN
from axiom_common.policy.scorers.adapter_affinity import Held, Slot
from axiom_common.policy.view import REASON_CODE, ROLE_CODE, VACANT_CODE, Ask, FleetView

MASK = (1 << 64) - 1


class Row:
    """One row of a view as the ask sees it."""

    def __init__(self, view: FleetView, ask: Ask, size_bytes: int, at: int) -> None:
        self.view, self.ask, self.size_bytes, self.at = view, ask, size_bytes, at
        self.held, self.rest_ms = Held.NOT, 0.0
        if ask.holders is None:
            self.held = Held.RESIDENT
        for i, row in enumerate([] if ask.holders is None else ask.holders.rows.tolist()):
            if row == at:
                self.held = int(ask.holders.held[i])
                rest_ms = float(ask.holders.ready_at_ms[i]) - ask.now_ms
                self.rest_ms = max(float(ask.holders.remaining_ms[i]), rest_ms)

    def get(self, column: str) -> float:
        return getattr(self.view, column)[self.at].item()

    @property
    def transfer_ms(self) -> float:
        return self.get("h2d_fixed_ms") + self.size_bytes / self.get("h2d_bytes_per_ms")

    @property
    def h2d_ms(self) -> float:
        booked_ms = self.get("loads_done_at_ms") - self.ask.now_ms
        return max(self.get("load_queue_ms"), booked_ms) + self.transfer_ms

    @property
    def cold_ms(self) -> float:
        fetch_ms = self.get("store_fixed_ms") + self.size_bytes / self.get("store_bytes_per_ms")
        return fetch_ms + self.h2d_ms

    @property
    def load_ms(self) -> float:
        if self.held == Held.RESIDENT:
            return 0.0
        if self.held == Held.LOADING:
            return self.rest_ms
        return self.h2d_ms if self.held == Held.HOST else self.cold_ms

    @property
    def affinity(self) -> float:
        if self.held == Held.RESIDENT:
            return 1.0
        host = min(max(1.0 - self.h2d_ms / self.cold_ms, 0.5), 0.95)
        if self.held == Held.LOADING:
            return min(max(1.0 - self.rest_ms / self.cold_ms, host), 0.99)
        if self.get("slot") == Slot.BUSY:
            return -1.0
        if self.held == Held.HOST:
            return host
        return 0.25 if self.get("slot") == Slot.FREE else 0.0

    @property
    def cost_us(self) -> int:
        stalls = self.held < Held.LOADING
        stall_ms = self.transfer_ms * self.get("in_flight") if stalls else 0.0
        terms_ms = self.view.terms_ms[:, self.at].tolist()
        terms_ms[1] *= self.ask.prompt_tokens
        terms_ms[2] = self.load_ms + stall_ms
        cost_ms = 0.0
        for weight, term_ms in zip(self.ask.weights[:, 0].tolist(), terms_ms, strict=True):
            cost_ms += weight * term_ms
        return round(cost_ms * 1000.0)

    @property
    def refusal(self) -> int:
        """Its first reason, without the soft filter."""
        ask, at = self.ask, self.at
        wanted, is_adapter = ask.wanted, ask.holders is not None
        rank_max = self.get("max_lora_rank")
        if not self.get("base_model"):
            return VACANT_CODE
        reasons = {
            Reason.BASE_MISMATCH: self.get("base_model") != wanted.base_model,
            Reason.ROLE_MISMATCH: self.get("role") not in (wanted.role, ROLE_CODE[Role.BOTH]),
            "engine": self.get("refusal"),
            Reason.LORA_DISABLED: is_adapter and rank_max == 0,
            Reason.RANK_TOO_LARGE: is_adapter and rank_max < wanted.rank,
            Reason.LOAD_FAILED: ask.failed is not None and ask.failed[at],
            Reason.AGENT_SILENT: ask.closed is not None
            and ask.closed[at]
            and self.held < Held.RESIDENT,
            Reason.QUARANTINED: is_adapter and ask.profile.quarantine and self.affinity < 0,
            Reason.ENGINE_FAILED: ask.excluded is not None and ask.excluded[at],
            Reason.SATURATED: self.get("wait_ms") >= ask.profile.wait_cap_ms,
        }
        first = next((reason for reason, stands in reasons.items() if stands), None)
        if first is None:
            return 0
        return int(self.get("refusal")) if first == "engine" else REASON_CODE[Reason(first)]


def rendezvous(identity: int, key: int) -> int:
    mixed = identity ^ (key & MASK)
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def reference_choice(
    view: FleetView, ask: Ask, size_bytes: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Refusals of all rows; the rows that could win, best first; their costs; all other candidates,
    ring by ring, best first."""
    rows = [Row(view, ask, size_bytes, at) for at in range(len(view.identity))]
    refusals = [row.refusal for row in rows]
    probes = ask.request_hash % PROBE_ONE_IN == 0
    soft = {"unheard": Reason.STALE_TELEMETRY, "stale": Reason.STALE_TELEMETRY}
    soft |= {"flapping": Reason.FLAPPING}
    for column, reason in list(soft.items())[probes:]:
        left = [row.at for row in rows if not refusals[row.at]]
        if any(not rows[at].get(column) for at in left):
            for at in left:
                if rows[at].get(column):
                    refusals[at] = REASON_CODE[reason]
    candidates = [row for row in rows if not refusals[row.at]]
    best = ranked(contenders(candidates, ask, probes), ask)
    others = [row for row in candidates if row not in best]
    following: list[Row] = []
    for ring in rings(others, ask):
        following += ranked([row for row in ring if row not in following], ask)
    return (
        refusals,
        [row.at for row in best],
        [row.cost_us for row in best],
        [row.at for row in following],
    )


def rings(rows: list[Row], ask: Ask) -> list[list[Row]]:
    """From the nearest to all."""
    if not ask.profile.quarantine:
        return [rows]
    home = [row for row in rows if row.held >= Held.LOADING]
    return [home, [row for row in rows if row.affinity > 0.0], rows]


def contenders(candidates: list[Row], ask: Ask, probes: bool) -> list[Row]:
    unheard = [row for row in candidates if row.get("unheard")]
    if probes and unheard:
        return unheard
    if not ask.profile.quarantine:
        return candidates
    for ring in rings(candidates, ask)[:-1]:
        far_ms = min((row.load_ms for row in candidates if row not in ring), default=inf)
        delay_ms = min((row.get("delay_ms") for row in ring), default=inf)
        is_worth_it = far_ms < inf and (not ring or (delay_ms > far_ms and ask.waited_ms >= far_ms))
        if not is_worth_it:
            return ring
    return candidates


def ranked(rows: list[Row], ask: Ask) -> list[Row]:
    def identity(row: Row) -> int:
        return int(row.get("identity"))

    if ask.profile.picker == "round-robin":
        return sorted(rows, key=lambda row: (identity(row) <= ask.turn, identity(row)))
    if ask.profile.picker == "least-loaded":
        return sorted(
            rows,
            key=lambda r: (r.get("in_flight"), -rendezvous(identity(r), ask.request_hash)),
        )
    return sorted(rows, key=lambda r: (r.cost_us, -rendezvous(identity(r), ask.affinity_hash)))
