"""Faults on order, for tests: `POST /sim/faults` replaces all of them at once.

| field | meaning |
| --- | --- |
| `fail_loads` | the next n load calls answer 500 |
| `fail_requests` | the next n inference requests answer 500 before a token |
| `error_in_stream_after` | streams carry an error event after that many tokens |
| `error_streams` | how many streams do so (default 1) |
| `slow_factor` | steps take this many times longer |
| `unhealthy` | `/health` answers 503 |
| `extension_silent` | Axiom's extension tells nothing and answers 504 |
"""

from __future__ import annotations

from typing import Any

import msgspec

from axiom_common.errors import InvalidInputError

_COUNT_MAX = 1_000_000
_SLOW_FACTOR_RANGE = (0.01, 1000.0)


class Faults(msgspec.Struct, forbid_unknown_fields=True):
    """What is to go wrong. Counts go down as faults are handed out."""

    fail_loads: int = 0
    fail_requests: int = 0
    error_in_stream_after: int = -1
    error_streams: int = 1
    slow_factor: float = 1.0
    unhealthy: bool = False
    extension_silent: bool = False

    def take_load_failure(self) -> bool:
        """Whether this load call is one that fails."""
        if self.fail_loads <= 0:
            return False
        self.fail_loads -= 1
        return True

    def take_request_failure(self) -> bool:
        """Whether this request is one that fails."""
        if self.fail_requests <= 0:
            return False
        self.fail_requests -= 1
        return True

    def take_stream_error(self) -> int | None:
        """After how many tokens this stream breaks; None when it does not."""
        if self.error_in_stream_after < 0 or self.error_streams <= 0:
            return None
        self.error_streams -= 1
        return self.error_in_stream_after


def read_faults(body: bytes) -> Faults:
    """Parse and bound; InvalidInputError says what is wrong."""
    try:
        faults = msgspec.json.decode(body or b"{}", type=Faults)
    except msgspec.DecodeError as error:
        raise InvalidInputError(str(error)) from error
    counts = (faults.fail_loads, faults.fail_requests, faults.error_streams)
    if min(counts) < 0 or max(*counts, faults.error_in_stream_after) > _COUNT_MAX:
        raise InvalidInputError(f"counts must lie in 0..{_COUNT_MAX}")
    low, high = _SLOW_FACTOR_RANGE
    if not low <= faults.slow_factor <= high:
        raise InvalidInputError(f"slow_factor must lie in {low}..{high}", path="slow_factor")
    return faults


def faults_as_json(faults: Faults) -> dict[str, Any]:
    """What is still to go wrong."""
    return msgspec.structs.asdict(faults)
