"""`axiom nats`: the files of NATS in production form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from axiom_cli.commands.options import AsJson
from axiom_cli.nats_config.command import write_config, write_key, write_setup
from axiom_cli.output import told_errors

app = typer.Typer(help="NATS in production form.", no_args_is_help=True)

TopologyFile = Annotated[Path, typer.Argument(help="YAML: servers, keys; see deploy/nats.")]


@app.command("config")
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


@app.command("setup")
def nats_setup_command(
    topology: TopologyFile,
    out: Annotated[
        Path, typer.Option("--out", file_okay=False, help="Folder for server/, users/ and admin/.")
    ],
    as_json: AsJson = False,
) -> None:
    """The same, a seed for each user that has no key, and an admin's key for the gateways: for a
    region that is all on one host."""
    with told_errors(as_json=as_json):
        write_setup(topology, out, as_json=as_json)


@app.command("key")
def nats_key_command(
    seed_file: Annotated[Path, typer.Argument(dir_okay=False, help="New file for the seed.")],
    as_json: AsJson = False,
) -> None:
    """Make the key of a NATS user: the seed into a file, the public key for the topology told."""
    with told_errors(as_json=as_json):
        write_key(seed_file, as_json=as_json)
