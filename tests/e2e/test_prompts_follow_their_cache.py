"""A gateway process on a real NATS hears what engines hold, and `axiom why` says what it made of
that."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from tests.eventually import eventually, succeeds
from tests.owner import task_owner
from tests.prompt_teller import TOKENS_OF_FACT, PromptTeller, model_folder, words
from tests.service_process import readiness, service_process

from axiom_cli.stack.stack import running_stack
from axiom_cli.stack.topology import ADMIN_KEY, BASE_MODEL, HOST, REGION, StackOptions
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.ids import EngineId, RegionId

pytestmark = pytest.mark.timeout(120)


@dataclass
class Place:
    """A gateway that makes texts of prompts, who tells it of engines, and they."""

    url: str
    key_file: Path
    teller: PromptTeller
    engines: tuple[EngineId, ...]

    async def ask(self, prompt: str) -> tuple[str, str]:
        """The engine and the id of the decision."""
        body = {"model": BASE_MODEL, "prompt": prompt, "max_tokens": 2}
        async with aiohttp.request("POST", f"{self.url}/v1/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
            headers = answer.headers
            return headers["x-axiom-engine"], headers["x-axiom-decision-id"]

    async def matched(self, decision_id: str) -> int | None:
        """What `axiom why` says."""
        asked = ["why", decision_id, "--url", self.url, "--key-file", str(self.key_file)]
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "axiom_cli", *asked, stdout=asyncio.subprocess.PIPE
        )
        told, _ = await command.communicate()
        assert command.returncode == 0
        found = re.search(r"matched (\d+)", told.decode())
        return int(found[1]) if found else None


@asynccontextmanager
async def place_in(folder: Path) -> AsyncIterator[Place]:
    options = StackOptions(run_dir=folder / "stack", adapters=1, nodes=1)
    model, key_file = model_folder(folder), folder / "stack" / ADMIN_KEY
    async with running_stack(options) as stack, task_owner() as owner:
        settings = {
            "region": REGION,
            "gateway": "reader",
            "nats_url": stack.nats_url,
            "redis_url": stack.redis_url,
            "host": HOST,
            "admin_key_file": str(key_file),
            "prompts": [{"base_model": BASE_MODEL, "tokenizer": str(model)}],
        }
        gateway = service_process("gateway", folder / "gateway", settings)
        await asyncio.to_thread(gateway.start)
        connection = NatsConnection(stack.nats_url, name="teller", clock=SystemClock())
        assert await connection.start(owner)
        try:
            # Facts of an engine that is not in view are no use.
            await eventually(lambda: readiness(gateway)["engines"] == 2, within_s=20)
            teller = PromptTeller(NatsBus(connection), RegionId(REGION), BASE_MODEL, model)
            yield Place(gateway.url, key_file, teller, options.engine_ids)
            assert readiness(gateway)["degraded"] == []
        finally:
            await connection.close()
            await asyncio.to_thread(gateway.stop)


async def test_a_request_goes_where_its_prompt_lies_and_why_tells_how_much(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        topics = {engine: words(f"topic {n}") for n, engine in enumerate(place.engines)}

        for engine, topic in topics.items():
            await place.teller.tell(engine, topic)

        async def follows() -> str:
            for engine, topic in topics.items():
                served_by, decision_id = await place.ask(f"{topic} And now?")
                assert served_by == engine
            return decision_id

        await succeeds(follows, despite=AssertionError, within_s=30)
        chunks = len(place.teller.links(topics[place.engines[-1]]))
        assert await place.matched(await follows()) == TOKENS_OF_FACT * chunks
