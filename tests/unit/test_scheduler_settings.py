"""Settings of a scheduler that can't work are refused with the field's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from axiom_common.errors import SettingsError
from axiom_common.runtime.settings import load_settings
from axiom_common.state.lease import LeaseTimes
from axiom_scheduler.settings import SchedulerSettings


def test_the_defaults_work() -> None:
    settings = load_settings(SchedulerSettings)
    assert settings.lease_times() == LeaseTimes(
        ttl_ms=settings.lease_ttl_ms,
        margin_ms=settings.lease_margin_ms,
        renew_ms=settings.lease_renew_ms,
        retry_ms=settings.lease_retry_ms,
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"lease_renew_ms": 2_600}, "lease_renew_ms"),
        ({"lease_margin_ms": 3_000}, "lease_margin_ms"),
        ({"lease_ttl_ms": 500}, "lease_ttl_ms"),
        ({"forget_ms": 4_000}, "forget_ms"),
        ({"port": 70_000}, "port"),
        ({"region": "a.b"}, "region"),
        ({"typo": 1}, "typo"),
    ],
)
def test_a_setting_that_can_not_work_is_named(
    settings: dict[str, Any], named: str, tmp_path: Path
) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(yaml.safe_dump(settings))
    with pytest.raises(SettingsError, match=named):
        load_settings(SchedulerSettings, config=config)
