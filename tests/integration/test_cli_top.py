"""`axiom top` and `axiom telemetry tail` against a gateway with a real agent, and without one."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import pytest
from rich.console import Console
from tests.eventually import eventually
from tests.gateway_region import NODE, region_of, served

from axiom_cli.admin import NoAnswerError, admin_of
from axiom_cli.tail import TailOptions, tail
from axiom_cli.top import TopOptions, _Board, top
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import NotFoundError


def of_top(url: str, *nodes: str, as_json: bool = False, model: str | None = None) -> TopOptions:
    return TopOptions(url=url, nodes=nodes, model=model, once=True, as_json=as_json)


def of_tail(url: str, *, count: int | None = None, as_json: bool = False) -> TailOptions:
    return TailOptions(url=url, node=NODE, seconds=20.0, count=count, as_json=as_json)


async def test_one_picture_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    async with region_of(2) as region, served(region) as gateway:
        await region.declare("sql")
        await gateway.knows("sql")
        engine = (await gateway.ask("sql")).engine
        await top(of_top(gateway.url))
        told = capsys.readouterr().out
        assert f"{NODE} alive" in told
        assert "sql~1" in told
        await top(of_top(gateway.url, NODE, as_json=True, model="sql"))
        found = json.loads(capsys.readouterr().out)
        assert found["regions"]["r"]["nodes"] == 1
        (node,) = found["nodes"]
        assert engine in [e["engine"] for e in node["engines"]]
        with pytest.raises(NotFoundError):
            await top(of_top(gateway.url, "another"))


async def test_the_board_lives_through_a_gateway_that_goes_and_comes() -> None:
    async with region_of(1) as region:
        gateway = await region.start_gateway()
        console = Console(width=80)
        board = _Board(SystemClock(), of_top(gateway.url))

        def shown() -> str:
            return "\n".join(str(line) for line in board.shown(console).renderables)

        async with admin_of(gateway.url) as admin, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(board.follow(admin)),
                group.create_task(board.ask_status(admin)),
            ]
            await eventually(lambda: f"{NODE} alive" in shown() and "trying again" not in shown())
            await gateway.stop()
            await eventually(lambda: "trying again" in shown(), within_s=10)
            assert f"{NODE} alive" in shown()
            for task in tasks:
                task.cancel()


async def test_tail_tells_what_changes(capsys: pytest.CaptureFixture[str]) -> None:
    async with region_of(1) as region, served(region) as gateway:
        await region.declare("sql")
        await gateway.knows("sql")
        async with asyncio.TaskGroup() as group:
            group.create_task(tail(of_tail(gateway.url, count=3)))
            told = ""

            def tells(words: str) -> bool:
                nonlocal told
                told += capsys.readouterr().out
                return words in told

            await eventually(lambda: tells("engines: e1"))
            await gateway.ask("sql")
            await eventually(lambda: tells("sql~1"))
        await tail(of_tail(gateway.url, count=1, as_json=True))
        assert json.loads(capsys.readouterr().out)["node"] == NODE


async def test_tail_needs_a_gateway_and_a_node_to_begin() -> None:
    with pytest.raises(NoAnswerError):
        await tail(of_tail("http://127.0.0.1:1"))
    async with region_of(0, agent=False) as region, served(region) as gateway:
        with pytest.raises(NotFoundError):
            await tail(of_tail(gateway.url))


@pytest.mark.parametrize("command", [("top",), ("telemetry", "tail", NODE)])
async def test_ctrl_c_ends_it_without_a_word(command: tuple[str, ...]) -> None:
    async with region_of(1) as region, served(region) as gateway:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "axiom_cli", *command, "--url", gateway.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await eventually(lambda: len(gateway.app.watches) == 1, within_s=20)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert b"Traceback" not in out
