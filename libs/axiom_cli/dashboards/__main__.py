"""`python -m axiom_cli.dashboards [FOLDER]`: write every dashboard as a file that Grafana reads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from axiom_cli.dashboards import adapters, decisions, engine, fleet, telemetry
from axiom_cli.dashboards.layout import Board, built

BOARDS: tuple[Board, ...] = (
    fleet.BOARD,
    adapters.BOARD,
    engine.BOARD,
    decisions.BOARD,
    telemetry.BOARD,
)
FOLDER = Path("deploy/grafana/dashboards")


def page(board: Board) -> str:
    """The file of one dashboard."""
    return json.dumps(built(board), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def file_name(board: Board) -> str:
    """How it is called."""
    return f"{board.uid}.json"


def main() -> None:
    """Write all, and remove what is none of them any more."""
    parser = argparse.ArgumentParser(description="Write Grafana's dashboards.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    pages = {file_name(board): page(board) for board in BOARDS}
    for old in folder.glob("*.json"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
