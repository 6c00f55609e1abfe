"""The command line itself: help everywhere, wrong arguments end with 2 and say why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from axiom_cli.__main__ import app
from axiom_cli.machine import machine, version

ROOT = typer.main.get_command(app)
ASKS_NOBODY = {"up", "demo", "version", "bench", "nats", "contexts", "keys new"}
"""Commands, or groups of them, that ask no gateway."""


def commands(
    group: Any = ROOT, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


EVERY = dict(commands())
LEAVES = {path: command for path, command in EVERY.items() if not hasattr(command, "commands")}


def test_the_commands_are_found() -> None:
    assert len(LEAVES) > 25
    assert {("adapters", "apply"), ("contexts", "use"), ("top",)} <= set(LEAVES)


@pytest.mark.parametrize("command", EVERY)
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*command, "--help"])
    assert told.exit_code == 0
    assert "Usage: " in told.stdout
    assert EVERY[command].help


@pytest.mark.parametrize("command", LEAVES)
def test_a_command_that_asks_takes_the_same_options_and_tells_scripts(
    command: tuple[str, ...],
) -> None:
    options = {name for option in LEAVES[command].params for name in option.opts}
    asks = not {command[0], " ".join(command)} & ASKS_NOBODY
    assert {"--context", "--url", "--key-file"}.issubset(options) is asks
    assert "--json" in options or command == ("up",)


def test_the_root_tells_exit_codes_and_completion() -> None:
    told = CliRunner().invoke(app, ["--help"], terminal_width=200).stdout
    for word in ("Exit codes: 0 done; 1 ", "--install-completion", "--show-completion"):
        assert word in told


def test_the_shell_completes_commands_and_contexts(tmp_path: Path) -> None:
    file = tmp_path / "contexts.yaml"
    file.write_text("contexts: {prod-eu: {url: 'http://a'}, prod-us: {url: 'http://b'}}")

    def completed(line: str) -> list[str]:
        environment = {
            "_AXIOM_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
            "AXIOM_CONTEXTS": str(file),
        }
        told = CliRunner().invoke(app, [], env=environment, prog_name="axiom")
        return told.stdout.split()

    assert completed("axiom adapters a") == ["apply"]
    assert completed("axiom contexts use p") == ["prod-eu", "prod-us"]
    assert completed("axiom status --context prod-u") == ["prod-us"]
    file.write_text("[")
    assert completed("axiom contexts use p") == []


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
        (("status", "--context", "a", "--url", "http://b"), "a context and a URL"),
        (("status", "--url", "ftp://b"), "--url"),
        (("status", "--key-file", "/nonexistent/key"), "/nonexistent/key: No such file"),
        (("status", "--context", "nope"), "there is no context 'nope'"),
        (("adapters", "apply", "/nonexistent"), "error: /nonexistent: No such file or directory\n"),
        (("contexts", "set", "a"), "--url"),
        (("contexts", "set", "a", "--url", "nonsense"), "--url"),
        (("contexts", "set", "-a", "--url", "http://b"), "-a"),
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
