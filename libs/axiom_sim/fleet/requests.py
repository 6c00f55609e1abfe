"""What a simulated fleet is asked: requests and adapters. Values, made once and shared by all runs.

Adapters, engines and regions are numbers here: indexes into the workload's adapters, the layout's
engines and the scenario's regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

BASE_MODEL = -1
"""The adapter of a request for the base model."""


class Unit(NamedTuple):
    """A piece of a prompt that other prompts may begin with as well: `tokens` long, and `key` names
    it and all text before it. Prompts with the same first n keys share the first n pieces."""

    key: int
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request: arrives in `region` at `at_ms`. `prefix` covers the first tokens of the prompt,
    the rest is its own. `output_tokens` are at least 1."""

    number: int
    at_ms: float
    region: int
    adapter: int
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[Unit, ...] = ()


class SimAdapter(NamedTuple):
    """One adapter that requests ask for."""

    number: int
    name: str
    rank: int
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Workload:
    """All that is asked in a run, `requests` in order of time. `duration_ms` is the span in which
    requests arrive; `cut` tells that the scenario would have had more."""

    adapters: Sequence[SimAdapter]
    requests: Sequence[Request]
    duration_ms: float
    cut: bool = False
