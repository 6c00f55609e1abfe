"""The `axiom` command. Each command here reads its arguments and hands over to its module."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import uvloop

from axiom_cli import adapter_commands
from axiom_cli.admin import Target
from axiom_cli.bench.churn import ChurnOptions, bench_churn
from axiom_cli.bench.gateway import ROUTERS, GatewayBenchOptions, bench_gateway
from axiom_cli.bench.telemetry import TelemetryBenchOptions, bench_telemetry
from axiom_cli.demo.command import DemoOptions, demo
from axiom_cli.doctor import Wanted, doctor
from axiom_cli.explain import explain, question
from axiom_cli.machine import commit, machine, version
from axiom_cli.nats_config.command import write_config, write_key, write_setup
from axiom_cli.output import FAILED, print_figures, told_errors
from axiom_cli.status import status
from axiom_cli.tail import TailOptions, tail
from axiom_cli.top import TopOptions, top
from axiom_cli.up import UpOptions, up
from axiom_cli.why import why
from axiom_common.runtime.settings import read_secret
from axiom_common.wire import headers
from axiom_common.wire.decisions import EXPLAINED_MAX, PROMPT_TOKENS_MAX

GATEWAY_PORT = 8080
GATEWAY_URL = f"http://127.0.0.1:{GATEWAY_PORT}"

T = TypeVar("T")
_KEY_FILE = None

app = typer.Typer(
    name="axiom",
    help="Axiom: a control plane for fleets of LoRA adapters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

adapters_app = typer.Typer(help="Declare adapters, and see them.", no_args_is_help=True)
app.add_typer(adapters_app, name="adapters")

bench_app = typer.Typer(help="Measure Axiom, and its peers beside it.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

nats_app = typer.Typer(help="NATS in production form.", no_args_is_help=True)
app.add_typer(nats_app, name="nats")

telemetry_app = typer.Typer(help="Follow what nodes tell.", no_args_is_help=True)
app.add_typer(telemetry_app, name="telemetry")

TopologyFile = Annotated[Path, typer.Argument(help="YAML: servers, keys; see deploy/nats.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
GatewayUrl = Annotated[str, typer.Option("--url", help="The gateway to ask.")]
AdapterName = Annotated[str, typer.Argument(help="Name of the adapter.")]
PortNumber = Annotated[int, typer.Option(min=0, max=65535, help="Gateway port; 0: a free one.")]
NatsUrl = Annotated[
    str | None, typer.Option(help="An existing NATS with JetStream, e.g. nats://host:4222.")
]
RedisUrl = Annotated[
    str | None, typer.Option(help="An existing Redis or Valkey, e.g. redis://host:6379.")
]


@app.command("up")
def up_command(
    port: PortNumber = GATEWAY_PORT,
    run_dir: Annotated[
        Path | None,
        typer.Option("--dir", file_okay=False, help="Settings, data and logs; kept at the end."),
    ] = None,
    nats_url: NatsUrl = None,
    redis_url: RedisUrl = None,
) -> None:
    """Start a whole local fleet on simulated engines, and leave it running until Ctrl-C."""
    options = UpOptions(run_dir=run_dir, port=port, nats_url=nats_url, redis_url=redis_url)
    with told_errors(), contextlib.suppress(KeyboardInterrupt):
        _run(up(options))


@app.command("demo")
def demo_command(
    as_json: AsJson = False,
    report: Annotated[
        Path, typer.Option(dir_okay=False, help="Where to write the HTML report.")
    ] = Path("out/demo-report.html"),
    seconds: Annotated[
        float, typer.Option(min=4, max=400, help="Measured seconds of each policy.")
    ] = 40.0,
    seed: Annotated[int, typer.Option(min=0, help="Draws adapters and answers.")] = 1,
) -> None:
    """Replay public workload data through three policies: table, figures, HTML report."""
    with told_errors(as_json=as_json):
        _run(demo(DemoOptions(seconds=seconds, seed=seed, report=report, as_json=as_json)))


@app.command("status")
def status_command(url: GatewayUrl = GATEWAY_URL, as_json: AsJson = False) -> None:
    """What a gateway sees of its fleet."""
    with told_errors(as_json=as_json):
        _run(status(_target(url), as_json=as_json))


@app.command("top")
def top_command(
    url: GatewayUrl = GATEWAY_URL,
    node: Annotated[list[str] | None, typer.Option(help="Only this one; may be repeated.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Only engines with this base model or adapter.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Nodes, engines, slots with adapters, and how old each fact is, as they change."""
    options = TopOptions(
        target=_target(url), nodes=tuple(node or ()), model=model, once=once, as_json=as_json
    )
    with told_errors(as_json=as_json), contextlib.suppress(KeyboardInterrupt):
        _run(top(options))


@app.command("why")
def why_command(
    decision_id: Annotated[str, typer.Argument(help=f"{headers.DECISION} of an answer.")],
    url: GatewayUrl = GATEWAY_URL,
    as_json: AsJson = False,
) -> None:
    """Why a request went to its engine, and what became of it. Ask the gateway that served it."""
    with told_errors(as_json=as_json):
        _run(why(_target(url), decision_id, as_json=as_json))


