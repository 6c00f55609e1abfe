"""The extension's channel to the agent over a real socket, both ends real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.vllm_stand_ins import Request, WorkerManager

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.drivers.vllm_extension import ExtensionListener
from axiom_common.drivers.vllm_extension_fold import Heard
from axiom_vllm.channel import Channel, UnixDatagrams
from axiom_vllm.messages import Message
from axiom_vllm.watch import AdapterWatch


class Pair:
    """A worker's managers that tell, and an agent that hears."""

    def __init__(self, path: Path) -> None:
        self.clock = SystemClock()
        self.heard: list[Heard] = []
        self.listener = ExtensionListener(path, self.clock, self.heard.append)
        self.manager = WorkerManager()
        self.line = UnixDatagrams(str(path))
        self.channel = Channel(self.line)
        self.watch = AdapterWatch(self.manager, {}, self._tell, lambda: False)
        self.watch.attach(lambda error: None)

    def _tell(self, message: Message) -> None:
        self.channel.send({"rank": 0, **(self.watch.whole() if self.channel.owed else message)})

    def load(self, number: int) -> None:
        self.manager.add_adapter(Request(f"n{number}", number))

    def close(self) -> None:
        self.listener.close()
        self.line.close()

    def agree(self) -> bool:
        word = self.listener.fold.word(self.clock.now_ms())
        held = self.manager._adapter_manager._registered_adapters.order
        return word is not None and word.ranks[0].residency.host == tuple(f"n{n}" for n in held)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Not listening yet."""
    pair = Pair(tmp_path / "engine.sock")
    yield pair
    pair.close()


async def test_what_happens_is_heard(pair: Pair) -> None:
    pair.listener.open()
    for number in range(1, 7):
        pair.load(number)
        await eventually(pair.agree)
    assert not any(heard.gap for heard in pair.heard)


async def test_a_full_queue_drops_and_the_end_is_heard_all_the_same(pair: Pair) -> None:
    pair.listener.open()
    # No turn of the loop: nobody reads.
    for number in range(1, 2000):
        pair.load(number)
    assert pair.channel.owed, "the queue took everything"
    await eventually(pair.agree)
    assert any(heard.gap for heard in pair.heard)
    assert not pair.channel.owed


async def test_an_agent_comes_goes_and_takes_over(pair: Pair, tmp_path: Path) -> None:
    pair.load(1)
    pair.listener.open()
    pair.load(2)
    await eventually(pair.agree)
    other = Pair(tmp_path / "engine.sock")
    other.listener.open()
    pair.load(3)
    await eventually(lambda: other.heard)
    assert not pair.agree()
    other.close()
    pair.listener.close()
    pair.load(4)
    assert pair.channel.owed


async def test_noise_is_counted_and_heard_around(pair: Pair, tmp_path: Path) -> None:
    pair.listener.open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as noisy:
        noisy.sendto(b"\x00noise", str(tmp_path / "engine.sock"))
        noisy.sendto(b"", str(tmp_path / "engine.sock"))
    pair.load(1)
    await eventually(pair.agree)
    assert pair.listener.malformed == 2
    assert (tmp_path / "engine.sock").stat().st_mode & 0o007 == 0
    pair.listener.close()
    assert not (tmp_path / "engine.sock").exists()


async def test_a_flood_leaves_the_loop_its_turns(pair: Pair, tmp_path: Path) -> None:
    pair.listener.open()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count(), name="turns")
        for number in range(1, 200):
            pair.load(number)
            await asyncio.sleep(0)
        await eventually(pair.agree)
        counting.cancel()
    assert turns > 100
