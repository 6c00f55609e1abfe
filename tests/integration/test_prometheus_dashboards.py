"""Every query of every dashboard, asked of a real Prometheus that scrapes the stack of `axiom up`
and evaluates the committed rules: no error, no empty panel, no legend without its labels."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from tests.eventually import eventually
from tests.grafana_dashboards import Query, queries
from tests.nvml_host import NvmlHost, build_library
from tests.prometheus_server import ROOT, RULES, Prometheus, Series, prometheus_server
from tests.servers import ChildServer, free_port, running
from tests.service_process import service_process

from axiom_cli.stack.stack import CONFIG, Stack, running_stack
from axiom_cli.stack.topology import (
    GATEWAY,
    NATS_PROCESS,
    REGION,
    VALKEY_PROCESS,
    EngineShape,
    StackOptions,
)
from axiom_common.model.engine import GpuState

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

ADAPTERS = 5
SLOTS = 2
"""Of the whole fleet: with requests for all adapters at a time some are held, and adapters move."""
SCRAPE = "1s"
WINDOW = "10s"
"""`$__rate_interval`: what Grafana would make it is 4 s; a loaded machine scrapes late."""
FILLED_WITHIN_S = 60.0
POLL_S = 0.5
HOT = GpuState(index=0, temperature_c=84.0, power_w=640.0, throttle=64)
COOL = GpuState(index=1, temperature_c=51.0, power_w=300.0, throttle=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A stack, a second gateway of its region that holds nobody for long, and who watches both."""

    stack: Stack
    impatient: ChildServer
    prometheus: Prometheus
    started_s: float


def scrape_targets(stack: Stack, impatient_ops: str) -> dict[str, list[str]]:
    """What is scraped, by the jobs of deploy/prometheus/prometheus.yml."""
    by_job: dict[str, list[str]] = {"gateway": [impatient_ops], "node-agent": []}
    for process, url in stack.metrics_urls.items():
        job = "node-agent" if process.startswith("agent-") else process
        by_job.setdefault(job, []).append(url)
    by_job["engine"] = list(stack.engine_urls.values())
    return {
        job: [url.removeprefix("http://").removesuffix("/metrics") for url in urls]
        for job, urls in by_job.items()
    }


def configuration(targets: dict[str, list[str]]) -> dict[str, Any]:
    """The committed configuration with this stack's targets, and with more haste."""
    config = dict(yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text()))
    config["global"] = {
        "scrape_interval": SCRAPE,
        "scrape_timeout": SCRAPE,
        "evaluation_interval": SCRAPE,
    }
    config["rule_files"] = [str(RULES / "*.yml")]
    jobs = [job for job in config["scrape_configs"] if job["job_name"] != "prometheus"]
    assert {job["job_name"] for job in jobs} == set(targets)
    for job in jobs:
        own = {"targets": targets[job["job_name"]], "labels": {"region": REGION}}
        job["static_configs"] = [own]
    return config | {"scrape_configs": jobs}


def give_gpus(run_dir: Path) -> None:
    """Each engine has a GPU of its own: before its agent starts, its settings say so."""
    (file,) = (run_dir / CONFIG).glob("agent-*.yaml")
    settings = yaml.safe_load(file.read_text())
    for index, engine in enumerate(settings["engines"]):
        engine["gpus"] = [index]
    file.write_text(yaml.safe_dump(settings))


@contextmanager
def nvml(folder: Path) -> Iterator[None]:
    """Processes that start here find NVML, with a hot GPU and a cool one."""
    build_library(folder)
    NvmlHost(folder).show(HOT, COOL)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LD_LIBRARY_PATH", str(folder))
        environment.setenv("NVML_STUB", str(folder / "answers"))
        yield


def impatient_gateway(stack: Stack, ops_port: int) -> ChildServer:
    """Refuses what its patient sister would hold."""
    run_dir = stack.options.run_dir
    settings = yaml.safe_load((run_dir / CONFIG / f"{GATEWAY}.yaml").read_text())
    settings |= {"gateway": "impatient", "ops_port": ops_port, "hold_ms": 100.0}
    return service_process("gateway", run_dir / "impatient", settings)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    options = StackOptions(
        run_dir=folder / "stack",
        nodes=1,
        engines_per_node=SLOTS,
        engine=EngineShape(hbm_slots=1, host_slots=2),
        adapters=ADAPTERS,
    )
    with nvml(folder):
        async with running_stack(options, on_step=lambda _: give_gpus(options.run_dir)) as stack:
            ops_port = free_port()
            targets = scrape_targets(stack, f"127.0.0.1:{ops_port}")
            server = prometheus_server(folder / "prometheus", configuration(targets))
            with running(impatient_gateway(stack, ops_port)) as impatient, running(server):
                prometheus = Prometheus(server.url)
                expected = sum(len(urls) for urls in targets.values())
                await eventually(lambda: len(prometheus.now("up == 1")) == expected, within_s=60)
                yield Watched(
                    stack=stack,
                    impatient=impatient,
                    prometheus=prometheus,
                    started_s=time.time(),
                )


