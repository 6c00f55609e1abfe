"""`axiom top` and `axiom telemetry tail` against a gateway with a real agent, and without one."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from rich.console import Console
from tests.answering import problem, server
from tests.eventually import eventually
from tests.gateway_region import (
    ADMIN_SECRET,
    BASE_MODEL,
    COMPLETIONS,
    NODE,
    Gateway,
    region_of,
    served,
)
from tests.terminal import CTRL_C, ENTER_SCREEN, LEAVE_SCREEN, SHOW_CURSOR, Terminal, terminal

from axiom_cli import tail as tail_module
from axiom_cli.admin import WATCH_PATH, Target, admin_of
from axiom_cli.admin_client import NoAnswerError, UnauthenticatedError
from axiom_cli.tail import TailOptions, tail
from axiom_cli.top import TopOptions, _Board, top
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import NotFoundError
from axiom_common.model.engine import GpuState
from axiom_common.testing.gpus import FakeGpus
from axiom_common.wire.examples import NODE_VIEW

LONG: dict[str, Any] = {
    "model": "sql",
    "prompt": "hi",
    "max_tokens": 3_000,
    "stream": True,
    "ignore_eos": True,
}


def target(url: str) -> Target:
    return Target(url, ADMIN_SECRET)


def of_top(url: str, *nodes: str, as_json: bool = False, model: str | None = None) -> TopOptions:
    return TopOptions(target=target(url), nodes=nodes, model=model, once=True, as_json=as_json)


def of_tail(url: str, *, count: int | None = None, as_json: bool = False) -> TailOptions:
    return TailOptions(target=target(url), node=NODE, seconds=20.0, count=count, as_json=as_json)


def axiom(*command: str, gateway: Gateway, folder: Path) -> tuple[str, ...]:
    """The command line that asks this gateway with its key."""
    file = folder / "key"
    file.write_text(ADMIN_SECRET)
    asked = ("--url", gateway.url, "--key-file", str(file))
    return (sys.executable, "-m", "axiom_cli", *command, *asked)


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

        async with admin_of(target(gateway.url)) as admin, asyncio.TaskGroup() as group:
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


async def test_tail_waits_for_a_gateway_that_has_not_heard_of_the_node_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tail_module, "RETRY_S", 0.0)
    view = NODE_VIEW.model_dump_json()
    watched = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal watched
        if request.path != WATCH_PATH:
            return web.Response(text=view)
        watched += 1
        if watched < 3:
            return problem(404, "no node is known", "not-found")
        return web.Response(text=f"event: node\ndata: {view}\n\n")

    async with server(answer) as url:
        await tail(of_tail(url, count=1, as_json=True))
    assert watched == 3
    assert json.loads(capsys.readouterr().out) == json.loads(view)


async def test_off_a_terminal_top_shows_once(tmp_path: Path) -> None:
    async with region_of(1) as region, served(region) as gateway:
        await gateway.sees(*(engine.id for engine in region.engines))
        process = await asyncio.create_subprocess_exec(
            *axiom("top", gateway=gateway, folder=tmp_path),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert NODE.encode() in out


async def test_ctrl_c_ends_a_tail_without_a_word(tmp_path: Path) -> None:
    async with region_of(1) as region, served(region) as gateway:
        process = await asyncio.create_subprocess_exec(
            *axiom("telemetry", "tail", NODE, gateway=gateway, folder=tmp_path),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await eventually(lambda: len(gateway.app.watches) == 1, within_s=20)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert b"Traceback" not in out


async def test_a_wrong_key_ends_it() -> None:
    async with region_of(0, agent=False) as region, served(region) as gateway:
        wrong = TopOptions(
            target=Target(gateway.url, "x" * 40), nodes=(), model=None, once=False, as_json=False
        )
        with pytest.raises(ExceptionGroup) as raised:
            await top(wrong)
        assert raised.group_contains(UnauthenticatedError, match="axiom keys list")


@pytest.mark.parametrize("key", ["q", CTRL_C])
async def test_a_person_watches_a_fleet_in_a_terminal(key: str, tmp_path: Path) -> None:
    """One engine with one seat and two requests, one of them past the gateway: one has to wait."""
    async with region_of(1, agent=False, time_scale=1.0, max_num_seqs=1) as region:
        await region.start_agent(gpus=FakeGpus(GpuState(index=0, temperature_c=71.0)))
        async with served(region) as gateway, asyncio.TaskGroup() as clients:
            await region.declare("sql")
            await gateway.knows("sql")
            asked: list[asyncio.Task[Any]] = [
                clients.create_task(gateway.post(COMPLETIONS, LONG), name="a client")
            ]
            await eventually(lambda: gateway.booked)
            await eventually(lambda: region.engines[0].running == 1)
            other = past_the_gateway(region.engines[0].url)
            asked.append(clients.create_task(other, name="another one"))
            command = axiom("top", gateway=gateway, folder=tmp_path)
            async with terminal(*command, columns=100, lines=30) as screen:
                await eventually(
                    lambda: fields_of("e1", screen)[1:5] == ["ready", "1", "1", "1"], within_s=20
                )
                assert screen.shows("engine", "flight", "run", "wait", "KV")
                assert screen.shows(f"{NODE} alive", "GPU 0 71 °C", "HBM 1/2", "sql~1 ×1")
                assert not screen.echoes
                # So narrow that the heads do not fit, and wider again.
                screen.resize(40, 12)
                await eventually(lambda: any(line.endswith("…") for line in screen.shown))
                assert max(map(len, screen.shown)) <= 40
                screen.resize(120, 40)
                await eventually(lambda: screen.shows("TPOT   sample"))
                screen.press("x")
                screen.press(key)
                assert await screen.ended() == 0
                await eventually(lambda: LEAVE_SCREEN in screen.output)
                assert screen.settings == screen.before
                assert screen.output.count(ENTER_SCREEN) == screen.output.count(LEAVE_SCREEN) == 1
                assert screen.output.rindex(SHOW_CURSOR) > screen.output.index(ENTER_SCREEN)
                assert b"Traceback" not in screen.output
            for task in asked:
                task.cancel()


async def past_the_gateway(url: str) -> None:
    """A long request that no gateway counts."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(url + COMPLETIONS, json=LONG | {"model": BASE_MODEL}) as response,
    ):
        await response.read()


def fields_of(engine: str, screen: Terminal) -> list[str]:
    """The row of an engine."""
    rows = (line.split() for line in screen.shown)
    return next((row for row in rows if row[:1] == [engine]), [])
