"""What the default suite takes for vLLM's rendering of chats is what vLLM does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine


def test_the_recorded_chats_are_what_vllm_makes(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    python = pytestconfig.getoption("engine_python").absolute()
    root, file = Path(__file__).parents[2], tmp_path / "chats.json"
    command = [python, "-W", "ignore", "-m", "tests.engine.record_chats", file]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=300)
    assert json.loads(file.read_text()) == json.loads(
        (root / "tests" / "recorded" / "chats.json").read_text()
    )
