"""A node's engines as they are run: one that tells of itself and falls silent, one that is not
there yet, others that come and go with the settings file."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import aiohttp
import pytest
from tests.agent_process import NODE, Node, get_json, running_agent, write_settings
from tests.contract.extension_suite import NAMES, Crowd
from tests.contract.simulated_engine import adapter_folders, simulated_engine
from tests.contract.vllm_client import VllmClient
from tests.eventually import eventually
from tests.servers import ChildServer

from axiom_common.model.adapter import AdapterState, ResidencySource
from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.ids import EngineId, RegionId

RESIDENT, HOST = AdapterState.RESIDENT, AdapterState.HOST
TOKEN = "a-word"
ADAPTERS = tuple(f"ad{n}" for n in range(4))


@dataclass
class Telling:
    """An engine with the extension, and how settings tell of it."""

    server: ChildServer
    settings: dict[str, object]
    socket: Path

    def faults(self, body: bytes) -> None:
        with urlopen(Request(f"{self.server.url}/sim/faults", data=body), timeout=5) as answer:
            assert answer.status == 200

    def word(self) -> list[tuple[str, AdapterState]]:
        """What it holds under a name, by its own word: oldest first."""
        asked = Request(
            f"{self.server.url}/axiom/v1/state", headers={"authorization": f"Bearer {TOKEN}"}
        )
        with urlopen(asked, timeout=5) as answer:
            told = json.load(answer)
        names = {entry["id"]: name for name, entry in told["names"]["registered"].items()}
        in_hbm, host = set(told["residency"]["hbm"]), told["residency"]["host"]
        return [(names[n], RESIDENT if n in in_hbm else HOST) for n in host if n in names]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    return adapter_folders(tmp_path, ADAPTERS)


@pytest.fixture
def telling(tmp_path: Path, folders: Path) -> Iterator[Telling]:
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="ext") as folder:
        socket, token = Path(folder, "sub", "e1.sock"), Path(folder, "token")
        token.write_text(f"{TOKEN}\n")
        flags = ("--agent-socket", str(socket), "--agent-token", TOKEN, "--tell-loaded")
        server = simulated_engine(tmp_path / "telling", *flags)
        server.start()
        settings = {
            "url": server.url,
            "extension_socket": str(socket),
            "extension_token_file": str(token),
        }
        yield Telling(server, settings, socket)
        server.stop()


def held(state: EngineState) -> list[tuple[str, AdapterState]]:
    return [(r.adapter, r.state) for r in state.residents]


def sources(state: EngineState) -> set[ResidencySource]:
    return {r.source for r in state.residents}


def metrics(node: Node) -> str:
    with urlopen(f"{node.agent.url}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


async def test_an_engine_that_tells_falls_silent_and_is_heard_again(
    tmp_path: Path, region: RegionId, nats_url: str, telling: Telling, folders: Path
) -> None:
    agent = tmp_path / "agent"
    async with running_agent(agent, region, nats_url, telling.settings, folders) as node:
        await node.ready()
        for adapter in ADAPTERS[:3]:
            assert await node.ensured(adapter) is EnsureOutcome.RESIDENT
        await node.told(lambda: sources(node.state) == {ResidencySource.EXTENSION})
        # Nobody but the engine says that.
        await node.complete("ad0~1")
        order = [("ad1~1", HOST), ("ad2~1", RESIDENT), ("ad0~1", RESIDENT)]
        await node.told(lambda: held(node.state) == order)
        told = len(node.reports)

        telling.faults(b'{"extension_silent": true}')
        await node.told(lambda: sources(node.state) == {ResidencySource.METRICS}, within_s=30.0)
        assert held(node.state) == order
        assert get_json(f"{node.agent.url}/readyz")["engines"]["n1.e1"]["source"] == "metrics"
        await node.complete("ad1~1")
        await node.told(
            lambda: dict(held(node.state)) == {"ad0~1": RESIDENT, "ad1~1": RESIDENT, "ad2~1": HOST}
        )

        telling.faults(b"{}")
        await node.told(lambda: sources(node.state) == {ResidencySource.EXTENSION}, within_s=30.0)
        assert held(node.state) == [("ad2~1", HOST), ("ad0~1", RESIDENT), ("ad1~1", RESIDENT)]
        switches = "axiom_node_agent_residency_source_switches_total"
        assert f'{switches}{{engine="n1.e1",source="extension"}} 2.0' in metrics(node)
        assert f'{switches}{{engine="n1.e1",source="metrics"}}' in metrics(node)
        for report in node.reports[told:]:
            for engine in report.engines:
                assert len(engine.residents) == 3, "none looked absent"


async def test_a_new_process_of_an_engine_that_tells_holds_nothing(
    tmp_path: Path, region: RegionId, nats_url: str, telling: Telling, folders: Path
) -> None:
    agent = tmp_path / "agent"
    async with running_agent(agent, region, nats_url, telling.settings, folders) as node:
        await node.ready()
        assert await node.ensured("ad0") is EnsureOutcome.RESIDENT
        await node.told(lambda: held(node.state) == [("ad0~1", RESIDENT)])
        telling.server.kill()
        await node.told(lambda: node.state.status is EngineStatus.UNREACHABLE)
        assert held(node.state) == [("ad0~1", RESIDENT)], "nobody knows yet that it is gone"
        telling.server.start()
        await node.told(lambda: node.state.residents == () and node.state.registered == ())
        await node.ready()
        assert await node.ensured("ad1") is EnsureOutcome.RESIDENT
        await node.told(lambda: sources(node.state) == {ResidencySource.EXTENSION})
        assert 'axiom_node_agent_engine_restarts_total{engine="n1.e1"} 1.0' in metrics(node)


async def test_what_an_engine_told_while_its_agent_was_paused_is_not_missed(
    tmp_path: Path, region: RegionId, nats_url: str, telling: Telling, folders: Path
) -> None:
    agent = tmp_path / "agent"
    async with running_agent(agent, region, nats_url, telling.settings, folders) as node:
        await node.ready()
        for adapter in ADAPTERS:
            assert await node.ensured(adapter) is EnsureOutcome.RESIDENT
        node.agent.pause()
        # More than its socket takes: what is lost shows as a gap.
        for number in range(60):
            await node.complete(f"{ADAPTERS[number * 7 % 4]}~1", tokens=1)
        node.agent.resume()
        await node.told(lambda: held(node.state) == telling.word(), within_s=15.0)
        await node.complete("ad2~1", tokens=1)
        await node.told(lambda: held(node.state) == telling.word())
        assert telling.word()[-1] == ("ad2~1", RESIDENT)


async def test_after_a_crowd_the_view_is_what_the_engine_holds_whoever_died(
    tmp_path: Path, region: RegionId, nats_url: str, telling: Telling, folders: Path
) -> None:
    agent = tmp_path / "agent"
    # No connection outlives a request: the engine's death is none of the client's.
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as http,
        running_agent(agent, region, nats_url, telling.settings, folders) as node,
    ):
        await node.ready()
        url = telling.server.url
        client = VllmClient(url, http, base="tiny", path=lambda n: f"{folders}/ad{n % 4}")
        for seed in range(4):
            crowd = Crowd(client, seed)
            async with asyncio.TaskGroup() as clients:
                for number in range(4):
                    clients.create_task(crowd.one(), name=f"client {number}")
                if seed == 1:
                    node.agent.kill()
                    node.agent.start()
            if seed == 2:
                telling.server.kill()
                telling.server.start()
                await client.load(NAMES[0], 0)

            def agrees() -> bool:
                return tiers(node.state) == telling.word() and sources(node.state) <= {
                    ResidencySource.EXTENSION
                }

            await node.told(agrees, within_s=20.0)


def tiers(state: EngineState) -> list[tuple[str, AdapterState]]:
    return [(name, tier) for name, tier in held(state) if tier in (RESIDENT, HOST)]


async def test_engines_come_and_go_with_the_settings_file(
    tmp_path: Path, region: RegionId, nats_url: str, telling: Telling, folders: Path
) -> None:
    agent = tmp_path / "agent"
    late = simulated_engine(tmp_path / "late")
    late.start()
    late.stop()
    first, second = EngineId(f"{NODE}.e1"), EngineId(f"{NODE}.e2")
    async with running_agent(agent, region, nats_url, late.url, folders) as node:

        def states() -> dict[EngineId, EngineState]:
            told = node.view.node(NODE)
            return {e.engine: e for e in told.engines} if told else {}

        await node.told(lambda: states()[first].status is EngineStatus.UNREACHABLE)
        late.start()
        try:
            await node.told(lambda: states()[first].status is EngineStatus.READY)
            write_settings(agent, region, nats_url, late.url, telling.settings)
            await node.told(lambda: second in states(), within_s=15.0)
            await node.told(lambda: states()[second].status is EngineStatus.READY)
            assert await node.ensured("ad0") is EnsureOutcome.RESIDENT
            assert telling.socket.exists()

            (agent / "node.yaml").write_text("engines: nonsense\n")
            readyz = f"{node.agent.url}/readyz"
            await eventually(
                lambda: "settings-invalid" in get_json(readyz)["degraded"], within_s=15.0
            )
            assert get_json(readyz)["settings_problem"].startswith("node: Field required")
            assert states().keys() == {first, second}

            write_settings(agent, region, nats_url, late.url)
            await node.told(lambda: states().keys() == {first}, within_s=15.0)
            assert "ad0~1" in states()[first].registered, "what stays is not touched"
            await eventually(lambda: f'engine="{second}"' not in metrics(node))
            await eventually(lambda: not telling.socket.exists())
            assert get_json(readyz)["settings_problem"] is None
        finally:
            late.stop()
