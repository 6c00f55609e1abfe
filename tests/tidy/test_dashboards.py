"""Dashboards and rules as files: made by their command, laid out for people, on figures that are
declared, and each alert with what somebody needs who is woken by it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from tests.grafana_dashboards import FOLDER, NAMES, dashboard, panels, queries

from axiom_cli.dashboards.__main__ import BOARDS, file_name, page
from axiom_common.runtime.metric_names import SERVICES, metrics_of
from axiom_common.runtime.metrics import HistogramName

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULE_FILES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
TEST_FILES = sorted((DEPLOY / "prometheus" / "tests").glob("*.yml"))
COLUMNS = 24
SCRAPE_INTERVALS_MIN = 4
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def rules() -> list[dict[str, Any]]:
    """All recording and alert rules."""
    files = [yaml.safe_load(path.read_text()) for path in RULE_FILES]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


ALERTS = [rule for rule in rules() if "alert" in rule]
RECORDED = {rule["record"] for rule in rules() if "record" in rule}
EXPRESSIONS = [
    *((str(query), query.expr) for query in queries(window="20s", region=".+", engine=".+")),
    *((rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()),
]


def declared_series() -> set[str]:
    """The names of all series that there can be."""
    metrics = [metric for service in SERVICES for metric in metrics_of(service)]
    names = {metric.name for metric in metrics}
    for metric in metrics:
        if isinstance(metric, HistogramName):
            names |= {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
    of_prometheus = {"up", "ALERTS"}
    of_processes = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    return names | of_prometheus | of_processes | RECORDED


def selected(expr: str) -> set[str]:
    """The names that an expression selects series by."""
    names: set[str] = set()

    def look(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            names.update(selector_names(node))
            return
        for part in ("expr", "lhs", "rhs", "param", "vector_selector", "vs"):
            if (child := getattr(node, part, None)) is not None:
                look(child)
        for argument in getattr(node, "args", None) or ():
            look(argument)

    look(promql_parser.parse(expr))
    return names


def selector_names(node: promql_parser.VectorSelector) -> set[str]:
    if node.name:
        return {node.name}
    patterns = [m.value for m in node.matchers.matchers if m.name == "__name__"]
    assert patterns, "a selector without a name"
    matching = {n for n in declared_series() for p in patterns if re.fullmatch(p, n)}
    return matching or set(patterns)


def test_files_are_what_their_command_makes() -> None:
    made = {file_name(board): page(board) for board in BOARDS}
    there = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert there == made, "python -m axiom_cli.dashboards"
    assert set(made) == {f"axiom-{name}.json" for name in NAMES}


@pytest.mark.parametrize(("where", "expr"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_an_expression_parses_and_names_what_is_declared(where: str, expr: str) -> None:
    names = selected(expr)
    assert names
    assert names <= declared_series()


def test_a_wrong_expression_does_not_parse() -> None:
    with pytest.raises(ValueError, match="expected type matrix"):
        promql_parser.parse("rate(up)")
    assert selected('sum(rate({__name__=~"up|axiom_nobody"}[1m])) / axiom_such') == {
        "up",
        "axiom_such",
    }


@pytest.mark.parametrize(("where", "expr"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_a_range_holds_at_least_four_scrapes(where: str, expr: str) -> None:
    """Prometheus 3 leaves the left border of a range out: with two scrapes in it there is none."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    scrape_s = seconds(config["global"]["scrape_interval"])
    ranges = re.findall(r"\[(\w+)", expr)
    assert all(seconds(one) >= SCRAPE_INTERVALS_MIN * scrape_s for one in ranges)


def seconds(told: str) -> int:
    return int(told[:-1]) * SECONDS[told[-1]]


@pytest.mark.parametrize("name", NAMES)
def test_panels_fill_the_grid_and_do_not_overlap(name: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard(name)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= COLUMNS
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{panel['title']} lies on {other}"
    lines = 1 + max(y for _, y in taken)
    assert len(taken) == lines * COLUMNS, f"holes:\n{overview(name)}"


def overview(name: str) -> str:
    """The dashboard in letters, one a panel: for people to look at."""
    grid: dict[tuple[int, int], str] = {}
    told = []
    for number, panel in enumerate(dashboard(name)["panels"]):
        at, letter = panel["gridPos"], chr(ord("A") + number)
        told.append(f"{letter} {panel['title']}")
        for x in range(at["x"], at["x"] + at["w"]):
            grid |= {(x, y): letter for y in range(at["y"], at["y"] + at["h"])}
    height = 1 + max(y for _, y in grid)
    rows = ["".join(grid.get((x, y), ".") for x in range(COLUMNS)) for y in range(height)]
    return "\n".join((*rows, *told))


@pytest.mark.parametrize("name", NAMES)
def test_somebody_on_call_understands_a_panel(name: str) -> None:
    board = dashboard(name)
    assert board["description"]
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles)
    for panel in panels(board):
        assert panel["description"].endswith((".", "?")), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "prometheus"}
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert all(legends), panel["title"]
        assert len(set(legends)) == len(legends), panel["title"]
    names = {variable["name"] for variable in board["templating"]["list"]}
    used = set(
        re.findall(r"\$(\w+)", " ".join(t["expr"] for p in panels(board) for t in p["targets"]))
    )
    assert used - {"__rate_interval"} == names


def test_ids_and_names_of_dashboards_differ() -> None:
    boards = [dashboard(name) for name in NAMES]
    assert len({board["uid"] for board in boards}) == len({b["title"] for b in boards}) == 5
    for board in boards:
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)


def test_grafana_is_told_of_them_and_of_their_source() -> None:
    grafana = DEPLOY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((grafana / "dashboards" / "axiom.yaml").read_text())["providers"]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]
    (mount,) = [v for v in compose["volumes"] if v.startswith("./deploy/grafana:")]
    mounted = Path(mount.split(":")[1])
    assert Path(provider["options"]["path"]) == mounted / FOLDER.name
    assert Path(compose["environment"]["GF_PATHS_PROVISIONING"]) == mounted / "provisioning"
    (source,) = yaml.safe_load((grafana / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["uid"] == "prometheus"
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    # $__rate_interval is four of these.
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    project = (ROOT / "pyproject.toml").read_text()
    (version,) = re.findall(r'"grafana-foundation-sdk==\d+!(\d+\.\d+\.\d+)"', project)
    assert compose["image"] == f"grafana/grafana:{version}"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_what_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert re.fullmatch(r"Axiom[A-Z][A-Za-z]+", alert["alert"])
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["description"].endswith(".")
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks.md#{alert['alert'].lower()}"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_is_shown_to_fire_and_not_to(alert: dict[str, Any]) -> None:
    fires = {
        bool(expected["exp_alerts"])
        for path in TEST_FILES
        for test in yaml.safe_load(path.read_text())["tests"]
        for expected in test["alert_rule_test"]
        if expected["alertname"] == alert["alert"]
    }
    assert fires == {True, False}


def test_alerts_have_names_of_their_own() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
