"""Profiles: the knobs of one way to decide, and those that are built in; people declare others.

The baselines are what a router does that knows nothing of adapters: the same hard filters, but no
affinity, no tiers, no quarantine and no cap on the wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from axiom_common.errors import InvalidInputError
from axiom_common.model.decision import Term
from axiom_common.model.ids import public_name

WEIGHT_MAX = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named way to decide. `picker` is a name of policy.registry; weights are per term.

    `quarantine` False: adapter affinity decides nothing, so no quarantine, spread or tiers.
    """

    name: str
    picker: str = "cost"
    wait_cap_ms: float = 500.0
    weights: dict[Term, float] = field(default_factory=lambda: dict.fromkeys(Term, 1.0))
    quarantine: bool = True
    weight_of_each: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """The weights indexed like `Term`; worked out once, for each decision is kept with them."""

    def __post_init__(self) -> None:
        public_name(self.name, path="name")
        if not self.wait_cap_ms > 0:
            raise InvalidInputError("wait_cap_ms must be above 0", path="wait_cap_ms")
        for term, weight in self.weights.items():
            if not 0 <= weight <= WEIGHT_MAX:
                path = f"weights.{term}"
                raise InvalidInputError(f"{path} must lie in 0..{WEIGHT_MAX:g}", path=path)
        object.__setattr__(self, "weight_of_each", tuple(self.weights[term] for term in Term))


AXIOM = Profile(name="axiom")
ROUND_ROBIN = Profile(name="round-robin", picker="round-robin", wait_cap_ms=inf, quarantine=False)
LEAST_LOADED = Profile(
    name="least-loaded", picker="least-loaded", wait_cap_ms=inf, quarantine=False
)

BUILT_IN = {profile.name: profile for profile in (AXIOM, ROUND_ROBIN, LEAST_LOADED)}
"""By name, as the gateway's profile header gives it."""
