"""How panels look and where they lie: 24 columns, rows of panels under a heading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as dashboards
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import units

SOURCE = models.DataSourceRef(type_val="prometheus", uid="prometheus")
"""As deploy/grafana/provisioning names it."""
COLUMNS = 24
GRAPH_HEIGHT, NUMBER_HEIGHT = 8, 4
TAG = "axiom"

RATE, COUNT, SECONDS, SHARE = units.OpsPerSecond, units.Short, units.Seconds, units.PercentUnit
REQUESTS = units.RequestsPerSecond
CELSIUS, WATTS, BYTES, TIMES = units.Celsius, units.Watt, units.BytesIEC, units.Short
YES_NO = units.BoolYesNo


class Line(NamedTuple):
    """What is drawn, and its name with the labels that tell one series from another."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel: `about` says what it tells and what is normal. `bad_above`, `bad_below`: from
    where on a number is red."""

    title: str
    about: str
    unit: str
    lines: tuple[Line, ...]
    width: int
    highest: float | None = None
    bad_above: float | None = None
    bad_below: float | None = None
    is_number: bool = False


def graph(
    title: str, about: str, unit: str, *lines: tuple[str, str], width: int = 8, highest: float = 0
) -> Panel:
    """A panel over time. `highest` fixes the scale where it is known."""
    drawn = tuple(Line(*line) for line in lines)
    return Panel(
        title=title, about=about, unit=unit, lines=drawn, width=width, highest=highest or None
    )


def number(
    title: str,
    about: str,
    unit: str,
    line: tuple[str, str],
    *,
    bad_above: float | None = None,
    bad_below: float | None = None,
) -> Panel:
    """One figure as it is now, with its course behind it; red where it is bad."""
    return Panel(
        title=title,
        about=about,
        unit=unit,
        lines=(Line(*line),),
        width=4,
        bad_above=bad_above,
        bad_below=bad_below,
        is_number=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard: its panels under their headings. `by_engine`: it can be kept to engines."""

    uid: str
    title: str
    about: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    by_engine: bool = False


def built(board: Board) -> models.Dashboard:
    """The dashboard as Grafana takes it."""
    builder = (
        dashboards.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags([TAG])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .timezone("browser")
        .refresh("10s")
        .variables(_variables(by_engine=board.by_engine))
        .link(_others())
    )
    top, number_ = 0, 0
    for heading, panels in board.rows:
        number_ += 1
        at = models.GridPos(h=1, w=COLUMNS, x=0, y=top)
        builder.with_row(dashboards.Row(heading).id(number_).grid_pos(at))
        top += 1
        for panel, place in _placed(panels, top):
            number_ += 1
            builder.with_panel(_builder(panel).id(number_).grid_pos(place))
            top = max(top, place.y + place.h)
    return builder.build()


def _placed(panels: Sequence[Panel], top: int) -> list[tuple[Panel, models.GridPos]]:
    """Panels side by side from the left, and below where a line is full."""
    placed: list[tuple[Panel, models.GridPos]] = []
    left, height = 0, 0
    for panel in panels:
        if left + panel.width > COLUMNS:
            top, left, height = top + height, 0, 0
        own = NUMBER_HEIGHT if panel.is_number else GRAPH_HEIGHT
        placed.append((panel, models.GridPos(h=own, w=panel.width, x=left, y=top)))
        left, height = left + panel.width, max(height, own)
    return placed


def _builder(panel: Panel) -> stat.Panel | timeseries.Panel:
    builder = _number(panel) if panel.is_number else _graph(panel)
    builder = builder.title(panel.title).description(panel.about).unit(panel.unit)
    builder = builder.datasource(SOURCE)
    for place, line in enumerate(panel.lines):
        query = prometheus.Dataquery().expr(line.expr).legend_format(line.legend)
        builder = builder.with_target(query.range().ref_id(chr(ord("A") + place)))
    return builder


def _graph(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().placement(looks.LegendPlacement.BOTTOM)
    legend = legend.display_mode(looks.LegendDisplayMode.TABLE).calcs(["lastNotNull", "max"])
    tooltip = common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI)
    builder = timeseries.Panel().min(0).fill_opacity(10).line_width(1)
    builder = builder.legend(legend.show_legend(True)).tooltip(tooltip)
    return builder if panel.highest is None else builder.max(panel.highest)


def _number(panel: Panel) -> stat.Panel:
    reduce = common.ReduceDataOptions().calcs(["lastNotNull"])
    builder = stat.Panel().reduce_options(reduce).graph_mode(looks.BigValueGraphMode.AREA)
    return builder.text_mode(looks.BigValueTextMode.AUTO).thresholds(_thresholds(panel))


def _thresholds(panel: Panel) -> dashboards.ThresholdsConfig:
    good, bad = "green", "red"
    if panel.bad_below is not None:
        steps = [(None, bad), (panel.bad_below, good)]
    elif panel.bad_above is not None:
        steps = [(None, good), (panel.bad_above, bad)]
    else:
        steps = [(None, good)]
    return (
        dashboards.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=colour) for value, colour in steps])
    )


def _variables(*, by_engine: bool) -> list[Builder[models.VariableModel]]:
    variables: list[Builder[models.VariableModel]] = [
        _variable("region", "label_values(up, region)", "Region")
    ]
    if by_engine:
        engines = 'label_values(axiom_node_agent_engine_ready_ratio{region=~"$region"}, engine)'
        variables.append(_variable("engine", engines, "Engine"))
    return variables


def _variable(name: str, query: str, label: str) -> dashboards.QueryVariable:
    return (
        dashboards.QueryVariable(name)
        .label(label)
        .query({"query": query, "refId": name})
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _others() -> dashboards.DashboardLink:
    """The way to the other dashboards, with the region and the time that are looked at."""
    link = dashboards.DashboardLink("Axiom").type(models.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).as_dropdown(True).include_vars(True).keep_time(True)
