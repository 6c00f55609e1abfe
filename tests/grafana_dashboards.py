"""The committed dashboards as tests look at them, with Grafana's variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana" / "dashboards"
NAMES = ("fleet", "adapters", "engine", "decisions", "telemetry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of one panel."""

    dashboard: str
    panel: str
    ref: str
    expr: str
    legend: str

    def __str__(self) -> str:
        return f"{self.dashboard} / {self.panel} / {self.ref}"

    @property
    def legend_labels(self) -> set[str]:
        """The labels that its legend shows."""
        return set(re.findall(r"\{\{(\w+)\}\}", self.legend))


def dashboard(name: str) -> dict[str, Any]:
    """The file of a dashboard."""
    return dict(json.loads((FOLDER / f"axiom-{name}.json").read_text()))


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Its panels, without the headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(*, window: str, **variables: str) -> Iterator[Query]:
    """All queries of all dashboards. `window` stands for `$__rate_interval`."""
    for name in NAMES:
        for panel in panels(dashboard(name)):
            for target in panel["targets"]:
                yield Query(
                    dashboard=name,
                    panel=panel["title"],
                    ref=target["refId"],
                    expr=filled(target["expr"], window=window, **variables),
                    legend=target["legendFormat"],
                )


def filled(expr: str, *, window: str, **variables: str) -> str:
    """An expression as Prometheus gets it; AssertionError for a variable that nobody fills."""
    known = {"__rate_interval": window} | variables

    def value(found: re.Match[str]) -> str:
        assert found[1] in known, f"no value for ${found[1]} in {expr}"
        return known[found[1]]

    return re.sub(r"\$(\w+)", value, expr)
