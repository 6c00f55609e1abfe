"""Tenants: who a request belongs to, and what that grants."""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.errors import InvalidInputError
from axiom_common.model.ids import RegionId, public_name, token

PRIORITY_BANDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A paying party. `salt` separates prefix caches; `regions` empty means all regions.

    `weight` is its fair share within a `priority_band` (0 is served first).
    """

    name: str
    salt: str = ""
    weight: float = 1.0
    priority_band: int = 1
    regions: tuple[RegionId, ...] = ()

    def __post_init__(self) -> None:
        public_name(self.name, path="name")
        if len(self.salt) > 256:
            raise InvalidInputError("salt must have at most 256 characters", path="salt")
        if not 0 < self.weight <= 1000:
            raise InvalidInputError("weight must lie in (0, 1000]", path="weight")
        if not 0 <= self.priority_band < PRIORITY_BANDS:
            raise InvalidInputError(
                f"priority_band must lie in 0..{PRIORITY_BANDS - 1}", path="priority_band"
            )
        for region in self.regions:
            token(region, path="regions")


DEFAULT_TENANT = Tenant(name="default")
