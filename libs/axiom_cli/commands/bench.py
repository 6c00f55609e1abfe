"""`axiom bench`: what Axiom costs, measured."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from axiom_cli.bench.churn import ChurnOptions, bench_churn
from axiom_cli.bench.decide import DecideBenchOptions, bench_decide
from axiom_cli.bench.gateway import ROUTERS, GatewayBenchOptions, bench_gateway
from axiom_cli.bench.index import IndexBenchOptions, bench_index
from axiom_cli.bench.mirror import MirrorBenchOptions, bench_mirror
from axiom_cli.bench.telemetry import TelemetryBenchOptions, bench_telemetry
from axiom_cli.commands.options import AsJson
from axiom_cli.commands.running import run
from axiom_cli.output import told_errors

app = typer.Typer(help="Measure Axiom, and its peers beside it.", no_args_is_help=True)


@app.command("gateway")
def bench_gateway_command(
    engines: Annotated[int, typer.Option(min=1, max=1000, help="Engines behind each router.")] = 4,
    adapters: Annotated[int, typer.Option(min=0, max=10_000, help="Adapters, all resident.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="All peers in turn, so often.")] = 3,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=60, help="Load of each step of a round.")
    ] = 2.0,
    peers: Annotated[
        str, typer.Option(help="Which to measure, by name; those not installed are left out.")
    ] = ",".join(ROUTERS),
    peers_dir: Annotated[
        Path, typer.Option("--dir", file_okay=False, help="Where `make bench-peers` put them.")
    ] = Path(".peers"),
    document: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Markdown file: replace its figures by these."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """CPU and latency of a request through the gateway, and through other routers."""
    options = GatewayBenchOptions(
        engines=engines,
        adapters=adapters,
        rounds=rounds,
        seconds=seconds,
        peers=tuple(name.strip() for name in peers.split(",") if name.strip()),
        peers_dir=peers_dir,
        as_json=as_json,
        document=document,
    )
    with told_errors(as_json=as_json):
        run(bench_gateway(options))


class Source(StrEnum):
    """How agents know what is resident."""

    EXTENSION = "extension"
    POLLED = "polled"


@app.command("telemetry")
def bench_telemetry_command(
    nodes: Annotated[int, typer.Option(min=1, max=4096, help="In the region, all in all.")] = 50,
    agents: Annotated[int, typer.Option(min=1, max=64, help="Of them with a real agent.")] = 4,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="Measured.")] = 40.0,
    source: Annotated[
        Source, typer.Option(help="How agents know what is resident.")
    ] = Source.EXTENSION,
    as_json: AsJson = False,
) -> None:
    """From a change in an engine to a gateway's view, and the CPU of each part."""
    options = TelemetryBenchOptions(
        nodes=nodes, agents=agents, seconds=seconds, source=source.value, as_json=as_json
    )
    with told_errors(as_json=as_json):
        run(bench_telemetry(options))


@app.command("churn")
def bench_churn_command(
    nodes: Annotated[int, typer.Option(min=1, max=4096, help="That come and go.")] = 1000,
    rounds: Annotated[int, typer.Option(min=2, max=100, help="How often.")] = 10,
    silent: Annotated[bool, typer.Option(help="They go without a word; takes longer.")] = False,
    new_names: Annotated[bool, typer.Option(help="Other nodes in each round.")] = False,
    as_json: AsJson = False,
) -> None:
    """Memory of telemetry, Redis and gateway while nodes come and go."""
    options = ChurnOptions(
        nodes=nodes, rounds=rounds, silent=silent, same_names=not new_names, as_json=as_json
    )
    with told_errors(as_json=as_json):
        run(bench_churn(options))


@app.command("index")
def bench_index_command(
    chunks: Annotated[int, typer.Option(min=100_000, max=4_000_000, help="Stored.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="All in turn, so often.")] = 3,
    peers_dir: Annotated[
        Path, typer.Option("--dir", file_okay=False, help="Where `make bench-peers` put others.")
    ] = Path(".peers"),
    as_json: AsJson = False,
) -> None:
    """Look-ups, writing and memory of the prefix state index, and of Dynamo's."""
    options = IndexBenchOptions(chunks=chunks, rounds=rounds, peers_dir=peers_dir, as_json=as_json)
    with told_errors(as_json=as_json):
        bench_index(options)


@app.command("decide")
def bench_decide_command(
    engines: Annotated[int, typer.Option(min=1, max=10_000, help="Of the large fleet.")] = 1_000,
    adapters: Annotated[int, typer.Option(min=1, max=100_000, help="Asked for.")] = 10_000,
    chunks: Annotated[int, typer.Option(min=10_000, max=4_000_000, help="Indexed.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Each in turn, so often.")] = 3,
    as_json: AsJson = False,
) -> None:
    """What one decision costs, on a small fleet and on a large one with a long prompt."""
    options = DecideBenchOptions(
        engines=engines, adapters=adapters, chunks=chunks, rounds=rounds, as_json=as_json
    )
    with told_errors(as_json=as_json):
        bench_decide(options)


@app.command("mirror")
def bench_mirror_command(
    tokenizer: Annotated[Path, typer.Argument(help="A model's folder, or its tokenizer.json.")],
    blocks: Annotated[int, typer.Option(min=1_000, max=1_000_000, help="Stored.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often.")] = 3,
    as_json: AsJson = False,
) -> None:
    """What an engine's KV events cost an agent, re-encoding included."""
    options = MirrorBenchOptions(tokenizer=tokenizer, blocks=blocks, rounds=rounds, as_json=as_json)
    with told_errors(as_json=as_json):
        bench_mirror(options)
