"""Which beginnings prompts share, as units.

Keys of different kinds never meet: the kind stands in their upper bits. A prompt's units never
cover more than the prompt.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from axiom_sim.fleet.requests import BASE_MODEL, Unit
from axiom_sim.scenario.resolved import Phase, Resolved
from axiom_sim.scenario.traffic import Sessions
from axiom_sim.workload.arrivals import Arrived
from axiom_sim.workload.chance import chance
from axiom_sim.workload.lengths import draw_lengths
from axiom_sim.workload.popularity import shared_block
from axiom_sim.workload.traces import BLOCK_TOKENS, mooncake

Ints = NDArray[np.int64]
Units = tuple[Unit, ...]

_SYSTEM_UNIT_TOKENS = 256
"""System prompts are cut finer than documents: many prompts are shorter than they are."""
_LAP = 1 << 20
"""Above every id of Mooncake's trace."""
_SYSTEM = 1 << 50
_DOCUMENT = 2 << 50
_TURN = 3 << 50


class Prompts(NamedTuple):
    """Of each request: its prompt's length, and the units that it begins with."""

    tokens: list[int]
    prefixes: list[Units]


def draw_prompts(
    resolved: Resolved, phase: Phase, arrived: Arrived, adapters: Ints, tokens: Ints, seed: int
) -> Prompts:
    """Prompts of `tokens`, except in sessions, whose documents and turns say how long they are."""
    prefixes = phase.prefixes
    if prefixes.mooncake:
        return _mooncake(arrived.row, tokens)
    if prefixes.system is not None:
        return _system(prefixes.system.tokens, adapters, tokens)
    if prefixes.sessions is not None:
        rng = chance(seed, "sessions", phase.number)
        return _sessions(prefixes.sessions, resolved, phase, arrived, adapters, rng)
    return Prompts(tokens.tolist(), [()] * len(tokens))


@lru_cache(maxsize=2)
def _trace_units(lap: int) -> list[Units]:
    """The units of each row. In another lap nobody asks what was asked before, but for the block
    that all begin with."""
    shared = shared_block()
    known: dict[tuple[int, int], Unit] = {}
    rows = []
    for row in mooncake():
        units = []
        left = row.prompt_tokens
        for block in row.blocks:
            size = min(BLOCK_TOKENS, left)
            left -= size
            key = block if block == shared else block + lap * _LAP
            units.append(known.setdefault((key, size), Unit(key, size)))
        rows.append(tuple(units))
    return rows


def _mooncake(rows: Ints, tokens: Ints) -> Prompts:
    laps, places = np.divmod(rows, len(mooncake()))
    lengths = tokens.tolist()
    prefixes = []
    for lap, place, length in zip(laps.tolist(), places.tolist(), lengths, strict=True):
        units = _trace_units(lap)[place]
        full = len(units) * BLOCK_TOKENS
        prefixes.append(units if full <= length else _within(units, length))
    return Prompts(lengths, prefixes)


def _within(units: Units, tokens: int) -> Units:
    """The first units that lie within so many tokens."""
    left = tokens
    for i, unit in enumerate(units):
        left -= unit.tokens
        if left < 0:
            return units[:i]
    return units


def _system(system_tokens: int, adapters: Ints, tokens: Ints) -> Prompts:
    """A prompt shorter than its system prompt begins with what it holds of it."""
    pieces = _cut(system_tokens, _SYSTEM_UNIT_TOKENS)
    ends = np.cumsum(pieces)
    counts = np.searchsorted(ends, tokens, side="right").tolist()
    known: dict[tuple[int, int], Units] = {}
    prefixes = []
    for adapter, count in zip(adapters.tolist(), counts, strict=True):
        units = known.get((adapter, count))
        if units is None:
            first = _SYSTEM + ((adapter - BASE_MODEL << 18 | system_tokens) << 10)
            units = tuple(Unit(first + i, pieces[i]) for i in range(count))
            known[adapter, count] = units
        prefixes.append(units)
    return Prompts(tokens.tolist(), prefixes)


def _cut(tokens: int, most: int) -> list[int]:
    """Pieces of at most `most`, as equal as can be."""
    count = -(-tokens // most)
    return [tokens * (i + 1) // count - tokens * i // count for i in range(count)]


def _sessions(
    sessions: Sessions,
    resolved: Resolved,
    phase: Phase,
    arrived: Arrived,
    adapters: Ints,
    rng: Generator,
) -> Prompts:
    """Each request is the next turn of a conversation on a document that it draws.

    A document is shared by all; who converses on it does so in one region and with one adapter, and
    when its turns are through the next conversation begins. Turn k's prompt (from 0) is the
    document and k + 1 times the growth.
    """
    grown = sessions.turns * sessions.growth_tokens
    rows = np.arange(sessions.documents)
    # A document leaves room for its conversation and an answer.
    lengths, _ = draw_lengths(phase.lengths.parts, rows, resolved.kv_tokens - grown, rng)
    documents = [
        _units(_DOCUMENT + (phase.number * 1_000_000 + i) * _LAP, size)
        for i, size in enumerate(lengths.tolist())
    ]
    chosen = rng.integers(sessions.documents, size=len(adapters)).tolist()
    open_talks: dict[tuple[int, int, int], tuple[int, Units]] = {}
    next_key = _TURN + phase.number * (1 << 44)
    tokens, prefixes = [], []
    for who in zip(arrived.region.tolist(), adapters.tolist(), chosen, strict=True):
        turn, units = open_talks.get(who, (0, documents[who[2]]))
        said = _units(next_key, sessions.growth_tokens)
        next_key += len(said)
        units = (*units, *said)
        tokens.append(int(lengths[who[2]]) + (turn + 1) * sessions.growth_tokens)
        prefixes.append(units)
        if turn + 1 < sessions.turns:
            open_talks[who] = (turn + 1, units)
        else:
            open_talks.pop(who, None)
    return Prompts(tokens, prefixes)


def _units(first_key: int, tokens: int) -> Units:
    return tuple(Unit(first_key + i, size) for i, size in enumerate(_cut(tokens, BLOCK_TOKENS)))
