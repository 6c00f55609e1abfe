"""What `axiom bench index` measures of one index, in a process of its own: prints one JSON object.

`python -m axiom_cli.bench.index_work native|python CHUNKS`. Look-ups are timed on the wall in
groups of `GROUP`, and the group in the middle counts; storing and withdrawing by the process's CPU.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from axiom_common.model.prefix import ANNOUNCED, WITHDRAWN
from axiom_common.runtime.native import native_index_or_twin
from axiom_common.state.prefix_index import ANY_TIER, HBM, PrefixIndex, PrefixIndexTwin

CHAIN = 512
ENGINES = 8
MANY_ENGINES = 1024
GROUP = 100
PASSES = 5
SMALL, LARGE = 32, 512
"""Chunks a message."""
KINDS: dict[str, Callable[[int], PrefixIndex]] = {
    "native": native_index_or_twin,
    "python": PrefixIndexTwin,
}
TOKENS_A_CHUNK = 64
PAGE = 4096
_WIDTH = WITHDRAWN.size

Messages = list[tuple[int, bytes]]
"""(engine, buffer)."""


def measure(kind: str, chunks: int) -> dict[str, Any]:
    """All figures of one index."""
    rng = random.Random(5)
    make = KINDS[kind]
    chains = [rng.randbytes(CHAIN * _WIDTH) for _ in range(chunks // CHAIN)]
    chunks = len(chains) * CHAIN
    figures = _stored(make, chains, chunks, rng)
    index = make(4 * chunks)
    figures["store_ns_512"] = _cpu_ns(_announcements(chains, LARGE), index, chunks)
    figures["withdraw_ns"] = _withdraw_ns(chains, index, chunks)
    figures["lookup_us_1024_engines"] = _many_engines(make, rng)
    return figures


def _stored(
    make: Callable[[int], PrefixIndex], chains: list[bytes], chunks: int, rng: random.Random
) -> dict[str, Any]:
    """Figures of an index that is filled, asked, filled further and left by all."""
    messages = _announcements(chains, SMALL)
    further = [_of_engines(messages, step) for step in range(1, ENGINES)]
    asked = rng.sample(chains, len(chains))
    middle = CHAIN // 2 * _WIDTH
    half = [chain[:middle] + rng.randbytes(middle) for chain in asked]
    miss = [rng.randbytes(_WIDTH) + chain[_WIDTH:] for chain in asked]
    figures: dict[str, Any] = {}
    gc.collect()
    gc.freeze()
    start = _rss()
    index = make(4 * chunks)
    figures["store_ns_32"] = _cpu_ns(messages, index, chunks)
    first = _rss()
    figures["lookup_us"] = _lookup_us(index, asked)
    figures["lookup_us_half"] = _lookup_us(index, half)
    figures["lookup_us_miss"] = _lookup_us(index, miss)
    before = _rss()
    for step in further:
        figures["store_ns_further"] = _cpu_ns(step, index, chunks)
    full = _rss()
    for engine in range(ENGINES):
        index.clear(engine)
    figures["bytes_per_first_holder"] = (first - start) / chunks
    figures["bytes_per_further_holder"] = (full - before) / chunks / (ENGINES - 1)
    figures["rss_after_all_left_share"] = _rss() / start
    figures["rss_kept_share"] = (_rss() - start) / (full - start)
    return figures


def _many_engines(make: Callable[[int], PrefixIndex], rng: random.Random) -> dict[str, float]:
    chain = rng.randbytes(MANY_ENGINES * _WIDTH)
    told = _announced(chain)
    whole, stairs = make(1 << 20), make(1 << 20)
    for engine in range(MANY_ENGINES):
        whole.apply(engine, told[: CHAIN * ANNOUNCED.size], b"", HBM)
        stairs.apply(engine, told[: (engine + 1) * ANNOUNCED.size], b"", HBM)
    return {
        "all": _lookup_us(whole, [chain[: CHAIN * _WIDTH]] * GROUP * PASSES),
        "staircase": _lookup_us(stairs, [chain] * GROUP),
    }


def _announced(chain: bytes) -> bytes:
    hashes = (chunk for (chunk,) in WITHDRAWN.iter_unpack(chain))
    return b"".join(ANNOUNCED.pack(h, TOKENS_A_CHUNK * n) for n, h in enumerate(hashes, start=1))


def _announcements(chains: list[bytes], size: int) -> Messages:
    cut = size * ANNOUNCED.size
    told = [_announced(chain) for chain in chains]
    return [
        (number % ENGINES, chain[at : at + cut])
        for number, chain in enumerate(told)
        for at in range(0, len(chain), cut)
    ]


def _of_engines(messages: Messages, step: int) -> Messages:
    return [((engine + step) % ENGINES, message) for engine, message in messages]


def _cpu_ns(messages: Messages, index: PrefixIndex, chunks: int) -> float:
    began = time.process_time_ns()
    for engine, message in messages:
        index.apply(engine, message, b"", HBM)
    return (time.process_time_ns() - began) / chunks


def _withdraw_ns(chains: list[bytes], index: PrefixIndex, chunks: int) -> float:
    cut = SMALL * _WIDTH
    gone = [
        (number % ENGINES, chain[at : at + cut])
        for number, chain in enumerate(chains)
        for at in range(len(chain) - cut, -1, -cut)
    ]
    began = time.process_time_ns()
    for engine, message in gone:
        index.apply(engine, b"", message, ANY_TIER)
    return (time.process_time_ns() - began) / chunks


def _lookup_us(index: PrefixIndex, asked: Sequence[bytes]) -> float:
    lookup, clock = index.lookup, time.perf_counter_ns
    groups = []
    for _ in range(PASSES):
        for at in range(0, len(asked) - GROUP + 1, GROUP):
            group = asked[at : at + GROUP]
            began = clock()
            for chain in group:
                lookup(chain)
            groups.append((clock() - began) / GROUP / 1e3)
    return statistics.median(groups)


def _rss() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
