"""What Axiom's extension costs a real vLLM: the same work with it on and off, in turns.

usage: python -m tests.engine.extension_cost     (after tests/engine/run has made engine and model)

The work is closed-loop clients over as many adapters as there are slots: with more, the batches of
two rounds would differ by far more than what is measured. An agent listens. Rounds alternate in one
process, so a change of the machine's mood hits both sides alike. Printed: the medians over pairs of
on / off - 1, of the time that the clients needed and of the CPU time of its processes,
with 95 % intervals (binomial, of the median).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from pathlib import Path

import aiohttp
from tests.contract.vllm_client import COMPLETIONS, VllmClient
from tests.engine.real_engine import RealEngine, real_engine

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.drivers.vllm_extension import ExtensionListener

ROOT = Path(__file__).parents[2]
PAIRS, CLIENTS, REQUESTS, TOKENS = 60, 4, 10, 16
SWITCH_PATH = "/agent/extension/"
NAMES = tuple(f"cost-{letter}" for letter in "ab")


def cpu_s(server: int) -> tuple[float, float]:
    """CPU seconds used so far by the API server, and by the engine's other processes."""
    seconds = {True: 0.0, False: 0.0}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == server:
                ticks = int(fields[11]) + int(fields[12])
                seconds[stat.parent.name == str(server)] += ticks / os.sysconf("SC_CLK_TCK")
    return seconds[True], seconds[False]


async def work(client: VllmClient) -> None:
    """The clients' requests, all of them."""

    async def one(number: int) -> None:
        for turn in range(REQUESTS):
            model = NAMES[(number + turn) % len(NAMES)]
            body = {"model": model, "prompt": "x", "max_tokens": TOKENS, "ignore_eos": True}
            assert (await client.post(COMPLETIONS, body)).status == 200

    async with asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            clients.create_task(one(number), name=f"client {number}")


def told(what: str, ratios: list[float]) -> str:
    """The median with its interval."""
    ratios = sorted(ratios)
    reach = 0.98 * len(ratios) ** 0.5
    low, high = round(len(ratios) / 2 - reach), round(len(ratios) / 2 + reach)
    median = statistics.median(ratios)
    return f"{what} {median:+.2%} (95 %: {ratios[low]:+.2%} to {ratios[high]:+.2%})"


async def measure(engine: RealEngine) -> None:
    """Print the figures."""
    messages = 0

    def heard(_: object) -> None:
        nonlocal messages
        messages += 1

    listener = ExtensionListener(engine.agent_socket, SystemClock(), heard)
    listener.open()
    took: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    async with aiohttp.ClientSession() as session:
        client = VllmClient(
            engine.url, session, base="tiny", path=lambda n: f"{engine.model}/ad{n}"
        )
        for number, name in enumerate(NAMES):
            await client.load(name, number)
        await work(client)
        for pair in range(PAIRS):
            for on in (True, False) if pair % 2 else (False, True):
                await client.get(f"{SWITCH_PATH}{'on' if on else 'off'}")
                started = time.perf_counter(), *cpu_s(engine.process.pid)
                await work(client)
                ended = time.perf_counter(), *cpu_s(engine.process.pid)
                took[on].append(tuple(b - a for a, b in zip(started, ended, strict=True)))
    listener.close()
    for part, what in enumerate(("time", "API server CPU", "engine CPU")):
        pairs = zip(took[True], took[False], strict=True)
        print(told(what, [on[part] / off[part] - 1 for on, off in pairs]))
    seconds = sum(on[0] for on in took[True])
    tokens = CLIENTS * REQUESTS * TOKENS * PAIRS / seconds
    print(f"{tokens:.0f} tokens/s and {messages / seconds:.0f} messages/s with the extension")


def main() -> None:
    """Start the engine, measure, end it."""
    model = ROOT / ".cache/engine-model"
    with real_engine(ROOT / ".venv-engine/bin/python", model) as engine:
        asyncio.run(measure(engine))


if __name__ == "__main__":
    main()
