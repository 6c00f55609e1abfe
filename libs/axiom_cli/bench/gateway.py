"""`axiom bench gateway`: CPU and latency of a request through Axiom's gateway and other routers.

All routers go in front of the same stand-ins for engines, one at a time, in turn; so for each
round. CPU is that of the router's process tree, the least of the rounds: what disturbs only adds.
Latency is the median of the rounds, less that of the engines asked directly in the same round.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from axiom_cli.bench import telemetry_cost
from axiom_cli.bench.collector import collector
from axiom_cli.bench.document import SECTION, section, write_section
from axiom_cli.bench.peers import MODEL, PEERS, Router, Setting
from axiom_cli.bench.processes import Cores, Running, running, take_cores
from axiom_cli.bench.region import adapter_specs, declare, region
from axiom_cli.bench.tools import (
    Load,
    LoadResult,
    Tools,
    built_tools,
    engines,
    is_answered,
    put_load,
)
from axiom_cli.machine import commit, machine
from axiom_cli.output import print_figures, progress_console, table_console
from axiom_cli.stack.ports import reserved_ports
from axiom_cli.stack.servers import HOST
from axiom_common.errors import InvalidInputError, UnavailableError

AXIOM = "axiom"
AXIOM_MODULE, UNTOLD_MODULE = "axiom_gateway", "axiom_cli.bench.untold_gateway"
TOLD, UNTOLD = "told", "untold"
ROUTERS = (*PEERS, AXIOM)
DIRECT = "direct"
READY_TIMEOUT_S = 60.0
POLL_S = 0.1
WARM_UP_SHARE = 0.25
"""Of the seconds of a step; all are warmed up before the first one is measured, but `streams`,
which `stream` warms up as well."""
SETTLE_S = 0.2
RATE_RPS = 50.0
WORDS = ("the", "a", "of", "fleet", "adapter", "engine", "slot", "request", "token", "load")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayBenchOptions:
    """`seconds` is the load of each step; `peers_dir` has what `make bench-peers` installed."""

    engines: int
    adapters: int
    rounds: int
    seconds: float
    peers: tuple[str, ...]
    peers_dir: Path
    as_json: bool
    document: Path | None = None
    """Where to write the figures as well; see `document`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One load: which body, over how many connections; `rate` 0: as fast as it goes."""

    body: str
    connections: int
    rate: float = 0.0


STEPS = {
    "small": Step("small", 32),
    "small-adapter": Step("adapter", 32),
    "streams": Step("stream", 64),
    "stream": Step("stream", 1),
    "32kB": Step("32kB", 8),
    "128kB": Step("128kB", 8),
    "paced": Step("small", 8, RATE_RPS),
}
"""By name. `small-adapter` is for Axiom alone: no peer routes by adapter."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One step at one router: what the load saw, and the CPU that the router spent."""

    load: LoadResult
    cpu_s: float

    @property
    def us(self) -> float:
        """CPU us a request."""
        return self.cpu_s / self.load.done * 1e6


Round = Mapping[str, Mapping[str, Measured]]
"""By router, by step."""


@dataclass(frozen=True, slots=True)
class _Started:
    """A router that runs."""

    router: Router
    process: Running


@dataclass(frozen=True, slots=True)
class _Bench:
    options: GatewayBenchOptions
    tools: Tools
    cores: Cores
    folder: Path
    bodies: Mapping[str, Path]
    console: Console


async def bench_gateway(options: GatewayBenchOptions) -> None:
    """Measure all that is installed, print the figures."""
    if unknown := set(options.peers) - set(ROUTERS):
        raise InvalidInputError(f"no such peer: {', '.join(sorted(unknown))}", path="peers")
    console = progress_console()
    installed = [name for name in options.peers if _is_installed(name, options)]
    for name in sorted(set(options.peers) - set(installed)):
        console.print(f"{name} is not installed: left out (`make bench-peers` installs it)")
    tools, told = built_tools(options.peers_dir / "bin"), machine()
    folder = Path(tempfile.mkdtemp(prefix="axiom-bench-"))
    bench = _Bench(options, tools, take_cores(), folder, _bodies(folder), console)
    console.print(f"Logs while it runs, and after it failed: {folder}", style="dim")
    rounds = [await _round(bench, number, installed) for number in range(options.rounds)]
    shutil.rmtree(folder)
    figures = {name: figures_of(name, rounds) for name in installed}
    result = {
        "peers": figures,
        "engines": options.engines,
        "adapters": options.adapters,
        "machine": told,
        "commit": commit(),
        "seconds": options.seconds,
        "repeats": options.rounds,
    }
    if options.document is not None:
        write_section(options.document, SECTION, section(result, _command(options)))
    if options.as_json:
        print_figures(result)
    else:
        table_console().print(_table(figures))


