"""What a well-formed message must keep beyond its types: sizes, finite numbers, whose engines.

One bad sender must not fill a reader's memory, win a decision with NaN, or write the row of
another node.
"""

from __future__ import annotations

import math
from collections.abc import Sized

from axiom_common.errors import WireError
from axiom_common.model.decision import Decision, Term
from axiom_common.model.engine import EngineRank, EngineState, GpuState
from axiom_common.model.ids import EngineId, NodeId, node_of
from axiom_common.model.outcome import Outcome
from axiom_common.model.plan import Plan
from axiom_common.model.prefix import ANNOUNCED, WITHDRAWN, FactBatch
from axiom_common.state.region_view import NodeBeat

_INFINITE = math.inf
ENGINES_MAX = 64
GPUS_MAX = 64
RESIDENTS_MAX = 1024
REGISTERED_MAX = 2048
FAILURES_MAX = 1024
PLANNED_MAX = 1024
TEXT_MAX = 1024
RANKS_MAX = 64
MIG_MAX = 16
THROTTLE_BITS_MAX = 64
ATTEMPTS_MAX = 16
SHOWN_MAX = 8
ORDER_MAX = 1 << 53
"""Up to here incarnations and sequence numbers are exact in every store, Lua's doubles included."""


def check_order(*numbers: int) -> None:
    """Check incarnations and sequence numbers; WireError otherwise."""
    if min(numbers) < 0 or max(numbers) > ORDER_MAX:
        raise WireError(f"{numbers} are no incarnation and sequence numbers")


def check_beat(beat: NodeBeat) -> None:
    """Check a beat; WireError names what is wrong. Whether its engines and orders fit what is known
    of the node is for the fold to see."""
    check_order(beat.incarnation, beat.seq, beat.base)
    if len(beat.engines) > ENGINES_MAX:
        raise WireError(f"more than {ENGINES_MAX} engines on one node")
    owner = f"{beat.node}."
    for engine, figures, order, ranks in beat.engines:
        if not engine.startswith(owner):
            raise WireError(f"{engine[:80]!r} is no engine of node {beat.node!r}")
        _sane(*figures)
        if order is not None and len(order) > RESIDENTS_MAX:
            raise WireError(f"more than {RESIDENTS_MAX} residents on one engine")
        if ranks:
            _check_ranks(ranks)
    if beat.gpus is not None:
        _check_gpus(beat.gpus)


def check_decisions(decisions: tuple[Decision, ...], weights: tuple[float, ...]) -> None:
    """Check a request's decisions; WireError names what is wrong."""
    _at_most(decisions, ATTEMPTS_MAX, "attempts")
    _check_terms(weights)
    for decision in decisions:
        _at_most(decision.runners_up, SHOWN_MAX, "runners-up")
        winner = () if decision.winner is None else (decision.winner,)
        for one in (*winner, *decision.runners_up):
            _sane(one.cost_ms)
            _check_terms(one.terms_ms)
            if len(one.values) != len(Term) or not _finite(one.composite, *one.values):
                raise WireError(f"scores of {one.engine[:80]!r}")


def check_outcome(outcome: Outcome) -> None:
    """Check what became of a request; WireError names what is wrong."""
    usage, times_ms = outcome.usage, (outcome.ttft_ms, outcome.tpot_ms, outcome.load_ms)
    _sane(outcome.retries, outcome.held_ms, outcome.total_ms, *times_ms)
    _sane(outcome.matched_tokens, *usage)


def check_share(share: float, *ages_ms: float) -> None:
    """Check what share of requests a message stands for, and its ages."""
    if not 0.0 < share <= 1.0:
        raise WireError(f"a share of {share}")
    _sane(*ages_ms)


def _check_terms(values: tuple[float, ...]) -> None:
    if len(values) != len(Term):
        raise WireError(f"{len(values)} values for {len(Term)} terms")
    _sane(*values)


def check_node(node: NodeId, engines: tuple[EngineState, ...], gpus: tuple[GpuState, ...]) -> None:
    """Check one node's engines and GPUs; WireError names what is wrong."""
    _at_most(engines, ENGINES_MAX, "engines on one node")
    if len({e.engine for e in engines}) != len(engines):
        raise WireError("an engine is listed twice")
    for engine in engines:
        if node_of(engine.engine) != node:
            raise WireError(f"{engine.engine[:80]!r} is no engine of node {node!r}")
        _check_engine(engine)
    _check_gpus(gpus)


