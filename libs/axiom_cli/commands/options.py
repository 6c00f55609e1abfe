"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from axiom_common.wire.rest import FILTER_OPS

GATEWAY_PORT = 8080

PortNumber = Annotated[int, typer.Option(min=0, max=65535, help="Gateway port; 0: a free one.")]
NatsUrl = Annotated[
    str | None, typer.Option(help="An existing NATS with JetStream, e.g. nats://host:4222.")
]
RedisUrl = Annotated[
    str | None, typer.Option(help="An existing Redis or Valkey, e.g. redis://host:6379.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help=f"FIELD OP VALUE without blanks, OP one of {' '.join(FILTER_OPS)} "
        "(the last: contains); repeated: all.",
    ),
]
Sort = Annotated[str | None, typer.Option(help="FIELD, or -FIELD for the largest first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check all, change nothing.")]
