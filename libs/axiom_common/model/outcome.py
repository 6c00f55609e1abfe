"""What became of a request after it was decided."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason


class Ending(StrEnum):
    """How a request ended.

    `served`: whole. `rejected`: the engine found the client at fault. `refused`: the client got an
    error before any part of an answer. `broken`: an error after a part of it. `gone`: the client
    went away. `cut`: the request's limit, or the end of the gateway. `defect`: an error of ours.
    """

    SERVED = "served"
    REJECTED = "rejected"
    REFUSED = "refused"
    BROKEN = "broken"
    GONE = "gone"
    CUT = "cut"
    DEFECT = "defect"


class Usage(NamedTuple):
    """Tokens that an engine counted. None: it did not tell."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Outcome(NamedTuple):
    """The end of one request. Unknown is None.

    `status` is what the client got, `engine` the last one that it was sent to, `reason` that of an
    error. `retries` are tries at engines after the first. `held_ms` it waited for room, `load_ms`
    for its adapter, `total_ms` it took from the arrival of its body. `ttft_ms` (from sending to the
    first event) and `tpot_ms` are those of the last try, and known of streams only. `usage` is the
    engine's own count; `matched_tokens` are those that the decision took for cached there.
    """

    ending: Ending
    status: int | None
    reason: Reason | None
    engine: EngineId | None
    retries: int
    held_ms: float
    load_ms: float | None
    total_ms: float
    ttft_ms: float | None
    tpot_ms: float | None
    usage: Usage = Usage()
    matched_tokens: int | None = None