def check_facts(node: NodeId, engine: EngineId, revision: str, *batches: FactBatch) -> None:
    """Check one engine's facts; WireError names what is wrong."""
    if node_of(engine) != node:
        raise WireError(f"{engine[:80]!r} is no engine of node {node!r}")
    if len(revision) > TEXT_MAX:
        raise WireError(f"a revision is above {TEXT_MAX} characters")
    for batch in batches:
        if len(batch.announced) % ANNOUNCED.size or len(batch.withdrawn) % WITHDRAWN.size:
            raise WireError("a batch of facts does not end with one")


def check_plan(plan: Plan) -> None:
    """Check the size of a plan; WireError otherwise."""
    _at_most(plan.engines, ENGINES_MAX, "engines in one plan")
    for engine in plan.engines:
        _at_most((*engine.load, *engine.unload), PLANNED_MAX, "adapters planned on one engine")


def _check_engine(engine: EngineState) -> None:
    _at_most(engine.residents, RESIDENTS_MAX, "residents on one engine")
    _at_most(engine.registered, REGISTERED_MAX, "registered names on one engine")
    _at_most(engine.failures, FAILURES_MAX, "failures on one engine")
    if max(len(engine.url), len(engine.base_model), len(engine.served_name)) > TEXT_MAX:
        raise WireError(f"a text of an engine is above {TEXT_MAX} characters")
    limits, link = engine.limits, engine.link
    _sane(*engine.figures)
    _check_ranks(engine.ranks)
    _sane(link.h2d_fixed_ms, link.store_fixed_ms, limits.kv_tokens)
    _sane(limits.max_num_seqs, limits.hbm_slots, limits.host_slots, limits.max_lora_rank)
    if not (link.h2d_gbps > 0 and link.store_gbps > 0):
        raise WireError("a link's rate must be positive")
    if len({resident.adapter for resident in engine.residents}) != len(engine.residents):
        raise WireError("an adapter is listed twice on one engine")
    for resident in engine.residents:
        _sane(resident.in_flight, resident.remaining_ms, resident.age_ms)
    _sane(*(failure.retry_in_ms for failure in engine.failures))


def _check_ranks(ranks: tuple[EngineRank, ...]) -> None:
    _at_most(ranks, RANKS_MAX, "ranks of one engine")
    for rank in ranks:
        _sane(*rank)


def _check_gpus(gpus: tuple[GpuState, ...]) -> None:
    _at_most(gpus, GPUS_MAX, "GPUs on one node")
    for gpu in gpus:
        _check_gpu(gpu)


def _check_gpu(gpu: GpuState) -> None:
    _at_most(gpu.mig, MIG_MAX, "MIG instances of one GPU")
    _at_most(gpu.throttled_ms, THROTTLE_BITS_MAX, "throttle reasons of one GPU")
    _sane(gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.utilization, gpu.memory_utilization)
    _sane(gpu.power_w, gpu.power_limit_w, gpu.sm_clock_mhz, gpu.sm_clock_max_mhz)
    _sane(gpu.memory_clock_mhz, gpu.throttle, gpu.ecc_corrected, gpu.ecc_uncorrected)
    _sane(gpu.xid, gpu.xid_age_ms, gpu.pcie_rx_bytes_per_s, gpu.pcie_tx_bytes_per_s)
    _sane(gpu.nvlink_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s)
    for bit_and_ms in gpu.throttled_ms:
        _sane(*bit_and_ms)
    if gpu.temperature_c is not None and not math.isfinite(gpu.temperature_c):
        raise WireError("a temperature is not finite")


def _sane(*values: float | None) -> None:
    """Known numbers are finite and not negative."""
    for value in values:
        if value is not None and not 0.0 <= value < _INFINITE:
            raise WireError(f"{value!r} is not a finite number of at least 0")


def _finite(*values: float) -> bool:
    return all(map(math.isfinite, values))


def _at_most(items: Sized, most: int, what: str) -> None:
    if len(items) > most:
        raise WireError(f"more than {most} {what}")
