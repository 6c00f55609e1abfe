"""Running one policy: a fresh stack, the plan's requests, the kill, the engines' counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from axiom_cli.demo.client import send_all
from axiom_cli.demo.engines import EngineWatch, engine_watch
from axiom_cli.demo.figures import (
    EngineCounters,
    EngineKill,
    Observation,
    PolicyRun,
    policy_figures,
)
from axiom_cli.demo.plan import DemoPlan
from axiom_cli.stack.processes import ProcessDied
from axiom_cli.stack.stack import Stack, running_stack
from axiom_cli.stack.topology import StackOptions
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.ports.clock import Clock

SAMPLE_MS = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who hears of a run's progress."""

    on_step: Callable[[str], None]
    on_death: Callable[[ProcessDied], None]
    on_end: Callable[[Observation], None]


async def run_policy(options: StackOptions, plan: DemoPlan, listeners: Listeners) -> PolicyRun:
    """Run the plan on a stack of its own whose default profile is the policy.

    Times of the result count from the start of the measured window; what was sent before it warms
    the fleet and is left out.
    """
    clock = SystemClock()
    async with (
        running_stack(options, on_death=listeners.on_death, on_step=listeners.on_step) as stack,
        engine_watch(stack.engine_urls) as watch,
    ):
        listeners.on_step("serving")
        return await _measure(stack, watch, plan, listeners, clock)


async def _measure(
    stack: Stack, watch: EngineWatch, plan: DemoPlan, listeners: Listeners, clock: Clock
) -> PolicyRun:
    start_ms = clock.now_ms()
    samples: list[tuple[float, EngineCounters]] = []

    async def sample() -> None:
        counted = await watch.read()
        samples.append((clock.now_ms() - start_ms, counted))

    async def sample_often() -> None:
        await clock.sleep_ms(plan.warm_up_ms)
        while True:
            await sample()
            await clock.sleep_ms(SAMPLE_MS)

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sample_often(), name="sample engines")
        breaking = group.create_task(
            _break(stack, watch, plan, listeners, clock), name="kill an engine"
        )
        observed = await send_all(
            stack.gateway.url, plan.bodies, clock=clock, on_end=listeners.on_end
        )
        kill = await breaking
        sampling.cancel()
    await sample()
    return _policy_run(stack.options.default_profile, plan, observed, samples, kill)


async def _break(
    stack: Stack, watch: EngineWatch, plan: DemoPlan, listeners: Listeners, clock: Clock
) -> EngineKill:
    """Kill the first engine when popularity flips, start it again later."""
    start_ms = clock.now_ms()
    engine = stack.options.engine_ids[0]
    process = stack.processes[engine]
    await clock.sleep_ms(plan.flip_ms)
    async with watch.ending(engine):
        killed_ms = clock.now_ms() - start_ms
        await process.kill()
    listeners.on_step(f"popularity flipped, {engine} killed")
    await clock.sleep_ms(plan.back_ms - (clock.now_ms() - start_ms))
    back_ms = clock.now_ms() - start_ms
    await process.restart()
    listeners.on_step(f"{engine} started again, empty")
    return EngineKill(engine=engine, at_ms=killed_ms, back_ms=back_ms)


def _policy_run(
    policy: str,
    plan: DemoPlan,
    observed: tuple[Observation, ...],
    samples: list[tuple[float, EngineCounters]],
    kill: EngineKill,
) -> PolicyRun:
    """The measured window alone, its times counted from its start."""
    shift_ms = plan.warm_up_ms
    baseline = samples[0][1]
    window = tuple(
        replace(seen, sent_ms=seen.sent_ms - shift_ms, ended_ms=seen.ended_ms - shift_ms)
        for body, seen in zip(plan.bodies, observed, strict=True)
        if body.at_ms >= shift_ms
    )
    shifted = replace(kill, at_ms=kill.at_ms - shift_ms, back_ms=kill.back_ms - shift_ms)
    return PolicyRun(
        policy=policy,
        figures=policy_figures(window, samples[-1][1].minus(baseline), shifted),
        observations=window,
        loads=tuple(
            (max(0.0, at_ms - shift_ms), counted.minus(baseline).adapter_loads)
            for at_ms, counted in samples
        ),
        kill=shifted,
    )
