"""What documents say of the code, checked against the code."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.grafana_dashboards import FOLDER as DASHBOARDS

from axiom_cli.__main__ import app
from axiom_cli.stack.topology import BASE_MODEL, StackOptions, declared_adapters
from axiom_common.model import ids
from axiom_common.model.reason import Reason
from axiom_common.policy import placement
from axiom_common.runtime import metric_names
from axiom_common.state import inflight_vectors, region_view
from axiom_common.state.adapter_lifecycle import TRANSITIONS
from axiom_common.wire import bounds, headers, rest
from axiom_gateway import admin_declared, admin_engines, admin_keys, decisions, watch
from axiom_gateway.admin_problems import CODES
from axiom_gateway.settings import GatewaySettings
from axiom_node_agent.settings import AgentSettings, EngineSettings
from axiom_scheduler.settings import SchedulerSettings
from axiom_telemetry.settings import TelemetrySettings

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
RUNBOOKS = ROOT / "docs" / "runbooks.md"
OPERATING = ROOT / "docs" / "operating.md"
GUIDES = [
    README,
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "deploy").glob("*/README.md"),
    *(ROOT / "services").glob("*/README.md"),
]
SETTINGS = (GatewaySettings, SchedulerSettings, TelemetrySettings, AgentSettings, EngineSettings)
OTHERS_WORDS = {
    "axiom_desired",  # a bucket
    "cached_tokens",  # OpenAI's usage
    "extension_off",  # of an agent's /readyz
    "model_not_found",  # OpenAI's code
    "plan_revision",  # of an agent's /readyz
    "slow_consumers",  # NATS's
    "stop_grace_period",  # Docker's
}
RULES = sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yml"))
ALERTS = [
    rule["alert"]
    for path in RULES
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
METRICS = {
    metric.name for service in metric_names.SERVICES for metric in metric_names.metrics_of(service)
}
COMMAND = typer.main.get_command(app)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of each `axiom ...` that a text tells to type, in a console block or in between."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    typed = re.findall(r"^\$ (?:docker compose exec \S+ )?(axiom .*)$", lines, flags=re.MULTILINE)
    for one in (*typed, *re.findall(r"`(axiom [^`]*)`", prose)):
        yield shlex.split(one.partition(";")[0].partition(" > ")[0], comments=True)[1:]


def problem_of(words: list[str]) -> str | None:
    """What is wrong with a command line; placeholders are taken for what they stand for."""
    command: Any = COMMAND
    while words and hasattr(command, "commands"):
        name, *words = words
        if name not in command.commands:
            known = {opt for p in command.params for opt in p.opts} | {"--install-completion"}
            return None if name in known else f"no command {name!r}"
        command = command.commands[name]
    known = {opt for p in command.params for opt in (*p.opts, *p.secondary_opts)} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word not in known]
    return f"{command.name} takes no {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("path", GUIDES, ids=relative)
def test_commands_exist_with_their_options(path: Path) -> None:
    problems = [(words, problem_of(list(words))) for words in commands_in(path.read_text())]
    assert [one for one in problems if one[1]] == []


def test_a_wrong_command_is_noticed() -> None:
    right, *wrong = commands_in(
        "```console\n$ axiom engines drain x --note y # z\n$ axiom engines stop x\n```\n"
        "`axiom top --sort x`"
    )
    assert problem_of(right) is None
    assert len(wrong) == 2
    assert all(problem_of(words) for words in wrong)


def test_many_commands_are_found() -> None:
    found = {" ".join(w[:2]) for path in GUIDES for w in commands_in(path.read_text())}
    assert len(found) > 25


def test_programs_that_the_guides_start_are_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for path in GUIDES:
        named = set(re.findall(r"^\$ (axiom-[a-z-]+)", path.read_text(), flags=re.MULTILINE))
        assert named <= set(scripts), relative(path)


@pytest.mark.parametrize("path", GUIDES, ids=relative)
def test_metrics_that_documents_name_exist(path: Path) -> None:
    words = re.findall(r"\baxiom_(?:gateway|node_agent|scheduler|telemetry)_\w+", path.read_text())
    assert {word for word in words if word.count("_") > 2 and word not in METRICS} == set()


def test_settings_that_guides_name_exist() -> None:
    known = {name for kind in SETTINGS for name in kind.model_fields}
    known |= set(rest.Adapter.model_fields) | OTHERS_WORDS | METRICS
    for name in ("quickstart.md", "operating.md", "runbooks.md"):
        words = re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", (ROOT / "docs" / name).read_text())
        assert words
        assert set(words) <= known, name


def test_problems_that_are_shown_are_those_that_are_given() -> None:
    text = OPERATING.read_text()
    shown = [json.loads(line) for line in re.findall(r'^\{"type".*\}$', text, flags=re.MULTILINE)]
    assert len(shown) > 2
    for problem in shown:
        assert problem["code"] in CODES[problem["status"]]
        assert problem["type"].endswith(problem["code"])


@pytest.mark.parametrize(
    "said",
    [
        f"| of a region: nodes; engines on a node; GPUs on a node | {region_view.NODES_MAX:,}; "
        f"{bounds.ENGINES_MAX}; {bounds.GPUS_MAX} |",
        f"| {bounds.RESIDENTS_MAX:,}; {bounds.REGISTERED_MAX:,} |",
        f"| {admin_declared.BASE_MODELS_MAX:,}; {admin_declared.ADAPTERS_MAX:,}; "
        f"{admin_declared.PROFILES_MAX}; {admin_keys.KEYS_MAX:,}; {admin_engines.ORDERS_MAX:,} |",
        f"| homes on a node that one plan may list | {placement.LOADS_PER_NODE_MAX} |",
        f"| a name | {ids.NAME_MAX} characters",
        f"| an admin body | {rest.BODY_BYTES_MAX >> 20} MiB |",
        f"| a page of a list; filters | {rest.PAGE_MAX:,}; {rest.FILTERS_MAX} |",
        f"| {watch.WATCHERS_MAX}; {watch.WATCHERS_A_KEY_MAX} |",
        f"| gateways that hear each other | {inflight_vectors.GATEWAYS_MAX} |",
        f"A gateway keeps the last {decisions.IDS_MAX:,}",
    ],
)
def test_limits_are_as_they_are_told(said: str) -> None:
    assert said in OPERATING.read_text()


@pytest.mark.parametrize(
    ("name", "unit", "divisor"),
    [
        ("requests_max", "", 1),
        ("held_max", "", 1),
        ("body_bytes_max", " MiB", 1 << 20),
        ("buffered_bytes_max", " GiB", 1 << 30),
        ("hold_ms", " s", 1_000),
        ("ensure_ms", " s", 1_000),
        ("engine_idle_ms", " min", 60_000),
        ("request_limit_ms", " h", 3_600_000),
    ],
)
def test_defaults_are_as_they_are_told(name: str, unit: str, divisor: int) -> None:
    default = GatewaySettings.model_fields[name].default / divisor
    assert f"`{name}` {default:,.0f}{unit}" in OPERATING.read_text()


def entries() -> dict[str, str]:
    """The runbook's entries by heading."""
    parts = re.split(r"^## (\w+)$", RUNBOOKS.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_each_alert_has_one_entry_in_the_runbooks_and_each_entry_an_alert() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), flags=re.MULTILINE)
    assert len(ALERTS) > 20
    assert sorted(headings) == sorted(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_entry_says_where_to_look_what_to_do_and_when_it_is_nothing(alert: str) -> None:
    text = entries()[alert]
    assert re.search(r"^- Look( and do)?: ", text, flags=re.MULTILINE)
    assert re.search(r"^- (Look and do|Do): ", text, flags=re.MULTILINE)
    assert re.search(r"^- False alarm: ", text, flags=re.MULTILINE)


def test_panels_that_the_runbooks_name_exist() -> None:
    named = set(re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", RUNBOOKS.read_text())) - {"Panels"}
    drawn = {
        panel["title"]
        for path in DASHBOARDS.glob("*.json")
        for panel in json.loads(path.read_text())["panels"]
        if panel["type"] != "row"
    }
    assert len(named) > 15
    assert named <= drawn


def test_anchors_that_guides_link_to_exist() -> None:
    for path in GUIDES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", path.read_text()):
            page = (path.parent / target) if target else path
            headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in anchors, (relative(path), target, anchor)


def test_the_models_that_the_readme_asks_for_are_declared() -> None:
    asked = re.findall(r'"model": "([^"]+)"', README.read_text())
    declared = {spec.name for spec in declared_adapters(StackOptions(run_dir=Path()))}
    assert asked
    assert set(asked) <= declared | {BASE_MODEL}


def test_the_headers_that_the_guides_name_exist() -> None:
    known = {value for value in vars(headers).values() if isinstance(value, str)}
    for path in GUIDES:
        assert set(re.findall(r"`(x-axiom-[a-z-]+)`", path.read_text())) <= known, relative(path)
    assert "`x-axiom-decision-id`" in README.read_text()


def test_the_life_of_an_adapter_is_drawn_as_it_is() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawing = page[page.index("stateDiagram-v2") :].partition("```")[0]
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)", drawing, flags=re.MULTILINE))
    moves = {(str(old), str(new)) for moves in TRANSITIONS.values() for old, new in moves.items()}
    assert len(drawn) > 8
    assert drawn <= moves


@pytest.mark.parametrize(
    "path",
    [*GUIDES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"],
    ids=relative,
)
def test_paths_that_documents_name_exist(path: Path) -> None:
    tops = "libs|services|tests|docs|examples|deploy"
    paths = re.findall(rf"`((?:{tops})/[\w./-]+)`", path.read_text())
    assert [p for p in paths if not (ROOT / p).exists() and "<" not in p] == []


def test_modules_that_the_map_names_beside_another_exist() -> None:
    """`a/b.py`, `c.py`: the second one lies where the first does."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page[page.index("## Where things are") :]
    for row in re.findall(r"^\| .*$", table, flags=re.MULTILINE):
        folder = ROOT
        for named in re.findall(r"`([\w./-]+)`", row):
            if "/" in named:
                folder = (ROOT / named).parent
            elif named.endswith(".py"):
                assert (folder / named).is_file(), named


def test_reasons_have_one_spelling() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", reason) for reason in Reason)
