"""The command line itself: help everywhere, wrong arguments end with 2 and say why."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from axiom_cli.__main__ import app
from axiom_cli.machine import machine, version


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("up",),
        ("demo",),
        ("status",),
        ("doctor",),
        ("top",),
        ("why",),
        ("explain",),
        ("telemetry",),
        ("telemetry", "tail"),
        ("adapters",),
        ("adapters", "apply"),
        ("adapters", "list"),
        ("adapters", "show"),
        ("adapters", "delete"),
        ("bench",),
        ("bench", "gateway"),
        ("bench", "telemetry"),
        ("version",),
    ],
)
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*command, "--help"])
    assert told.exit_code == 0
    assert "Usage: " in told.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("up", "--port", "70000"), "65535"),
        (("up", "--nats-url", "http://127.0.0.1:4222"), "--nats-url"),
        (("up", "--redis-url", "not a url"), "--redis-url"),
        (("up", "--redis-url", "redis+cluster://no-port"), "redis+cluster://host:port"),
        (("up", "--nonsense"), "nonsense"),
        (("demo", "--seconds", "0"), "seconds"),
        (("demo", "--seed", "-1"), "seed"),
        (("adapters", "show"), "name"),
        (("telemetry", "tail", "n", "-n", "0"), "-n"),
        (("telemetry", "tail", "n", "--for", "0"), "--for"),
        (("nonsense",), "nonsense"),
    ],
)
def test_wrong_arguments_end_with_two(arguments: tuple[str, ...], word: str) -> None:
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 2
    assert told.stdout == ""
    assert word in told.stderr


def test_version_is_the_distributions() -> None:
    told = CliRunner().invoke(app, ["version"])
    assert (told.exit_code, told.stdout) == (0, f"axiom {version()}\n")
    told = CliRunner().invoke(app, ["version", "--json"])
    found = json.loads(told.stdout)
    assert (found["version"], found["machine"]) == (version(), machine())
    assert found.keys() == {"version", "machine", "commit"}


def test_what_can_not_be_measured_is_an_error() -> None:
    arguments = ["bench", "telemetry", "--nodes", "1", "--agents", "2", "--json"]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 1
    assert json.loads(told.stdout)["error"]["code"] == "invalid-input"


def test_the_machine_is_told_in_the_keys_that_figures_have() -> None:
    told = machine()
    assert set(told) == {"cpu", "cores", "python", "native_kernel"}
    assert told["cpu"]
    assert told["cores"] >= 1
    assert isinstance(told["native_kernel"], bool)
