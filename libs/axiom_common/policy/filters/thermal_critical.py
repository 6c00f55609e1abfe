"""thermal-critical: the clocks are held down and the GPU is still at its limit: about to shut down.

Both must hold: a sustained throttle alone costs time (thermal safety), heat alone is normal life.
"""

from __future__ import annotations

from axiom_common.policy.evidence import Facts


def thermal_critical(facts: Facts) -> bool:
    """True while a throttle is in force on the engine and one of its GPUs is at the cut-off."""
    return facts.thermal_slowdown > 1.0 and any(
        gpu.temperature_c is not None and gpu.temperature_c >= facts.limits.thermal_critical_c
        for gpu in facts.evidence.gpu
    )
