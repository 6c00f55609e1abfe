"""The engine stage. The default run leaves this folder alone; `tests/engine/run` fills the options.

Asked for by name (`pytest tests/engine`) it runs, and fails where the engine can't be started.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apart import left_alone
from tests.engine.real_engine import RealEngine, real_engine

_HERE = Path(__file__).resolve().parent
_PYTHON, _MODEL = "engine_python", "engine_model"


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `tests/engine/run` made."""
    parser.addoption("--engine-python", dest=_PYTHON, type=Path, help="python with vLLM")
    parser.addoption("--engine-model", dest=_MODEL, type=Path, help="folder of tiny_model.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Nothing here is collected by a run that did not name this folder."""
    del collection_path
    return left_alone(_HERE, config)


@pytest.fixture(scope="session")
def engine(pytestconfig: pytest.Config) -> Iterator[RealEngine]:
    """One real engine for the whole session."""
    python, model = pytestconfig.getoption(_PYTHON), pytestconfig.getoption(_MODEL)
    if python is None or model is None:
        pytest.fail("no engine: run tests/engine/run, which installs one", pytrace=False)
    with real_engine(python.absolute(), model.absolute()) as engine:
        yield engine


@pytest.fixture(scope="session")
def place(engine: RealEngine) -> tuple[str, str]:
    """(URL of the engine, folder of its adapters)."""
    return engine.url, str(engine.model)
