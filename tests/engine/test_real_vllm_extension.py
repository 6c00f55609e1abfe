"""Axiom's extension in a real vLLM: the contract suite, and what its unit tests rest on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.contract.extension_suite import ExtensionSuite, Telling
from tests.engine.real_engine import RealEngine
from tests.vllm_stand_ins import Request, WorkerManager, play

pytestmark = pytest.mark.engine


class TestExtensionOfVllm(ExtensionSuite):
    @pytest.fixture
    def telling(self, engine: RealEngine) -> Telling:
        """Four long answers at once keep it busy for seconds."""
        busy = {"prompt": ["w", "x", "y", "z"], "max_tokens": 900, "ignore_eos": True}
        return Telling(engine.url, str(engine.model), engine.agent_socket, busy)


def test_the_stand_ins_of_the_unit_tests_live_as_the_real_classes(
    pytestconfig: pytest.Config,
) -> None:
    seed, steps = 11, 300
    root = Path(__file__).parents[2]
    python = pytestconfig.getoption("engine_python")
    printed = subprocess.run(
        [
            python.absolute(),
            "-W",
            "ignore",
            root / "tests/engine/real_managers.py",
            f"{seed}",
            f"{steps}",
        ],
        env={"PYTHONPATH": f"{root}{os.pathsep}{root / 'libs'}", "HOME": "/nonexistent"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    told = json.loads(printed.splitlines()[-1])
    assert told["problem"] is None
    assert told["strange"] == [
        ["unknown-version", "9.9.0"],
        ["unknown-internals", "_adapter_manager.lora_index_to_id"],
    ]
    assert told["story"] == play(WorkerManager(2, 4), Request, seed=seed, steps=steps)