@app.command("explain")
def explain_command(
    model: Annotated[str, typer.Argument(help="A base model or an adapter.")],
    url: GatewayUrl = GATEWAY_URL,
    prompt_tokens: Annotated[
        int, typer.Option(min=0, max=PROMPT_TOKENS_MAX, help="Length of the prompt.")
    ] = 0,
    profile: Annotated[
        str | None, typer.Option(help="How to decide; else as the gateway does.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=EXPLAINED_MAX, help="Engines to show.")
    ] = EXPLAINED_MAX,
    after: Annotated[str, typer.Option(help="Only engines behind this id.")] = "",
    as_json: AsJson = False,
) -> None:
    """Where a request for a model would go now, and why not to the other engines."""
    with told_errors(as_json=as_json):
        asked = question(
            model, prompt_tokens=prompt_tokens, profile=profile, limit=limit, after=after
        )
        _run(explain(_target(url), asked, as_json=as_json))


@telemetry_app.command("tail")
def tail_command(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    url: GatewayUrl = GATEWAY_URL,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.1, help="End after so many seconds.")
    ] = None,
    count: Annotated[int | None, typer.Option("-n", min=1, help="End after so many lines.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Each view as a line of JSON.")] = False,
) -> None:
    """What changes of a node in a gateway's view, as it changes."""
    options = TailOptions(
        target=_target(url), node=node, seconds=seconds, count=count, as_json=as_json
    )
    with told_errors(as_json=as_json), contextlib.suppress(KeyboardInterrupt):
        _run(tail(options))


@app.command("doctor")
def doctor_command(
    url: GatewayUrl = GATEWAY_URL,
    port: PortNumber = GATEWAY_PORT,
    nats_url: NatsUrl = None,
    redis_url: RedisUrl = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="An engine to look at; else those of the gateway.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at ports, binaries, NVML, NATS, Redis and engines, and say what to do."""
    wanted = Wanted(
        port=port,
        gateway=_target(url),
        nats_url=nats_url,
        redis_url=redis_url,
        engine_urls=tuple(engine or ()),
    )
    with told_errors(as_json=as_json):
        healthy = _run(doctor(wanted, as_json=as_json))
    if not healthy:
        raise typer.Exit(FAILED)


@adapters_app.command("apply")
def apply_command(
    file: Annotated[Path, typer.Argument(help="YAML: base_models, adapters; see examples/.")],
    url: GatewayUrl = GATEWAY_URL,
    as_json: AsJson = False,
) -> None:
    """Declare the base models and adapters of a file. Nothing is withdrawn."""
    with told_errors(as_json=as_json):
        complete = _run(adapter_commands.apply(_target(url), file, as_json=as_json))
    if not complete:
        raise typer.Exit(FAILED)


@adapters_app.command("list")
def list_command(url: GatewayUrl = GATEWAY_URL, as_json: AsJson = False) -> None:
    """All declared adapters."""
    with told_errors(as_json=as_json):
        _run(adapter_commands.list_adapters(_target(url), as_json=as_json))


@adapters_app.command("show")
def show_command(name: AdapterName, url: GatewayUrl = GATEWAY_URL, as_json: AsJson = False) -> None:
    """One adapter, and on which engines it is now."""
    with told_errors(as_json=as_json):
        _run(adapter_commands.show_adapter(_target(url), name, as_json=as_json))


@adapters_app.command("delete")
def delete_command(
    name: AdapterName, url: GatewayUrl = GATEWAY_URL, as_json: AsJson = False
) -> None:
    """Withdraw an adapter."""
    with told_errors(as_json=as_json):
        _run(adapter_commands.delete_adapter(_target(url), name, as_json=as_json))


@bench_app.command("gateway")
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
        _run(bench_gateway(options))


@nats_app.command("config")
def nats_config_command(
    topology: TopologyFile,
    out: Annotated[
        Path, typer.Option("--out", file_okay=False, help="Folder for the servers' files.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write the configuration of a region's NATS servers: cluster, accounts, permissions."""
    with told_errors(as_json=as_json):
        write_config(topology, out, as_json=as_json)


@nats_app.command("setup")
def nats_setup_command(
    topology: TopologyFile,
    out: Annotated[
        Path, typer.Option("--out", file_okay=False, help="Folder for server/ and users/.")
    ],
    as_json: AsJson = False,
) -> None:
    """The same, and a seed for each user that has no key: for a region that is all on one host."""
    with told_errors(as_json=as_json):
        write_setup(topology, out, as_json=as_json)


@nats_app.command("key")
def nats_key_command(
    seed_file: Annotated[Path, typer.Argument(dir_okay=False, help="New file for the seed.")],
    as_json: AsJson = False,
) -> None:
    """Make the key of a NATS user: the seed into a file, the public key for the topology told."""
    with told_errors(as_json=as_json):
        write_key(seed_file, as_json=as_json)


class Source(StrEnum):
    """How agents know what is resident."""

    EXTENSION = "extension"
    POLLED = "polled"


@bench_app.command("telemetry")
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
        _run(bench_telemetry(options))


@bench_app.command("churn")
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
        _run(bench_churn(options))


@app.command("version")
def version_command(as_json: AsJson = False) -> None:
    """Print the version."""
    if as_json:
        print_figures({"version": version(), "commit": commit(), "machine": machine()})
    else:
        sys.stdout.write(f"axiom {version()}\n")


def _target(url: str) -> Target:
    return Target(url, read_secret(_KEY_FILE))


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. SIGINT or SIGTERM cancel it; once it has cleaned up, KeyboardInterrupt."""

    async def until_signalled() -> asyncio.Task[T]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work, name="command")
            loop = asyncio.get_running_loop()

            def cancel() -> None:
                # Only the first signal counts: a second must not cut the clean-up short.
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.add_signal_handler(number, lambda: None)
                task.cancel()

            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, cancel)
        return task

    task = uvloop.run(until_signalled())
    if task.cancelled():
        raise KeyboardInterrupt
    return task.result()


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
