"""Rules by Prometheus's own tool: they are valid; alerts fire when they should and only then."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from tests.prometheus_server import ROOT, RULES, binary

CONFIG = ROOT / "deploy" / "prometheus" / "prometheus.yml"
TESTS = sorted((ROOT / "deploy" / "prometheus" / "tests").glob("*.yml"))


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in (binary("promtool"), *arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_configuration_is_valid_and_takes_every_rule_file() -> None:
    told = promtool("check", "config", CONFIG)
    assert told.returncode == 0, told.stdout + told.stderr
    assert all(path.name in told.stdout for path in RULES.glob("*.yml"))


@pytest.mark.parametrize("tests", TESTS, ids=lambda path: path.stem)
def test_groups_are_evaluated_in_an_order_that_is_said(tests: Path) -> None:
    """What is not named goes anywhere: an alert then sees a record of before, now and then."""
    said = yaml.safe_load(tests.read_text())
    files = [yaml.safe_load((tests.parent / name).read_text()) for name in said["rule_files"]]
    assert said["group_eval_order"] == [one["name"] for file in files for one in file["groups"]]


@pytest.mark.parametrize("tests", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should(tests: Path) -> None:
    told = promtool("test", "rules", tests)
    assert told.returncode == 0, told.stdout + told.stderr


def test_an_alert_that_does_not_fire_is_found(tmp_path: Path) -> None:
    text = (RULES / "engines.yml").read_text()
    for path in (RULES / "recording.yml", RULES / "engines.yml"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "engines.yml").write_text(
        text.replace("_throttled_ratio) == 1", "_throttled_ratio) == 2")
    )
    (engines,) = [path for path in TESTS if path.stem == "engines"]
    (tmp_path / "tests.yml").write_text(engines.read_text().replace("../rules/", ""))
    told = promtool("test", "rules", tmp_path / "tests.yml")
    assert told.returncode == 1
    assert "AxiomEngineThrottled" in told.stdout + told.stderr