def figures_of(name: str, rounds: Sequence[Round]) -> dict[str, float]:
    """The figures of one router over all rounds."""

    def cpu_us(step: str) -> float:
        return min(r[name][step].us for r in rounds)

    def added_ms(share: str) -> float:
        paced = [(r[name]["paced"].load, r[DIRECT]["paced"].load) for r in rounds]
        return median(
            float(getattr(seen, share) - getattr(direct, share)) for seen, direct in paced
        )

    def first_byte_ms(step: str) -> float:
        return median(r[name][step].load.first_byte_ms_p50 for r in rounds)

    streams = [r[name]["streams"] for r in rounds]
    figures = {
        "cpu_us_small": cpu_us("small"),
        "cpu_us_chunk": min(m.cpu_s / m.load.events for m in streams) * 1e6,
        "cpu_us_32kB": cpu_us("32kB"),
        "cpu_us_128kB": cpu_us("128kB"),
        "added_ms_p50": added_ms("p50_ms"),
        "added_ms_p99": added_ms("p99_ms"),
        "first_byte_ms": first_byte_ms("stream"),
        "first_byte_ms_64": first_byte_ms("streams"),
    }
    if "small-adapter" in rounds[0][name]:
        figures["cpu_us_small_adapter"] = cpu_us("small-adapter")
    if UNTOLD in rounds[0][name]:
        figures["cpu_us_small_without_telemetry"] = cpu_us(UNTOLD)
        figures["telemetry_share"] = telemetry_cost.share(cpu_us(TOLD), cpu_us(UNTOLD))
    return {key: round(value, 3) for key, value in figures.items()}


def _command(options: GatewayBenchOptions) -> str:
    return (
        f"axiom bench gateway --engines {options.engines} --adapters {options.adapters} "
        f"--rounds {options.rounds} --seconds {options.seconds:g}"
    )


def _is_installed(name: str, options: GatewayBenchOptions) -> bool:
    return name == AXIOM or PEERS[name].installed(options.peers_dir) is not None


async def _round(bench: _Bench, number: int, names: Sequence[str]) -> Round:
    measured = {}
    for name in (DIRECT, *names):
        folder = bench.folder / f"{number}-{name}"
        folder.mkdir()
        async with engines(
            bench.tools,
            bench.options.engines,
            core=bench.cores.others,
            log_path=folder / "engine.log",
        ) as ports:
            measured[name] = await _measure(bench, name, folder, ports)
        small = measured[name]["small" if name != DIRECT else "paced"]
        bench.console.print(
            f"round {number + 1}: {name} {small.us:.1f} us a small "
            f"request, {small.load.done} of them",
            style="dim",
        )
    return measured


async def _measure(bench: _Bench, name: str, folder: Path, ports: range) -> dict[str, Measured]:
    if name == DIRECT:
        load = await put_load(bench.tools, ports[0], _load(bench, STEPS["paced"]))
        return {"paced": Measured(load, 0.0)}
    async with contextlib.AsyncExitStack() as stack:
        if name == AXIOM:
            return await _measure_axiom(bench, folder, ports, stack)
        at = stack.enter_context(reserved_ports([("router", 0), ("metrics", 0)]))
        peer = PEERS[name]
        program = peer.installed(bench.options.peers_dir)
        assert program is not None
        setting = Setting(
            folder=folder, port=at["router"], metrics_port=at["metrics"], engines=ports
        )
        started = await _start(bench, name, peer.started(program, setting), folder, stack)
        await _until_answers(bench, name, started)
        return await _steps(bench, name, started)


