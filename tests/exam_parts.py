"""Figures of an exam as `axiom sim run --json` tells them, made up."""

from __future__ import annotations

from typing import Any

from axiom_sim.exam.outcome import Timeline


def policy_figures(
    goodput: float, p50: float | None, p99: float | None, loads: float, **others: float
) -> dict[str, Any]:
    """All keys of one policy."""
    return {
        "requests": 1000,
        "failed": 0,
        "goodput": goodput,
        "ttft_ms_p50": p50,
        "ttft_ms_p99": p99,
        "tpot_ms_p99": 31.5,
        "adapter_loads": loads,
        "unsafe_evictions": 0,
        "max_over_mean_load": 1.1,
        **others,
    }


def variant_result(**policies: dict[str, Any]) -> dict[str, Any]:
    """One variant with bounds; without policies three of them."""
    return {
        "utilisation": 0.82,
        "policies": policies
        or {
            "round-robin": policy_figures(0.2, 900.0, 9000.0, 4000),
            "aff": policy_figures(0.93, 80.0, 700.0, 40),
            "axiom": policy_figures(0.96, 70.0, 650.0, 55, unsafe_evictions=2),
        },
        "bounds": {
            "belady_loads": 16,
            "true_rate_loads": 30,
            "ttft_floor_ms_p99": 210.0,
            "pooled_goodput": 0.99,
            "clairvoyant": {"ttft_ms_p99": 600.0, "goodput": 0.975, "adapter_loads": 20},
            "fresh_state": {"ttft_ms_p99": 620.0, "goodput": 0.97},
        },
    }


def timeline() -> Timeline:
    """Two adapters over six moments."""
    return Timeline(
        policy="axiom",
        end_s=900.0,
        adapters=("adapter-1", "adapter-0"),
        levels=((0, 1, 2, 4, 4, 4), (0, 0, 1, 1, 0, 0)),
        left_out=3,
    )
