"""That the checks of rules and dashboards, which `tests/stage/run` runs as well, ask a Prometheus
3: its ranges leave out their older end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml
from tests.prometheus_server import binary

ONE_SAMPLE_RANGE = {
    "evaluation_interval": "1m",
    "tests": [
        {
            "interval": "1m",
            "input_series": [{"series": "requests_total", "values": "0+60x10"}],
            "promql_expr_test": [
                {
                    "expr": "rate(requests_total[1m])",
                    "eval_time": "5m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
    ],
}
"""Two samples on the borders of a range, where both belong to it; one where the older does not."""


def test_the_promtool_of_this_stage_has_ranges_of_prometheus_3(tmp_path: Path) -> None:
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(ONE_SAMPLE_RANGE))
    told = subprocess.run(
        [binary("promtool"), "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert "got: nil" in told.stderr


def test_the_server_of_this_stage_was_built_with_its_promtool() -> None:
    assert binary("prometheus").parent == binary("promtool").parent