class Traffic:
    """Short streams for all adapters at a time, on fewer slots, until cancelled."""

    def __init__(self, watched: Watched) -> None:
        self._urls = (watched.stack.gateway.url, watched.impatient.url)
        self._statuses: set[int] = set()

    @property
    def is_varied(self) -> bool:
        """Whether requests were served, refused for want of room, and wrong."""
        return self._statuses >= {200, 404, 429}

    async def run(self) -> None:
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            for number in range(ADAPTERS):
                for url in self._urls:
                    group.create_task(self._client(session, url, f"adapter-{number + 1:02}"))
            group.create_task(self._client(session, self._urls[0], "nobody-knows-this"))

    async def _client(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        body = {"model": model, "stream": True, "max_tokens": 20, "messages": [SAY]}
        while True:
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                await response.read()
                self._statuses.add(response.status)
            if response.status != 200:
                # A client backs off; the next turn is a later one of the same traffic.
                await asyncio.sleep(0.1)


SAY = {"role": "user", "content": "Say something."}


def shortcoming(query: Query, series: list[Series]) -> str | None:
    """What a person would miss of what Prometheus answered."""
    if not any(not math.isnan(value) for one in series for _, value in one.values):
        return "empty"
    lacking = [query.legend_labels - one.labels.keys() for one in series]
    return f"a legend without {lacking}" if any(lacking) else None


async def test_no_panel_is_empty(watched: Watched) -> None:
    asked = list(queries(window=WINDOW, region=REGION, engine=".+"))
    traffic = Traffic(watched)
    deadline_s = time.monotonic() + FILLED_WITHIN_S
    async with asyncio.TaskGroup() as group:
        clients = group.create_task(traffic.run())
        try:
            while True:
                wrong = await shortcomings(watched, asked)
                asked = [query for query in asked if str(query) in wrong]
                if (not asked and traffic.is_varied) or time.monotonic() > deadline_s:
                    break
                await asyncio.sleep(POLL_S)
        finally:
            clients.cancel()
    assert wrong == {}
    assert traffic.is_varied


async def shortcomings(watched: Watched, asked: list[Query]) -> dict[str, str]:
    """Of each query what is wrong with its answer since the watch began; those that are right are
    left out."""
    found = {}
    for query in asked:
        series = await asyncio.to_thread(
            watched.prometheus.between,
            query.expr,
            start_s=watched.started_s,
            end_s=time.time(),
            step_s=1.0,
        )
        if (wrong := shortcoming(query, series)) is not None:
            found[str(query)] = wrong
    return found


async def test_rules_are_evaluated_without_an_error(watched: Watched) -> None:
    await eventually(
        lambda: {rule["health"] for rule in watched.prometheus.rules()} == {"ok"}, within_s=30
    )
    names = {rule["name"] for rule in watched.prometheus.rules()}
    told = [yaml.safe_load(path.read_text()) for path in RULES.glob("*.yml")]
    committed = [rule for file in told for group in file["groups"] for rule in group["rules"]]
    assert names == {rule.get("alert") or rule["record"] for rule in committed}


async def test_heat_gets_from_nvml_to_an_alert(watched: Watched) -> None:
    """It has stood for seconds only, so the alert is on its way; the cool engine has none."""
    throttled = ("AxiomEngineThrottled", "node-1.engine-1")
    await eventually(lambda: throttled in on_their_way(watched), within_s=30)
    assert ("AxiomEngineThrottled", "node-1.engine-2") not in on_their_way(watched)


async def test_what_is_away_gets_to_an_alert(watched: Watched) -> None:
    away = {("AxiomNatsAway", ""), ("AxiomRedisAway", "")}
    assert not away & on_their_way(watched)
    servers = [watched.stack.processes[name] for name in (NATS_PROCESS, VALKEY_PROCESS)]
    for server in servers:
        await server.kill()
    try:
        await eventually(lambda: away <= on_their_way(watched), within_s=60)
    finally:
        for server in servers:
            await server.restart()
    await eventually(lambda: not away & on_their_way(watched), within_s=60)


def on_their_way(watched: Watched) -> set[tuple[str, str]]:
    """Alerts whose condition holds, whether for long enough or not yet, with their engine."""
    return {
        (alert["labels"]["alertname"], alert["labels"].get("engine", ""))
        for rule in watched.prometheus.rules()
        if rule["type"] == "alerting"
        for alert in rule["alerts"]
    }


async def test_an_empty_answer_would_be_found() -> None:
    query = Query(dashboard="d", panel="p", ref="A", expr="up", legend="{{region}} {{job}}")
    nan = Series(labels={"region": "r", "job": "j"}, values=((0.0, math.nan),))
    assert shortcoming(query, []) == shortcoming(query, [nan]) == "empty"
    assert shortcoming(query, [Series(labels={"region": "r"}, values=((0.0, 1.0),))])
    good = Series(labels={"region": "r", "job": "j"}, values=((0.0, 0.0),))
    assert shortcoming(query, [good]) is None
