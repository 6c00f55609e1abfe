"""What is predicted of prompts, beside what a real vLLM says that it had cached of them.

The agent runs as a process, prompts become text by the gateway's module, and a listener folds what
the agent tells. Never may more be predicted than the engine had, but for its own rule: it computes
at least a prompt's last token, so the block with that one is no hit.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent_process import BASE_MODEL, Node, running_agent
from tests.engine.real_engine import real_engine
from tests.eventually import eventually
from tests.fact_listener import FactListener

from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.ids import BASE, EngineAdapter, RegionId
from axiom_common.model.prefix import PromptText, linked
from axiom_common.wire import subjects
from axiom_gateway.openai_requests import Endpoint
from axiom_gateway.prompt_text import PromptTexts
from axiom_gateway.settings import PromptSettings

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

BLOCK, BLOCKS = 32, 256
"""The cache holds 8,192 tokens: far fewer than are asked for, so blocks go all the time."""
CONVERSATIONS, TURNS, SINGLE = 25, 3, 150
ANSWER_TOKENS = (64, 96)
ADAPTERS = ("ad0", "ad1")
SALTS = ("tenant-one", "tenant-two")
SEED = 20261201
QUIET_S = 0.25
"""So long nothing new was told: the agent tells within 50 ms of hearing."""
EVENTS = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "endpoint": "tcp://*:0",
    "replay_endpoint": "tcp://*:0",
    "topic": "kv@tiny",
}
WORDS = Path(json.__file__).read_text() + Path(random.__file__).read_text()


@dataclass
class Asked:
    """One request: what was predicted, what the engine says."""

    kind: str
    predicted: int
    cached: int
    prompt_tokens: int

    @property
    def predicted_hit(self) -> int:
        """What was predicted, by the engine's rule of the last token."""
        return min(self.predicted, (self.prompt_tokens - 1) // BLOCK * BLOCK)


@dataclass
class Stage:
    """An engine, its agent, and what a gateway knows."""

    node: Node
    listener: FactListener
    texts: PromptTexts
    asked: list[Asked] = field(default_factory=list)

    async def told(self) -> None:
        """Wait until the agent has nothing new to tell."""
        while True:
            reports = len(self.listener.reports)
            await asyncio.sleep(QUIET_S)
            if all(r.kind == "stand" for r in self.listener.reports[reports:]):
                return

    async def ask(self, kind: str, endpoint: Endpoint, adapter: str, body: dict[str, Any]) -> str:
        """One request; its answer's text."""
        await self.told()
        text = self.text(endpoint, adapter, body)
        links = linked(text.seed, text.text)
        predicted = self.listener.credit(links)
        url = self.node.engine_url + endpoint.value
        async with self.node.http.post(url, json=body) as answer:
            told = json.loads(await answer.read())
            assert answer.status == 200, told
        usage = told["usage"]
        details = usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens") or 0
        self.asked.append(Asked(kind, predicted, cached, usage["prompt_tokens"]))
        [choice] = told["choices"]
        text = choice["message"]["content"] if endpoint is Endpoint.CHAT else choice["text"]
        return str(text)

    def text(self, endpoint: Endpoint, adapter: str, body: dict[str, Any]) -> PromptText:
        members = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in body.items()}
        name = EngineAdapter(adapter) if adapter else BASE
        text = self.texts.text_of(endpoint, BASE_MODEL, name, members)
        assert isinstance(text, PromptText), text
        return text


