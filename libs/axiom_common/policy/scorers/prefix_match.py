"""Prefix match: the share of the prompt that an engine already holds from its first token on.

    in HBM 1, in another known tier OTHER_TIER, unknown is not held: 0

What an engine holds is known by the chunks of the prompt's text (state.prefix_index): tokens that
were counted, and bytes of text. The tokens of the rest are as many as its share of the bytes.
"""

from __future__ import annotations

from axiom_common.policy.view import Floats

OTHER_TIER = 0.5
"""What is not in HBM has to be brought there: cheaper than to compute it, and not free."""


def credited(hbm: Floats, any_tier: Floats) -> Floats:
    """Of what each engine holds in HBM, and in any tier, how much counts; tokens or bytes."""
    return hbm + OTHER_TIER * (any_tier - hbm)


def uncached_tokens(prompt_tokens: int, prompt_bytes: int, credited_bytes: Floats) -> Floats:
    """What is left to compute of a prompt of so many tokens and bytes, which is not empty."""
    return prompt_tokens * ((prompt_bytes - credited_bytes) / prompt_bytes)


def prefix_match(credited_tokens: float, uncached: float) -> float:
    """The score in [0, 1]."""
    prompt_tokens = credited_tokens + uncached
    return credited_tokens / prompt_tokens if prompt_tokens else 0.0
