"""One engine in the shape of a report, whole or with less of it where a report gets too large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from axiom_common.model.adapter import AdapterState, Residency, is_managed
from axiom_common.model.engine import EngineState, LoadFailure
from axiom_common.model.ids import EngineAdapter
from axiom_common.model.reason import Reason
from axiom_common.wire.bounds import REGISTERED_MAX, RESIDENTS_MAX
from axiom_node_agent.state import EngineBook

REDUCTIONS = 3
OWN_NAMES_MAX = 64


def engine_state(book: EngineBook, now_ms: float) -> EngineState:
    """What is known of the engine now. Its link model is the declared one, corrected.

    Of more adapters than a report may hold, the most recently used or listed ones are told.
    """
    rests = tuple(_rests_ms(book, now_ms))
    activations = (until_ms - now_ms for until_ms in book.activating.values())
    latencies, rates = book.rates.latencies(), book.rates.rates()
    state = replace(
        book.declared,
        base_model=book.base_model,
        served_name=book.served_name,
        status=book.status,
        limits=replace(
            book.declared.limits,
            hbm_slots=book.lru.hbm_slots,
            host_slots=book.lru.host_capacity,
            kv_tokens=book.sample.kv_tokens if book.sample else None,
        ),
        link=book.correction.corrected(book.declared.link),
        ttft_ms=latencies.ttft_ms,
        tpot_ms=latencies.tpot_ms,
        prefill_ms_per_token=latencies.prefill_ms_per_token,
        preemptions_per_s=rates.preemptions_per_s,
        rejections_per_s=rates.rejections_per_s,
        prefix_hit_share=rates.prefix_hit_share,
        load_queue_ms=max((0.0, *(rest_ms for _, rest_ms in rests), *activations)),
        residents=(*_copies(book, now_ms), *_loads(book, rests))[-RESIDENTS_MAX:],
        registered=tuple(book.registered)[-REGISTERED_MAX:],
        failures=tuple(_failures(book, now_ms)),
    )
    if book.sample is None:
        return state
    return replace(
        state,
        sample=book.samples,
        sample_age_ms=max(0.0, now_ms - book.sampled_ms),
        running=book.sample.running,
        waiting=book.sample.waiting,
        deferred=book.sample.deferred,
        kv_usage=book.sample.kv_usage,
        ranks=book.sample.ranks,
    )


def reduced(state: EngineState, reduction: int) -> EngineState:
    """What a report too large to send tells of an engine instead.

    | reduction | left out |
    | --- | --- |
    | 1 | names of Axiom's form, which no client asks for; of people's own all but the youngest 64 |
    | 2 | as well, failures and what is held in host RAM only |
    | 3 | as well, all that is held |
    """
    if reduction <= 0:
        return state
    own = tuple(name for name in state.registered if not is_managed(name))
    state = replace(state, registered=own[-OWN_NAMES_MAX:])
    if reduction == 1:
        return state
    held = (r for r in state.residents if r.state is not AdapterState.HOST)
    return replace(state, failures=(), residents=tuple(held) if reduction == 2 else ())


def _rests_ms(book: EngineBook, now_ms: float) -> Iterator[tuple[EngineAdapter, float]]:
    """When each load under way is predicted to be done, counted from now: one after another. One
    that is overdue is taken to need as long again as it is late: it may hang."""
    done_ms = 0.0
    for name, load in book.loads.items():
        elapsed_ms = 0.0 if load.started_ms is None else now_ms - load.started_ms
        done_ms += abs(load.declared_ms * book.correction.factor - elapsed_ms)
        yield name, done_ms


def _loads(book: EngineBook, rests: tuple[tuple[EngineAdapter, float], ...]) -> Iterator[Residency]:
    for name, remaining_ms in rests:
        yield Residency(
            adapter=name,
            state=book.lives[name].state,
            source=book.source,
            in_flight=book.foreign.counts.get(name, 0),
            remaining_ms=remaining_ms,
        )


def _copies(book: EngineBook, now_ms: float) -> Iterator[Residency]:
    """What the engine holds, oldest first. A nameless copy is told while its name is not back, and
    what a request is about to bring in as loading."""
    named = {copy.adapter for copy in book.lru.copies if copy.named}
    told: set[EngineAdapter] = set()
    for copy in book.lru.copies:
        name = copy.adapter
        life = book.lives.get(name)
        if life is None or life.on_its_way or life.state is AdapterState.FAILED:
            continue
        if name in told or (not copy.named and name in named):
            continue
        told.add(name)
        rest_ms = max(0.0, book.activating.get(name, 0.0) - now_ms)
        arrives = rest_ms > 0 and life.state is AdapterState.RESIDENT
        yield Residency(
            adapter=name,
            state=AdapterState.LOADING if arrives else life.state,
            source=book.source,
            in_flight=book.foreign.counts.get(name, 0),
            remaining_ms=rest_ms if arrives else 0.0,
            age_ms=max(0.0, now_ms - copy.known_ms),
        )


def _failures(book: EngineBook, now_ms: float) -> Iterator[LoadFailure]:
    for name in sorted(book.lives):
        life = book.lives[name]
        retry_in_ms = life.retry_in_ms(now_ms)
        if retry_in_ms > 0:
            reason = life.reason or Reason.LOAD_FAILED
            yield LoadFailure(adapter=name, reason=reason, retry_in_ms=retry_in_ms)
