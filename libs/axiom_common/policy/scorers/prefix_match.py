"""Prefix match: the share of the prompt that an engine already holds from its first token on.

No engine announces what its prefix cache holds, and unknown is not held: the score is 0 and every
prompt token counts as uncached.
"""

from __future__ import annotations

import numpy as np

from axiom_common.policy.view import Floats


def prefix_match(engines: int) -> Floats:
    """The score of each of so many engines, in [0, 1]."""
    return np.zeros(engines)
