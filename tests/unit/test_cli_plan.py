"""The demo's plan: same seed, same bodies; caps, shared system prompts, the order of events."""

from __future__ import annotations

import json

from axiom_cli.demo.plan import (
    BYTES_A_TOKEN,
    OUTPUT_TOKENS_MAX,
    PROMPT_TOKENS_MAX,
    RATE_RPS,
    demo_plan,
)

ADAPTERS = [f"adapter-{index:02}" for index in range(24)]


def test_events_come_in_order_and_the_rate_is_the_plans() -> None:
    plan = demo_plan(ADAPTERS, seconds=20, seed=1)
    assert 0 < plan.warm_up_ms < plan.flip_ms < plan.back_ms < plan.end_ms
    assert plan.end_ms - plan.warm_up_ms == 20_000
    assert plan.flip_ms - plan.warm_up_ms == 10_000
    assert len(plan.bodies) == round(RATE_RPS * plan.end_ms / 1e3)
    assert all(body.at_ms < plan.end_ms for body in plan.bodies)


def test_the_same_seed_gives_the_same_bodies() -> None:
    assert demo_plan(ADAPTERS, seconds=6, seed=1) == demo_plan(ADAPTERS, seconds=6, seed=1)
    assert demo_plan(ADAPTERS, seconds=6, seed=1) != demo_plan(ADAPTERS, seconds=6, seed=2)


def test_bodies_are_streamed_chats_within_the_caps() -> None:
    system_prompts: dict[str, set[str]] = {}
    questions = set()
    bodies = demo_plan(ADAPTERS, seconds=20, seed=1).bodies
    for body in bodies:
        request = json.loads(body.body)
        system, user = request["messages"]
        assert request["stream"] is True
        assert 1 <= request["max_tokens"] <= OUTPUT_TOKENS_MAX
        size = len(system["content"]) + len(user["content"])
        assert size <= (PROMPT_TOKENS_MAX + 8) * BYTES_A_TOKEN
        system_prompts.setdefault(request["model"], set()).add(system["content"])
        questions.add(user["content"])
    assert set(system_prompts) <= set(ADAPTERS)
    assert len(system_prompts) > 20
    # Users of an adapter share its prompt, cut short only where the whole prompt is short.
    for texts in system_prompts.values():
        longest = max(texts, key=len)
        assert all(longest.startswith(text) for text in texts)
    assert len(questions) == len(bodies)