class Load:
    """Requests drawn from a seed: few beginnings, many scopes, ends of their own."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._random = random.Random(SEED)
        starts = [self._random.randrange(len(WORDS) - 4_000) for _ in range(4)]
        self._shared = [
            WORDS[start : start + self._random.randrange(800, 3_000)] for start in starts
        ]
        self._seeds = count(1)

    def scope(self) -> tuple[str, str]:
        """Adapter as the engine knows it, "" for the base model; salt."""
        adapter = self._random.choice(("", *ADAPTERS))
        return adapter and f"{adapter}~1", self._random.choice(SALTS)

    def words(self, most: int) -> str:
        start = self._random.randrange(len(WORDS) - most)
        return WORDS[start : start + self._random.randrange(20, most)]

    async def single(self) -> None:
        """A prompt with a shared beginning, as text or as a chat."""
        adapter, salt = self.scope()
        shared, own = self._random.choice(self._shared), self.words(600)
        if self._random.random() < 0.5:
            body = {**self._body(adapter, salt, 4), "prompt": shared + own}
            await self._stage.ask("completion", Endpoint.COMPLETIONS, adapter, body)
            return
        messages = [{"role": "system", "content": shared}, {"role": "user", "content": own}]
        body = {**self._body(adapter, salt, 4), "messages": messages}
        await self._stage.ask("chat", Endpoint.CHAT, adapter, body)

    async def conversation(self) -> AsyncIterator[None]:
        """Turns, with the answers as the client got them; others ask in between."""
        adapter, salt = self.scope()
        messages = [{"role": "system", "content": self._random.choice(self._shared)[:1_200]}]
        for turn in range(TURNS):
            messages.append({"role": "user", "content": self.words(300)})
            tokens = self._random.randint(*ANSWER_TOKENS)
            body = {**self._body(adapter, salt, tokens), "messages": messages}
            answer = await self._stage.ask(f"turn {turn + 1}", Endpoint.CHAT, adapter, body)
            messages.append({"role": "assistant", "content": answer})
            yield

    async def run(self) -> None:
        """All of it, mixed."""
        waiting = [self.conversation() for _ in range(CONVERSATIONS)]
        running = [waiting.pop() for _ in range(3)]
        left = SINGLE
        while running or left:
            if left and self._random.random() < 2 / 3:
                left -= 1
                await self.single()
            elif running:
                one = self._random.choice(running)
                if await anext(one, self) is self:
                    running.remove(one)
                    running += [waiting.pop()] if waiting else []

    def _body(self, adapter: str, salt: str, tokens: int) -> dict[str, Any]:
        return {
            "model": adapter or BASE_MODEL,
            "cache_salt": salt,
            "max_tokens": tokens,
            "min_tokens": tokens,
            "temperature": 1.0,
            "seed": next(self._seeds),
        }


@pytest.fixture
async def stage(
    pytestconfig: pytest.Config, tmp_path: Path, region: RegionId, nats_url: str
) -> AsyncIterator[Stage]:
    python = pytestconfig.getoption("engine_python").absolute()
    model: Path = pytestconfig.getoption("engine_model").absolute()
    words = model / "words"
    flags = (
        *("--model", str(words), "--max-model-len", "2048"),
        *("--num-gpu-blocks-override", str(BLOCKS), "--kv-events-config", json.dumps(EVENTS)),
    )
    with real_engine(python, model, flags=flags) as engine:
        settings = {"url": engine.url, "base_model": BASE_MODEL, "tokenizer": str(words)}
        async with running_agent(tmp_path, region, nats_url, settings, model) as node:
            listener = FactListener()
            await node.bus.subscribe(subjects.all_node_facts(region), listener.hear)
            await node.ready()
            for name in ADAPTERS:
                assert await node.ensured(name) is EnsureOutcome.RESIDENT
            texts = PromptTexts([PromptSettings(base_model=BASE_MODEL, tokenizer=words)])
            yield Stage(node, listener, texts)


def share(shortfalls: list[int]) -> str:
    cuts = statistics.quantiles(shortfalls, n=20, method="inclusive")
    picked = {"p5": cuts[0], "p25": cuts[4], "p50": cuts[9], "p75": cuts[14], "p95": cuts[18]}
    return " ".join(f"{name} {value:.0f}" for name, value in picked.items()) + (
        f" max {max(shortfalls)}"
    )


def report(stage: Stage, engine_evicted: int) -> None:
    asked = stage.asked
    print(f"\n{len(asked)} requests, {engine_evicted} facts withdrawn")
    for kind in (*sorted({a.kind for a in asked}), "all"):
        some = [a for a in asked if kind in (a.kind, "all")]
        cached, predicted = sum(a.cached for a in some), sum(a.predicted_hit for a in some)
        print(
            f"{kind:>10}: {len(some):3} requests, prompt {sum(a.prompt_tokens for a in some):6} "
            f"cached {cached:6} predicted {predicted:6} ({predicted / max(1, cached):.0%}); "
            f"shortfall in tokens: {share([a.cached - a.predicted_hit for a in some])}"
        )


async def test_never_more_is_predicted_than_the_engine_had_cached(stage: Stage) -> None:
    await eventually(lambda: stage.listener.reports, within_s=30.0)
    await Load(stage).run()
    withdrawn = sum(
        len(r.hbm.withdrawn) + len(r.any_tier.withdrawn) for r in stage.listener.reports
    )
    report(stage, withdrawn // 8)
    assert len(stage.asked) == CONVERSATIONS * TURNS + SINGLE
    assert withdrawn > 0
    over = [a for a in stage.asked if a.predicted_hit > a.cached]
    assert over == []
    predicted, cached = (
        sum(getattr(a, name) for a in stage.asked) for name in ("predicted_hit", "cached")
    )
    assert predicted > cached / 2
