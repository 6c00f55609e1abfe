"""Queue pressure: the predicted wait against the wait that a profile tolerates."""

from __future__ import annotations

from axiom_common.policy.engine_row import WaitRule


def predicted_wait_ms(wait: WaitRule, *, in_flight: int, queued_tokens: int) -> float:
    """From arrival to the start of the prefill, behind so many requests and prompt tokens."""
    queued = max(in_flight - wait.seats + 1, 0)
    return wait.base_ms + wait.per_request_ms * queued + wait.per_token_ms * queued_tokens


def queue_pressure(wait_ms: float, wait_cap_ms: float) -> float:
    """The score in [0, 1]: 1 without a wait, 0 at the cap."""
    return 1.0 - min(1.0, wait_ms / wait_cap_ms)
