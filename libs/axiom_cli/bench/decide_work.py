"""What `axiom bench decide` measures of one kind of fleet, in a process: prints one JSON object.

`python -m axiom_cli.bench.decide_work native|python ENGINES ADAPTERS CHUNKS`. Each call is timed by
itself, on the wall, from Python to Python, with the booking that it makes; the clock's own time is
taken off. The request is released at once, which is timed apart.

The large fleet: each engine has `SLOTS` adapters in HBM and as many in host RAM, so that all are
somewhere. Asked are `ASKED` prompts in turn, for any adapter or, each fourth, for the base model;
all begin alike, and every engine holds that beginning; the whole of each lies on one engine in a
hundred and half of it on as many. What else is in the index nobody asks for.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from axiom_cli.bench.decide import NATIVE, PROMPT_BYTES
from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.decision import Query
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.model.prefix import ANNOUNCED, linked
from axiom_common.policy.cohort import Cohort
from axiom_common.policy.decided import Decided
from axiom_common.policy.evidence import Evidence
from axiom_common.policy.fleet import Fleet, Prompt
from axiom_common.policy.fleet_twin import FleetTwin
from axiom_common.policy.profile import AXIOM, BUILT_IN
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.policy.rules import engine_row
from axiom_common.runtime.native import native_fleet_or_twin, native_index_or_twin
from axiom_common.state.prefix_index import HBM, PrefixIndex, PrefixIndexTwin

SLOTS = 16
ASKED = 64
SMALL_ENGINES = 4
SMALL_BYTES = 200
SHARED_BYTES = 8 << 10
BYTES_A_TOKEN = 4
TOKENS_A_CHUNK = 64
SEED = 11
BASE_MODEL = "base"
TIMED = {NATIVE: 20_000, "python": 1_000}
"""Decisions of each case."""
WARM = 200

Times = dict[str, float]


def measure(kind: str, engines: int, adapters: int, chunks: int, timed: int) -> dict[str, Any]:
    """All figures of one kind of fleet."""
    rng = random.Random(7)
    small = _fleet(kind, SMALL_ENGINES, SMALL_ENGINES * SLOTS)
    asked = list(_queries(rng, SMALL_ENGINES * SLOTS, SMALL_BYTES))
    index = _index(kind, 1 << 16)
    texts = [rng.randbytes(SMALL_BYTES) for _ in range(ASKED)]
    small_us, release_us = _timed(small, asked, [Prompt(index, SEED, t) for t in texts], timed)
    large = _fleet(kind, engines, adapters)
    index = _index(kind, 2 * chunks)
    prompts = [Prompt(index, SEED, text) for text in _stored(rng, large, index, engines, chunks)]
    asked = list(_queries(rng, adapters, PROMPT_BYTES))
    return {
        "chunks": index.entries,
        "small_us": small_us["p50"],
        "release_us": release_us["p50"],
        "decide_us": _timed(large, asked, prompts, timed)[0],
        "decide_us_no_prompt": _timed(large, asked, [None], timed)[0],
    }


def _fleet(kind: str, engines: int, adapters: int) -> Fleet:
    made: Fleet = native_fleet_or_twin(BUILT_IN) if kind == NATIVE else FleetTwin(BUILT_IN)
    for number in range(engines):
        held = [EngineAdapter(f"a{(number * SLOTS + n) % adapters}~1") for n in range(2 * SLOTS)]
        state = EngineState(
            engine=_engine(number),
            url="",
            base_model=BASE_MODEL,
            served_name=BASE_MODEL,
            status=EngineStatus.READY,
            limits=EngineLimits(hbm_slots=SLOTS, host_slots=2 * SLOTS, max_lora_rank=64),
            residents=tuple(
                Residency(
                    adapter=adapter,
                    state=AdapterState.RESIDENT if n < SLOTS else AdapterState.HOST,
                    source=ResidencySource.EXTENSION,
                    in_flight=0,
                )
                for n, adapter in enumerate(dict.fromkeys(held))
            ),
        )
        made.set_row(engine_row(state, Evidence(heard_age_ms=0.0), Cohort(), 0.0))
    return made


def _engine(number: int) -> EngineId:
    return EngineId(f"node-{number:04}.engine-0")


def _index(kind: str, entries_max: int) -> PrefixIndex:
    return native_index_or_twin(entries_max) if kind == NATIVE else PrefixIndexTwin(entries_max)


def _queries(rng: random.Random, adapters: int, prompt_bytes: int) -> Iterator[Query]:
    for number in range(4 * ASKED):
        adapter = EngineAdapter(f"a{rng.randrange(adapters)}~1") if number % 4 else BASE
        yield Query(
            base_model=BASE_MODEL,
            adapter=adapter,
            rank=16 if adapter else 0,
            size_bytes=80 << 20 if adapter else 0,
            prompt_tokens=prompt_bytes // BYTES_A_TOKEN,
            affinity_hash=stable_hash(adapter),
            request_hash=rng.getrandbits(64),
        )


def _stored(
    rng: random.Random, fleet: Fleet, index: PrefixIndex, engines: int, chunks: int
) -> list[bytes]:
    """Fill the index; the texts that are asked for."""
    shared = rng.randbytes(SHARED_BYTES)
    numbers = [number for n in range(engines) if (number := fleet.number(_engine(n))) is not None]
    texts = [shared + rng.randbytes(PROMPT_BYTES - SHARED_BYTES) for _ in range(ASKED)]
    chains = [linked(SEED, text) for text in texts]
    beginning = len(linked(SEED, shared))
    for number in numbers:
        index.apply(number, _facts(chains[0][:beginning]), b"", HBM)
    for chain in chains:
        for share in (1, 2):
            for number in rng.sample(numbers, max(1, engines // 100)):
                index.apply(number, _facts(chain[: len(chain) // share]), b"", HBM)
    length = len(chains[0])
    for _ in range((chunks - index.entries) // length):
        others = memoryview(rng.randbytes(8 * length)).cast("Q")
        index.apply(rng.choice(numbers), _facts(others), b"", HBM)
    return texts


def _facts(links: Any) -> bytes:
    return b"".join(
        ANNOUNCED.pack(link, TOKENS_A_CHUNK * count) for count, link in enumerate(links, start=1)
    )


def _timed(fleet: Fleet, asked: list[Query], prompts: list[Any], timed: int) -> tuple[Times, Times]:
    """Of decisions, and of their releases; us."""
    decide, release, clock = fleet.decide, fleet.release, time.perf_counter_ns
    decided_ns, released_ns = [], []
    gc.collect()
    gc.freeze()
    for number in range(WARM + timed):
        query, prompt = asked[number % len(asked)], prompts[number % len(prompts)]
        began = clock()
        decided = decide(query, AXIOM.name, 0.0, prompt)
        done = clock()
        release(decided.booking)
        ended = clock()
        _check(decided)
        if number >= WARM:
            decided_ns.append(done - began)
            released_ns.append(ended - done)
    idle_ns = _least_of_clock(clock)
    return _quantiles(decided_ns, idle_ns), _quantiles(released_ns, idle_ns)


def _check(decided: Decided) -> None:
    if decided.engine is None:
        raise RuntimeError(f"nobody could serve: {decided.refusals}")


def _least_of_clock(clock: Callable[[], int]) -> int:
    return min(-clock() + clock() for _ in range(1_000))


def _quantiles(times_ns: list[int], idle_ns: int) -> Times:
    ordered = sorted(times_ns)
    return {
        name: max(0, ordered[len(ordered) * share // 100] - idle_ns) / 1e3
        for name, share in (("p50", 50), ("p99", 99))
    }


if __name__ == "__main__":
    kind, *sizes = sys.argv[1:]
    engines, adapters, chunks = map(int, sizes)
    print(json.dumps(measure(kind, engines, adapters, chunks, TIMED[kind])))
