"""Dynamo's index through its Python binding, on the work of `axiom bench index`.

Run by the Python of the peers' folder, which has no Axiom: `python index_dynamo.py BLOCKS`. Every
call goes to the tree's own thread and back, and events are JSON: what a Python caller pays.
"""

from __future__ import annotations

import importlib
import json
import random
import statistics
import sys
import time
from typing import Any

CHAIN = 512
MESSAGE = 32
WORKERS = 8
LOOK_UPS = 1_000


def measure(blocks: int) -> dict[str, float]:
    """Look-up on the wall, median; storing by the CPU of all threads."""
    tree: Any = importlib.import_module("dynamo.llm").RadixTree()
    rng = random.Random(5)
    chains = [[rng.getrandbits(63) for _ in range(CHAIN)] for _ in range(blocks // CHAIN)]
    events = [event for number, chain in enumerate(chains) for event in _events(number, chain)]
    began = time.process_time_ns()
    for worker, event in events:
        tree.apply_event(worker, event)
    found = tree.find_matches(chains[0]).scores
    store_ns = (time.process_time_ns() - began) / (len(chains) * CHAIN)
    if max(found.values()) != CHAIN:
        raise SystemExit("the tree does not hold what it was told")
    took = []
    for _ in range(LOOK_UPS):
        chain = rng.choice(chains)
        began = time.perf_counter_ns()
        tree.find_matches(chain)
        took.append((time.perf_counter_ns() - began) / 1e3)
    return {"lookup_us": statistics.median(took), "store_ns": store_ns}


def _events(number: int, chain: list[int]) -> list[tuple[int, bytes]]:
    parent = None
    events = []
    for at in range(0, CHAIN, MESSAGE):
        blocks = [{"block_hash": h, "tokens_hash": h} for h in chain[at : at + MESSAGE]]
        data = {"stored": {"parent_hash": parent, "blocks": blocks}}
        told = {"event_id": number * CHAIN + at, "data": data}
        events.append((number % WORKERS, json.dumps(told).encode()))
        parent = chain[at + MESSAGE - 1]
    return events


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
