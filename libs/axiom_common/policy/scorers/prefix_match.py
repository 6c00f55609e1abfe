"""Prefix match: the share of the prompt that an engine already holds from its first token on.

No engine announces what its prefix cache holds, and unknown is not held: the score is 0 and every
prompt token counts as uncached.
"""

from __future__ import annotations


def prefix_match() -> float:
    """The score of any engine, in [0, 1]."""
    return 0.0
