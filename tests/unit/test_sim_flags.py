"""Flags of the simulated engine: what can't work is one line and exit code 2."""

from __future__ import annotations

import sys

import pytest

from axiom_sim.engine.__main__ import main


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--port", "70000"], "port"),
        (["--port", "x"], "--port"),
        (["--max-loras", "4", "--max-cpu-loras", "2"], "max_cpu_loras"),
        (["--max-loras", "-1"], "max_loras"),
        (["--max-num-seqs", "0"], "max_num_seqs"),
        (["--time-scale", "0"], "time_scale"),
        (["--max-model-len", "1000000"], "max_model_len"),
        (["--profile", "abacus"], "--profile"),
        (["--nope"], "--nope"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_one_line_names_what_is_wrong(
    flags: list[str],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["axiom-sim-engine", *flags])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("settings: ")
    assert named in lines[0]
