"""lora-disabled and rank-too-large: what the engine was started with can't run the adapter."""

from __future__ import annotations

from axiom_common.policy.view import Bools, StandingView, Wanted


def lora_disabled(view: StandingView, wanted: Wanted) -> Bools:
    """True where an adapter is wanted and the engine has no slots for any."""
    disabled: Bools = (view.max_lora_rank == 0) & (wanted.rank is not None)
    return disabled


def rank_too_large(view: StandingView, wanted: Wanted) -> Bools:
    """True where the engine's buffers are too small for the adapter's rank."""
    return view.max_lora_rank < (wanted.rank or 0)
