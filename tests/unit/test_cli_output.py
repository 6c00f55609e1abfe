"""How commands tell errors: one line or one JSON object, and the exit code; tables that fit."""

from __future__ import annotations

import json

import pytest
import typer
from rich.console import Console

from axiom_cli.commands.engines import engine_table
from axiom_cli.output import print_figures, told_errors
from axiom_common.errors import InvalidInputError, SettingsError, UnavailableError
from axiom_common.wire import examples
from axiom_common.wire.views import EngineView

AWAY = UnavailableError("no gateway answers\n at x")


@pytest.mark.parametrize(
    ("error", "as_json", "exit_code", "out", "err"),
    [
        (AWAY, False, 1, "", "error: no gateway answers at x\n"),
        (
            AWAY,
            True,
            1,
            '{"error": {"code": "unavailable", "message": "no gateway answers at x"}}\n',
            "",
        ),
        (SettingsError("port: too large"), False, 2, "", "error: port: too large\n"),
        (
            SettingsError("no"),
            True,
            2,
            '{"error": {"code": "invalid-settings", "message": "no"}}\n',
            "",
        ),
        (
            InvalidInputError("rank: no number", path="adapters.0.rank"),
            True,
            1,
            '{"error": {"code": "invalid-input", "message": "rank: no number", '
            '"path": "adapters.0.rank"}}\n',
            "",
        ),
        (
            ExceptionGroup("tasks", [ExceptionGroup("inner", [AWAY])]),
            False,
            1,
            "",
            "error: no gateway answers at x\n",
        ),
    ],
)
def test_errors_are_told_once_with_their_exit_code(
    error: Exception,
    as_json: bool,
    exit_code: int,
    out: str,
    err: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as told, told_errors(as_json=as_json):
        raise error
    assert told.value.exit_code == exit_code
    assert capsys.readouterr() == (out, err)


@pytest.mark.parametrize(
    "defect", [ZeroDivisionError(), ExceptionGroup("tasks", [AWAY, ZeroDivisionError()])]
)
def test_defects_pass_through_with_their_trace(defect: Exception) -> None:
    with pytest.raises(type(defect)), told_errors(as_json=True):
        raise defect


def test_figures_are_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures({"a": {"b": 1.5}, "c": None})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": {"b": 1.5}, "c": None}
    assert out.count("\n") == 1
    assert err == ""


def test_figures_that_json_lacks_are_a_defect() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        print_figures({"p99": float("nan")})


def test_engines_fit_a_terminal_of_80_columns_with_order_and_note() -> None:
    (example,) = (one for one in examples.REST if isinstance(one, EngineView))
    drained = {"engine": "node-1.engine-2", "base_model": "sim-8b", "status": "ready"}
    orders = {"order": "drain", "idle": True, "note": "new fan"}
    console = Console(width=80, highlight=False)
    with console.capture() as told:
        console.print(engine_table(example.model_copy(update=drained | orders)))
    over, head, row = told.get().splitlines()
    assert over.split() == ["base", "in", "runs/"]
    assert head.split() == [
        "engine",
        "model",
        "status",
        "order",
        "flight",
        "waits",
        "slots",
        "note",
    ]
    assert row.split()[:5] == ["node-1.engine-2", "sim-8b", "ready", "drain,", "idle"]
    assert row.rstrip().endswith(" new fan")
