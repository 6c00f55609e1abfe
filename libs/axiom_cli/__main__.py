"""The `axiom` command: its groups of commands put together."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from axiom_cli.commands import adapters, bench, contexts, engines, keys, models, nats, profiles
from axiom_cli.commands.fleet import add_fleet_commands
from axiom_cli.commands.options import GATEWAY_PORT, AsJson, NatsUrl, PortNumber, RedisUrl
from axiom_cli.commands.running import contexts_file, run
from axiom_cli.contexts import DEFAULT_URL
from axiom_cli.demo.command import DemoOptions, demo
from axiom_cli.machine import commit, machine, version
from axiom_cli.output import print_figures, told_errors
from axiom_cli.streams import standard_streams
from axiom_cli.up import UpOptions, up

app = typer.Typer(
    name="axiom",
    help=(
        "Axiom: a control plane for fleets of LoRA adapters.\n\n"
        "Which gateway a command asks: --context or --url, else AXIOM_CONTEXT or AXIOM_URL, else "
        f"the context in use, else {DEFAULT_URL}.\n\n"
        "Exit codes: 0 done; 1 it could not be done, or in part only; 2 the command line, the "
        "environment or a settings file is wrong."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(contexts.app, name="contexts")
app.add_typer(adapters.app, name="adapters")
app.add_typer(models.app, name="models")
app.add_typer(profiles.app, name="profiles")
app.add_typer(engines.app, name="engines")
app.add_typer(keys.app, name="keys")
app.add_typer(nats.app, name="nats")
app.add_typer(bench.app, name="bench")
add_fleet_commands(app)


@app.callback()
def _root(
    contexts: Annotated[  # noqa: ARG001 - read by `contexts_file`
        Path | None,
        typer.Option(
            envvar="AXIOM_CONTEXTS",
            dir_okay=False,
            help="The file with the contexts; else the user's own.",
        ),
    ] = None,
) -> None:
    # Without a docstring, so that the help is the app's.
    return


@app.command("up")
def up_command(
    ctx: typer.Context,
    port: PortNumber = GATEWAY_PORT,
    run_dir: Annotated[
        Path | None,
        typer.Option("--dir", file_okay=False, help="Settings, data and logs; kept at the end."),
    ] = None,
    nats_url: NatsUrl = None,
    redis_url: RedisUrl = None,
) -> None:
    """Start a whole local fleet on simulated engines, and leave it running until Ctrl-C.

    While it runs it is a context, in use if no other one is.
    """
    options = UpOptions(
        run_dir=run_dir,
        port=port,
        nats_url=nats_url,
        redis_url=redis_url,
        contexts=contexts_file(ctx),
    )
    with told_errors(), contextlib.suppress(KeyboardInterrupt):
        run(up(options))


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
        run(demo(DemoOptions(seconds=seconds, seed=seed, report=report, as_json=as_json)))


@app.command("version")
def version_command(as_json: AsJson = False) -> None:
    """Print the version."""
    if as_json:
        print_figures({"version": version(), "commit": commit(), "machine": machine()})
    else:
        sys.stdout.write(f"axiom {version()}\n")


def main() -> None:
    """Entry point of the console script."""
    with standard_streams():
        app()


if __name__ == "__main__":
    main()
