"""One request on its way through the gateway."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import xxhash

from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.fleet import Prompt
from axiom_common.ports.tracing import Span
from axiom_common.runtime.tracing import NO_SPAN
from axiom_gateway.asgi import Exchange
from axiom_gateway.catalog import Target
from axiom_gateway.decisions import DecisionRecord
from axiom_gateway.openai_requests import ParsedRequest
from axiom_gateway.proxy import Try

PAUSE_MS_MIN = 25.0
"""Before agents that had no idle slot are asked again the first time."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One request on its way. `failed` engines are left out for good, `refused` for a while.
    `prompt`: its text, where that is known.

    `decided`: each decision that was kept. `tries` went to an engine; `engine`, `last`: of the last
    one. It ended, with `error` for its client, `total_ms` after its arrival.
    """

    id: str
    request_id: str
    request: ParsedRequest
    target: Target
    profile: str
    exchange: Exchange
    arrived_ms: float
    hold_left_ms: float
    span: Span = NO_SPAN
    deciding: Span = NO_SPAN
    prompt: Prompt | None = None
    failures: int = 0
    failed: tuple[EngineId, ...] = ()
    refused: tuple[EngineId, ...] = ()
    forgotten: tuple[EngineId, ...] = ()
    reason: Reason = Reason.NO_ENGINE
    attempt: int = 0
    setbacks: int = 0
    decided: list[DecisionRecord] = field(default_factory=list)
    tries: int = 0
    last: Try | None = None
    engine: EngineId | None = None
    held_ms: float = 0.0
    load_ms: float | None = None
    pause_ms: float = PAUSE_MS_MIN
    error: Exception | None = None
    total_ms: float = 0.0
    request_hash: int = field(init=False)
    """Of the id: the only source of chance in its decisions, and in whether it is told of."""

    def __post_init__(self) -> None:
        self.request_hash = xxhash.xxh3_64_intdigest(self.id.encode())

    @property
    def lane(self) -> Hashable:
        """What it waits for when it is held."""
        target = self.target
        out = (*target.excluded, *self.failed, *self.refused)
        return self.profile, target.base_model, target.adapter, out
