"""The command line of services: what they all take, and how wrong settings end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SERVICES = ("axiom_telemetry", "axiom_scheduler", "axiom_node_agent")
AGENT = ("--node", "n1", "--config")
ONE_ENGINE = "engines: [{name: e1, url: 'http://127.0.0.1:1'}]\n"


def ended(service: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", service, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("service", SERVICES)
def test_the_common_settings_are_flags_of_every_service(service: str) -> None:
    told = ended(service, "--help")
    assert told.returncode == 0
    for flag in ("config", "region", "nats-url", "redis-url", "host", "port", "log-level"):
        assert f"--{flag} " in told.stdout


WRONG = [
    (("--port", "eighty"), "port: "),
    (("--log-level", "loud"), "log_level: "),
    (("--config", "/nowhere.yaml"), "/nowhere.yaml: "),
]
WRONG_REDIS = (("--redis-url", "redis://host:port", "--port", "0"), "redis_url: ")
"""The pattern takes it; the driver knows better. An agent opens no shadow cache."""


@pytest.mark.parametrize(
    ("service", "arguments", "named"),
    [(service, *wrong) for service in SERVICES for wrong in WRONG]
    + [(service, *WRONG_REDIS) for service in SERVICES if service != "axiom_node_agent"],
)
def test_wrong_settings_are_one_line_and_exit_2(
    tmp_path: Path, service: str, arguments: tuple[str, ...], named: str
) -> None:
    if service == "axiom_node_agent":
        config = tmp_path / "agent.yaml"
        config.write_text(ONE_ENGINE)
        arguments = (*AGENT, str(config), *arguments)
    told = ended(service, *arguments)
    assert told.returncode == 2
    assert told.stderr.startswith(f"settings: {named}")
    assert told.stderr.count("\n") == 1
