"""The extension's suite on the simulated engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.extension_suite import FOLDERS, ExtensionSuite, Telling
from tests.contract.simulated_engine import adapter_folders, simulated_engine
from tests.servers import running


@pytest.fixture(scope="module")
def _telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Telling]:
    root = tmp_path_factory.mktemp("engine")
    adapters = adapter_folders(root / "adapters", (f"ad{n}" for n in range(FOLDERS)))
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="ext") as folder:
        socket = Path(folder, "agent.sock")
        flags = ("--tell-residency", "--agent-socket", str(socket))
        busy = {"prompt": "w", "max_tokens": 900, "ignore_eos": True}
        with running(simulated_engine(root / "server", *flags)) as server:
            yield Telling(server.url, str(adapters), socket, busy)


class TestExtensionOfTheSimulatedEngine(ExtensionSuite):
    @pytest.fixture
    def telling(self, _telling: Telling) -> Telling:
        return _telling
