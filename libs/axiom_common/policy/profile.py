"""The built-in profiles.

The baselines are what a router does that knows nothing of adapters: the same hard filters, but no
affinity, no tiers, no quarantine and no cap on the wait.
"""

from __future__ import annotations

from math import inf

from axiom_common.policy.columns import Profile

AXIOM = Profile(name="axiom")
ROUND_ROBIN = Profile(name="round-robin", picker="round-robin", wait_cap_ms=inf, quarantine=False)
LEAST_LOADED = Profile(
    name="least-loaded", picker="least-loaded", wait_cap_ms=inf, quarantine=False
)

BUILT_IN = {profile.name: profile for profile in (AXIOM, ROUND_ROBIN, LEAST_LOADED)}
"""By name, as the gateway's profile header gives it."""