async def _measure_axiom(
    bench: _Bench, folder: Path, engine_ports: range, stack: contextlib.AsyncExitStack
) -> dict[str, Measured]:
    """All steps at a gateway that tells of its requests; then one like it and one that does not
    tell, both started for it, in turns."""
    specs, core = adapter_specs(bench.options.adapters), bench.cores.others
    names = (AXIOM, TOLD, UNTOLD, "ops", "told-ops")
    ports = stack.enter_context(reserved_ports([(name, 0) for name in names]))
    spans = await stack.enter_async_context(collector())
    gateways = await stack.enter_async_context(region(folder, engine_ports, specs, core=core))
    telling = {"otlp_endpoint": spans.url, "trace_ratio": telemetry_cost.TRACE_RATIO}

    async def started(name: str, module: str, **settings: object) -> _Started:
        router = gateways.router(name, module, port=ports[name], **settings)
        return await _start(bench, name, router, folder, stack)

    axiom = await started(AXIOM, AXIOM_MODULE, **telling, ops_port=ports["ops"])
    await declare(gateways.target(axiom.router), specs, len(engine_ports))
    await _until_answers(bench, AXIOM, axiom)
    measured = await _steps(bench, AXIOM, axiom)
    told = await started(TOLD, AXIOM_MODULE, **telling, ops_port=ports["told-ops"])
    untold = await started(UNTOLD, UNTOLD_MODULE)
    for name, one in ((TOLD, told), (UNTOLD, untold)):
        await _until_answers(bench, name, one)
        await put_load(bench.tools, one.router.port, _load(bench, STEPS["small"]))
    metrics_url = f"http://{HOST}:{ports['told-ops']}/metrics"
    measured |= await _in_turns(bench, told, untold, metrics_url)
    if not spans.spans:
        raise UnavailableError("no span came to the collector: the gateway told of no request")
    return measured


async def _in_turns(
    bench: _Bench, told: _Started, untold: _Started, metrics_url: str
) -> dict[str, Measured]:
    small = STEPS["small"]
    told_best, untold_best = await telemetry_cost.in_turns(
        lambda: telemetry_cost.scraped(metrics_url, _step(bench, told, small)),
        lambda: _step(bench, untold, small),
        cost=lambda measured: measured.us,
    )
    return {TOLD: told_best, UNTOLD: untold_best}


async def _steps(bench: _Bench, name: str, started: _Started) -> dict[str, Measured]:
    """Every step, once all are warmed up."""
    steps = {n: s for n, s in STEPS.items() if n != "small-adapter" or _asks(bench, name)}
    for step in (step for name, step in steps.items() if name != "streams"):
        await put_load(bench.tools, started.router.port, _load(bench, step, WARM_UP_SHARE))
    return {name: await _step(bench, started, step) for name, step in steps.items()}


async def _step(bench: _Bench, started: _Started, step: Step) -> Measured:
    await asyncio.sleep(SETTLE_S)
    before_s = started.process.cpu_s()
    load = await put_load(bench.tools, started.router.port, _load(bench, step))
    measured = Measured(load, started.process.cpu_s() - before_s)
    started.process.check()
    return measured


async def _start(
    bench: _Bench, name: str, router: Router, folder: Path, stack: contextlib.AsyncExitStack
) -> _Started:
    """A router that ends with the stack."""
    process = await stack.enter_async_context(
        running(
            router.argv,
            log_path=folder / f"{name}.log",
            core=bench.cores.router,
            environment=router.environment,
        )
    )
    return _Started(router, process)


async def _until_answers(bench: _Bench, name: str, started: _Started) -> None:
    ready = bench.bodies["ready"].read_bytes()
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while not await is_answered(started.router.port, ready):
                started.process.check()
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise UnavailableError(f"{name} does not serve after {READY_TIMEOUT_S:.0f} s") from error


def _asks(bench: _Bench, name: str) -> bool:
    """Whether requests for adapters are measured."""
    return name == AXIOM and bench.options.adapters > 0


def _load(bench: _Bench, step: Step, share: float = 1.0) -> Load:
    return Load(
        body=bench.bodies[step.body],
        connections=step.connections,
        seconds=bench.options.seconds * share,
        rate=step.rate,
        models=bench.options.adapters,
    )


def _bodies(folder: Path) -> dict[str, Path]:
    """Requests by name. The marks are replaced by the load generator; a prompt begins with its
    number, so that no prefix is shared."""
    words = Random(1).choices(WORDS, k=40_000)
    text = " ".join(words)

    def body(prompt: str, model: str = MODEL, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": f"<NUMBER> {prompt}"}]
        return {"model": model, "messages": messages, "max_tokens": 16, "temperature": 0, **more}

    wanted = {
        "small": body("Say hello, in as few words as a helpful assistant can."),
        "adapter": body("Say hello, in as few words as a helpful assistant can.", "bench-<MODEL>"),
        "stream": body("Say hello.", stream=True),
        "32kB": body(text[:32_000]),
        "128kB": body(text[:128_000]),
        "ready": body("Are you there?"),
    }
    paths = {name: folder / f"{name}.json" for name in wanted}
    for name, document in wanted.items():
        paths[name].write_text(json.dumps(document))
    return paths


def _table(figures: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column("router")
    heads = list(dict.fromkeys(key for of in figures.values() for key in of))
    for head in heads:
        table.add_column(head.replace("_", " "), justify="right")
    for name, of in figures.items():
        table.add_row(name, *(f"{of[head]:g}" if head in of else "" for head in heads))
    return table
