"""Settings of telemetry that can't work are refused with the field's name."""

from __future__ import annotations

from typing import Any

import pytest

from axiom_common.errors import SettingsError
from axiom_common.runtime.settings import load_settings
from axiom_telemetry.settings import TelemetrySettings


def test_the_defaults_work() -> None:
    assert load_settings(TelemetrySettings).telemetry == "telemetry"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"redis_url": "http://x"}, "redis_url"),
        ({"nats_url": "x"}, "nats_url"),
        ({"port": 70_000}, "port"),
        ({"telemetry": "a.b"}, "telemetry"),
        ({"write_every_ms": 0}, "write_every_ms"),
        ({"typo": 1}, "typo"),
    ],
)
def test_a_setting_that_can_not_work_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        load_settings(TelemetrySettings, **settings)
