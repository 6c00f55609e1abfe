"""Tenants: who a request belongs to, and what that grants."""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.model.ids import RegionId


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


DEFAULT_TENANT = Tenant(name="default")
