"""lora-disabled and rank-too-large: what the engine was started with can't run the adapter."""

from __future__ import annotations

from axiom_common.policy.view import Bools, Prospect


def lora_disabled(prospect: Prospect) -> Bools:
    """True where the engine has no adapter slots at all."""
    disabled: Bools = prospect.view.max_lora_rank == 0
    return disabled


def rank_too_large(prospect: Prospect) -> Bools:
    """True where the engine's buffers are too small for the adapter's rank."""
    return prospect.view.max_lora_rank < prospect.ask.rank
