"""Queue pressure: the predicted wait against the wait that a profile tolerates."""

from __future__ import annotations

import numpy as np

from axiom_common.policy.view import FleetView, Floats


def predicted_wait_ms(view: FleetView) -> Floats:
    """From arrival to the start of the prefill, everything booked counted. See `WaitColumn`."""
    queued = np.maximum(view.in_flight - view.seats + 1, 0)
    queue_ms: Floats = view.wait_per_request_ms * queued
    prefill_ms: Floats = view.wait_per_token_ms * view.queued_tokens
    return view.wait_base_ms + queue_ms + prefill_ms


def queue_pressure(wait_ms: Floats, wait_cap_ms: float) -> Floats:
    """The score in [0, 1]: 1 without a wait, 0 at the cap."""
    return 1.0 - np.minimum(1.0, wait_ms / wait_cap_ms)
