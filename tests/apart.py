"""Folders that the default run leaves alone: stages of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


def left_alone(folder: Path, config: pytest.Config) -> bool | None:
    """True, for `pytest_ignore_collect`, unless the run named the folder or something in it."""
    start = config.invocation_params.dir
    named = ((start / argument.partition("::")[0]).resolve() for argument in config.args)
    return None if any(path.is_relative_to(folder) for path in named) else True
