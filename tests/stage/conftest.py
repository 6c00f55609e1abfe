"""The integration stage. The default run leaves this folder alone; `tests/stage/run` puts what it
built on the PATH."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.apart import left_alone

_HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Nothing here is collected by a run that did not name this folder."""
    del collection_path
    return left_alone(_HERE, config)


@pytest.fixture(scope="session")
def jaeger_binary() -> Path:
    """The Jaeger that was built."""
    found = shutil.which("jaeger")
    if found is None:
        pytest.fail("no jaeger: run tests/stage/run, which builds one", pytrace=False)
    return Path(found)
